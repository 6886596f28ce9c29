"""Rows that cannot be messages, of writes that fail: kept when the write is finished by somebody, not else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.store_access import file_lock
from tests.spark.writing import write, writer_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
pytest.importorskip("pyspark", reason="needs pyspark: make spark")
pytestmark = pytest.mark.filterwarnings("ignore")


def kept(root: Path) -> int:
    return len(list(root.rglob("bad_rows/*.parquet")))


def test_of_a_write_that_never_came_to_the_store(tmp_path: Path) -> None:
    """It is written again, and its bad rows are there once."""
    with rocketstore.open(tmp_path), pytest.raises(SparkFaceError, match="RS_STORE_LOCKED"):
        write(writer_of(tmp_path))
    assert list(tmp_path.rglob("*.parquet")) == []
    write(writer_of(tmp_path))
    assert kept(tmp_path) == 1


def test_of_a_write_that_the_next_one_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise rocketstore.StoreFailedError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(rocketstore.Store, "put_frames", fail)
        with pytest.raises(SparkFaceError, match="RS_WRITE_FAILED"):
            write(writer_of(tmp_path))
    assert kept(tmp_path) == 1
    commit(str(tmp_path), "another", 0, [])
    with rocketstore.open(tmp_path, "r") as store:
        assert [m.body for m in store.consumer("t")] == [b"a"]


def test_of_a_load_that_never_came_to_the_shards(tmp_path: Path) -> None:
    options = {"shards": "auto", "segmentBytes": "8m"}
    lock = file_lock(tmp_path / "shards.lock", 1, "RS_SHARDS_LOCKED")
    with lock, pytest.raises(SparkFaceError, match="RS_SHARDS_LOCKED"):
        write(writer_of(tmp_path, **options))
    assert list(tmp_path.rglob("*.parquet")) == []
    write(writer_of(tmp_path, **options))
    assert kept(tmp_path) == 1


def test_of_one_writer_to_several_stores(tmp_path: Path) -> None:
    """As `foreachBatch` writes a batch to two stores: in one directory they took each other's place."""
    options = {"badRowsPath": str(tmp_path / "bad_rows"), "txnAppId": "etl", "txnVersion": "7"}
    for name in ("a", "b", "shards"):
        more = {"shards": "auto", "segmentBytes": "8m"} if name == "shards" else {}
        for _ in range(2):  # the same version once more is the same rows
            write(writer_of(tmp_path / name, **options, **more))
    assert kept(tmp_path) == 3


def test_of_a_store_that_is_gone_when_it_is_committed(tmp_path: Path) -> None:
    """Its disk is not mounted any more: a new store in its place had the commit, and the writer took it for done."""
    root = tmp_path / "s"
    writer = writer_of(root, stagingPath=str(tmp_path / "staged"))
    root.rename(tmp_path / "unmounted")
    root.mkdir()
    with pytest.raises(SparkFaceError, match=r"^\[RS_WRITE_FAILED\] host=\S+ path=\S+: .*mounted"):
        write(writer)
    assert not (root / "commitlog").exists() and kept(tmp_path) == 0
    shutil.rmtree(root)
    (tmp_path / "unmounted").rename(root)
    write(writer)
    with rocketstore.open(root, "r") as store:
        assert [m.body for m in store.consumer("t")] == [b"a"]


def test_of_a_stream_whose_store_is_gone_between_two_batches(tmp_path: Path) -> None:
    """Spark makes a writer for each batch: it made a new store, as for the first one."""
    root = tmp_path / "s"

    def write_batch(number: int) -> None:
        given = {"stagingPath": str(tmp_path / "staged"), "txnAppId": "q"}
        write(writer_of(root, kind="stream", **given), number)

    write_batch(0)
    root.rename(tmp_path / "unmounted")
    with pytest.raises(SparkFaceError, match=r"^\[RS_WRITE_FAILED\] .*mounted.*open\(path\)"):
        write_batch(1)
    assert not (root / "commitlog").exists()
    shutil.rmtree(root, ignore_errors=True)
    (tmp_path / "unmounted").rename(root)
    write_batch(1)
    with rocketstore.open(root, "r") as store:
        assert [m.body for m in store.consumer("t")] == [b"a", b"a"]


@pytest.mark.parametrize(
    "options", [{}, {"shards": "auto", "segmentBytes": "8m"}], ids=["store", "shards"]
)
def test_of_one_version_by_two_paths(tmp_path: Path, options: dict[str, str]) -> None:
    """Their names hold the path of the store: by another one they were kept twice."""
    root, link, bad = tmp_path / "s", tmp_path / "link", tmp_path / "bad"
    link.symlink_to(root, target_is_directory=True)
    named = {"txnAppId": "load", "txnVersion": "1", "badRowsPath": str(bad), **options}
    root.mkdir()
    for path in (root, link, f"file://{link}"):
        write(writer_of(path, **named))
    assert len(list(bad.glob("*.parquet"))) == 1


@pytest.mark.parametrize("kind", ["batch", "stream", "shards"])
@pytest.mark.parametrize("fate", ["drop", "divert"])
def test_they_are_counted(
    tmp_path: Path, kind: str, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"shards": "auto", "segmentBytes": "8m"} if kind == "shards" else {}
    number = (0,) if kind == "stream" else ()
    named = {"txnAppId": "q", **({} if kind == "stream" else {"txnVersion": "0"})}
    write(writer_of(tmp_path, kind, badRows=fate, **named, **options), *number)
    told = [r.getMessage() for r in caplog.records if "cannot be messages" in r.getMessage()]
    where = f"kept in {tmp_path}" if fate == "divert" else "left out (badRows=drop)"
    assert len(told) == 1 and f"cannot be messages: 1, {where}" in told[0]
