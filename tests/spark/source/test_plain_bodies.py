"""Bodies that clients compressed, as rows."""

from __future__ import annotations

import random
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format.codec import encode_record
from rocketstore.spark.errors import SparkFaceError

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")

SEGMENT = 64 * 1024
ZLIB, PLAIN, ZSTD, UNDEFINED = 0x301, 0, 0x201, 0x401


def store_with(root: Path, bodies: list[tuple[bytes, int]]) -> Path:
    """A store as RocketMQ's clients fill it: `sys_flag` says which bodies are compressed."""
    log = b""
    for number, (body, sys_flag) in enumerate(bodies):
        log += encode_record(
            topic="t", body=body, sys_flag=sys_flag, queue_offset=number, physical_offset=len(log)
        )
    assert len(log) < SEGMENT - 8
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(log.ljust(SEGMENT, b"\0"))
    return root


def read(root: Path, **options: str) -> list[dict[str, Any]]:
    from rocketstore.spark.source.options import ReadOptions
    from rocketstore.spark.source.plan import plan_batch, read

    given = ReadOptions.parse({"path": str(root), **options}, stream=False)
    scans, bounds = plan_batch(given)
    batches = [batch for scan in scans for batch in read(scan, given, bounds)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_rows_have_plain_bodies(tmp_path: Path, rng: random.Random) -> None:
    plain = [rng.randbytes(rng.randrange(40)) * rng.randrange(5) for _ in range(100)]
    kinds = [rng.choice([ZLIB, PLAIN, 0x1]) for _ in plain]
    stored = [zlib.compress(p) if kind else p for p, kind in zip(plain, kinds, strict=True)]
    root = store_with(tmp_path / "s", list(zip(stored, kinds, strict=True)))
    rows = read(root, columns="body,sys_flag")
    assert [(row["body"], row["sys_flag"]) for row in rows] == [(p, 0) for p in plain]
    rows = read(root, columns="body,sys_flag", decompress="false")
    assert [(r["body"], r["sys_flag"]) for r in rows] == list(zip(stored, kinds, strict=True))
    assert [row["value"] for row in read(root, view="kafka")] == plain
    assert len(read(root, columns="queue_offset")) == 100


@pytest.mark.parametrize(
    ("test", "wanted"),
    [('"in", [0]', ["plain", "packed"]), ('">", [0]', []), ('"in", [769]', [])],
    ids=["zero", "above", "as stored"],
)
def test_conditions_are_about_flags_as_rows_show_them(
    tmp_path: Path, test: str, wanted: list[str]
) -> None:
    """A body that was unpacked is not called compressed any more, and Spark would test what it sees."""
    root = store_with(tmp_path / "s", [(b"plain", PLAIN), (zlib.compress(b"packed"), ZLIB)])
    conditions = f'[["sys_flag", {test}]]'
    assert [row["body"].decode() for row in read(root, conditions=conditions)] == wanted
    stored = read(root, conditions=conditions, decompress="false")
    assert [row["sys_flag"] for row in stored] == [PLAIN if test == '"in", [0]' else ZLIB]


def test_bodies_that_cannot_be_unpacked_are_named(tmp_path: Path) -> None:
    root = store_with(tmp_path / "s", [(b"fine", PLAIN), (b"no stream", ZLIB)])
    with pytest.raises(SparkFaceError, match=r"RS_BAD_COMPRESSION.*zlib.*decompress=false"):
        read(root)
    root = store_with(tmp_path / "u", [(b"?", UNDEFINED)])
    with pytest.raises(SparkFaceError, match="RS_BAD_COMPRESSION.*type 4 is undefined"):
        read(root)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"t": {"0": 2}}'},
        {"endingOffsets": '{"t": {"0": 1}}'},
        {"conditions": '[["queue_offset", "in", [0, 2]]]'},
    ],
    ids=["starting", "ending", "conditions"],
)
def test_bodies_that_nobody_wants_are_not_unpacked(tmp_path: Path, options: dict[str, str]) -> None:
    """So a read can begin behind one that cannot be."""
    good = zlib.compress(b"good"), ZLIB
    root = store_with(tmp_path / "s", [good, (b"no stream", ZLIB), good])
    rows = read(root, **options)
    assert {row["body"] for row in rows} == {b"good"} and 1 not in {r["queue_offset"] for r in rows}


def test_a_missing_codec_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    root = store_with(tmp_path / "s", [(b"?", ZSTD)])
    with pytest.raises(SparkFaceError, match=r"RS_NO_CODEC.*rocketstore\[compression\]"):
        read(root)


@pytest.mark.parametrize("piece_bytes", [1, 1000, 1500, 1 << 20])
def test_bodies_that_grow_come_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, piece_bytes: int
) -> None:
    """A chunk of 2 MiB may hold gigabytes of them, which neither a batch nor a task has room for."""
    from rocketstore.spark import decompression
    from rocketstore.spark.source.options import ReadOptions
    from rocketstore.spark.source.plan import plan_batch
    from rocketstore.spark.source.plan import read as batches_of
    from tests.spark.jobs import test_export

    monkeypatch.setattr(decompression, "PIECE_BYTES", piece_bytes)
    plain = [bytes([n]) * rng.choice([0, 10, 600, 900]) for n in range(60)]
    kinds = [rng.choice([ZLIB, ZLIB, PLAIN]) for _ in plain]
    stored = [zlib.compress(p) if kind else p for p, kind in zip(plain, kinds, strict=True)]
    root = store_with(tmp_path / "s", list(zip(stored, kinds, strict=True)))
    given = ReadOptions.parse({"path": str(root), "columns": "queue_offset,body"}, stream=False)
    scans, bounds = plan_batch(given)
    batches = [batch for scan in scans for batch in batches_of(scan, given, bounds)]
    assert (len(batches) > 1) == (piece_bytes < 1 << 20)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["queue_offset"], row["body"]) for row in rows] == list(enumerate(plain))
    odd = '[["queue_offset", "in", [1, 3, 40, 41, 59]]]'
    wanted = [plain[n] for n in (1, 3, 40, 41, 59)]
    assert [row["body"] for row in read(root, conditions=odd)] == wanted
    test_export.write(root, tmp_path / "out", 1 << 30, unpack=True)
    assert [row[4] for row in test_export.read(tmp_path / "out")] == plain


def test_an_export_has_plain_bodies(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from rocketstore.spark.jobs.export import export_part
    from rocketstore.spark.jobs.parquet_files import Target
    from rocketstore.spark.jobs.reading import parts_of
    from rocketstore.spark.schema import VIEWS

    root = store_with(tmp_path / "s", [(zlib.compress(b"a" * 99), ZLIB), (b"b", PLAIN)])
    place = Target(str(tmp_path / "out"), "run", "none")
    view = VIEWS["rocketstore"]
    fields = (view["body"], view["sys_flag"])
    [scan] = parts_of(root, 1 << 30)
    rows = place.keep(list(export_part(scan, target=place, fields=fields, unpack=True)))
    table = pq.read_table(tmp_path / "out" / rows[0][0], partitioning=None)
    assert table.to_pydict() == {"body": [b"a" * 99, b"b"], "sys_flag": [0, 0]}
