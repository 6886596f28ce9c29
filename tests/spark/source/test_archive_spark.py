"""An archive in an object store, read by a session: rows and jobs are those of the store."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import spark as face
from rocketstore.archive.object_store import ObjectStore
from rocketstore.spark import jobs
from tests.archive.object_server import (
    MISSING,
    delete_object,
    make_bucket,
    object_server,
    server_command,
    uri_in,
)
from tests.spark.reading import crossed, make_store

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """(URI, what deletes an object of it)."""
    if request.param == "file":
        root = tmp_path / "archive"
        yield f"file://{root}", lambda name: (root / name).unlink()
        return
    command = server_command()
    if command is None:
        pytest.skip(MISSING)
    with object_server(command) as port:
        make_bucket(port, "shipped")
        yield (
            uri_in(port, "shipped/archive"),
            lambda name: delete_object(port, f"shipped/archive/{name}"),
        )


def load(spark: Any, path: Any, **options: str) -> Any:
    return spark.read.format("rocketstore").options(path=str(path), **options).load()


def test_a_shipped_store_is_the_same_table(
    spark: Any, tmp_path: Path, rng: random.Random, place: Any
) -> None:
    uri, delete = place
    make_store(tmp_path / "s", rng)
    report = rocketstore.ship(tmp_path / "s", uri)
    assert report.segments > 2
    here = load(spark, tmp_path / "s").where(f"physical_offset < {report.end_offset}").collect()
    frame = load(spark, uri, splitBytes="64k")
    assert frame.rdd.getNumPartitions() == report.segments
    assert frame.collect() == here
    assert here
    where = f"topic = 'orders' and physical_offset < {here[-1].physical_offset // 2}"
    rows, given = crossed(face.read(spark, uri, where=where))
    assert rows == load(spark, uri).where(where).collect()
    assert len(here) > len(rows) == given > 0
    assert face.read(spark, uri).collect() == here
    shown = jobs.stats(spark, uri, split_bytes=64 << 10, topics="orders").collect()
    rows = [row for row in here if row.topic == "orders"]
    assert sum(row.messages for row in shown) == len(rows)
    assert {(row.topic, row.queue_id) for row in shown} == {(r.topic, r.queue_id) for r in rows}
    audited = jobs.audit(spark, uri, split_bytes=64 << 10).collect()
    assert sum(row.records for row in audited) == len(here)
    assert not any(row.damage for row in audited)
    exported = jobs.export(spark, uri, str(tmp_path / "parquet")).collect()
    assert sum(row.messages for row in exported) == len(here)
    assert jobs.replay(spark, uri, tmp_path / "again", topics="orders") == len(rows)
    name = ObjectStore(uri).manifest().segments[1].name
    delete(name)
    for run in (
        load(spark, uri).collect,
        lambda: jobs.audit(spark, uri, split_bytes=64 << 10).collect(),
    ):
        with pytest.raises(Exception, match="RS_SEGMENT_UNREACHABLE") as caught:
            run()
        assert f"/archive/{name}" in str(caught.value)
        assert "host=" in str(caught.value)
        assert "secret" not in str(caught.value)
    stream = spark.readStream.format("rocketstore").option("path", uri).load().writeStream
    with pytest.raises(Exception, match=r"RS_BAD_OPTION.*a stream follows"):
        stream.format("noop").option(
            "checkpointLocation", str(tmp_path / "c")
        ).start().awaitTermination()
