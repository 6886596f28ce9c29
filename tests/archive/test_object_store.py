"""An archive in an object store, through pyarrow's own client of S3 and a server in another process."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.archive.object_store import ObjectStore
from rocketstore.columns import COLUMNS
from tests.archive.object_server import (
    MISSING,
    delete_object,
    make_bucket,
    object_server,
    server_command,
    uri_in,
)
from tests.archive.watched_object_store import SEGMENT_BYTES, small_pieces
from tests.support.column_tools import fill_at_random, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")

OTHER_PROCESS = """
import pickle, sys
part = pickle.load(sys.stdin.buffer)
print(sum(columns["physical_offset"].sum() for columns in part))
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = server_command()
    if command is None:
        pytest.skip(MISSING)
    with object_server(command) as found:
        yield found


@pytest.fixture
def bucket(port: int, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[:63]
    make_bucket(port, name)
    return name


def test_a_scan_of_shipped_segments_equals_the_local_scan(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, port: int, bucket: str
) -> None:
    small_pieces(monkeypatch)
    store = tmp_path / "store"
    uri = uri_in(port, f"{bucket}/deep/archive")
    fill_at_random(store, rng, 400)
    first = rocketstore.ship(store, uri)
    fill_at_random(store, rng, 300)
    report = rocketstore.ship(store, uri)
    assert first.segments > 1
    assert report.segments > 1
    both: dict[str, Any] = {"columns": COLUMNS, "end_offset": report.end_offset}
    expected = rows_of(rocketstore.scan(store, **both))
    assert rows_of(rocketstore.scan(uri, **both)) == expected
    parts = pickle.loads(pickle.dumps(rocketstore.scan(uri, **both).split(20_000)))
    assert len(parts) > report.archived_segments
    assert [row for part in parts for row in rows_of(part)] == expected
    times = [row["store_timestamp_ms"] for row in expected]
    wanted: dict[str, Any] = {"topics": "orders", "begin": times[len(times) // 2]}
    here = rocketstore.scan(store, **both, **wanted).to_arrow().read_all()
    assert rocketstore.scan(uri, **both, **wanted).to_arrow().read_all().equals(here)
    assert here.num_rows > 0


def test_a_part_is_read_in_another_process(
    tmp_path: Path, rng: random.Random, port: int, bucket: str
) -> None:
    store = tmp_path / "store"
    uri = uri_in(port, f"{bucket}/archive")
    fill_at_random(store, rng, 300)
    report = rocketstore.ship(store, uri)
    part = rocketstore.scan(uri, columns=["physical_offset"]).split(SEGMENT_BYTES)[1]
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        input=pickle.dumps(part),
        capture_output=True,
        check=True,
    )
    here = rocketstore.scan(
        store, begin_offset=part.begin_offset, end_offset=part.end_offset, aligned=True
    )
    assert int(done.stdout) == sum(row["physical_offset"] for row in rows_of(here)) > 0
    assert report.end_offset >= part.end_offset


def test_a_missing_object_is_named(
    tmp_path: Path, rng: random.Random, port: int, bucket: str
) -> None:
    uri = uri_in(port, f"{bucket}/archive")
    fill_at_random(tmp_path / "store", rng, 300)
    rocketstore.ship(tmp_path / "store", uri)
    name = ObjectStore(uri).manifest().segments[1].name
    delete_object(port, f"{bucket}/archive/{name}")
    with pytest.raises(FileNotFoundError) as caught:
        list(rocketstore.scan(uri))
    assert caught.value.filename == f"s3://{bucket}/archive/{name}"
    with pytest.raises(FileNotFoundError, match="nothing was shipped here"):
        rocketstore.scan(uri_in(port, f"{bucket}/elsewhere"))


def test_a_missing_bucket_is_named(tmp_path: Path, rng: random.Random, port: int) -> None:
    fill_at_random(tmp_path / "store", rng, 100)
    with pytest.raises(OSError, match="no-such-bucket") as caught:
        rocketstore.ship(tmp_path / "store", uri_in(port, "no-such-bucket/archive"))
    assert caught.value.filename == "s3://no-such-bucket/archive/manifest.json"
    assert "secret" not in str(caught.value)


def test_segments_that_go_up_in_several_parts(tmp_path: Path, port: int, bucket: str) -> None:
    uri = uri_in(port, f"{bucket}/archive")
    config: dict[str, Any] = {"commit_log_file_size_bytes": 24 << 20, "durability": "os"}
    with rocketstore.open(tmp_path / "store", **config) as store:
        bodies = [bytes([number]) * 3_000_000 for number in range(12)]
        for body in bodies:
            result = store.writer("orders").put(body)
        store.wait_flushed(result.end_offset)
        assert store.ship(uri).bytes == 24 << 20
    segment = ObjectStore(uri).manifest().segments[0]
    assert len(segment.pieces) == 3
    found = [body for columns in rocketstore.scan(uri) for body in columns["body"].tolist()]
    assert found == bodies[: len(found)]
    assert len(found) == segment.records == 8


def test_a_server_that_is_gone_is_named(tmp_path: Path, rng: random.Random) -> None:
    command = server_command()
    if command is None:
        pytest.skip(MISSING)
    fill_at_random(tmp_path / "store", rng, 300)
    with object_server(command) as port:
        make_bucket(port, "bucket")
        uri = uri_in(port, "bucket/archive")
        rocketstore.ship(tmp_path / "store", uri)
        part = rocketstore.scan(uri)
    name = f"s3://bucket/archive/{0:020}: .*127.0.0.1:{port}"
    with pytest.raises(rocketstore.ReadFailedError, match=name):
        list(part)
