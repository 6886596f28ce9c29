"""Bulk loads in a real session: each partition a store of its own, read back as one frame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.sink.shards import shard_paths
from rocketstore.tools import verify
from tests.support.verifying import faults
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

ROWS = 4000


def frame_of(spark: Any, first: int, partitions: int) -> Any:
    return spark.range(first, first + ROWS, 1, partitions).selectExpr(
        "cast(id as string) as body", "concat('t', id % 2) as topic", "cast(id as string) as keys"
    )


def load(frame: Any, root: Path, **options: str) -> None:
    given = {"path": str(root), "segmentBytes": "8m", **options}
    frame.write.format("rocketstore").mode("append").options(**given).save()


def bodies(spark: Any, root: Path) -> list[int]:
    frame = spark.read.format("rocketstore").option("path", str(root)).load()
    return [int(bytes(row.body)) for row in frame.select("body").collect()]


def test_partitions_become_shards(spark: Any, tmp_path: Path) -> None:
    """A second load adds its own, a third under the name of the second adds nothing."""
    root = tmp_path / "s"
    load(frame_of(spark, 0, 3), root, shards="3")
    assert sorted(bodies(spark, root)) == list(range(ROWS))
    for _ in range(2):
        load(frame_of(spark, ROWS, 2), root, shards="auto", txnAppId="load", txnVersion="1")
    assert sorted(bodies(spark, root)) == list(range(2 * ROWS))
    paths = shard_paths(str(root))
    assert paths is not None and sorted(os.listdir(root)) == sorted(
        [*(os.path.basename(path) for path in paths), "shards.json", "shards.lock"]
    )
    assert len(paths) == 5
    for path in paths:
        assert faults(verify(path)) == []
    with rocketstore.open(paths[3], "r") as store:
        assert sorted(store.topics()) == ["t0", "t1"]
        assert [m.body for m in store.query("t0", str(ROWS))] == [b"%d" % ROWS]


def test_a_load_that_fails_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "s"
    with pytest.raises(Exception, match=r"RS_BAD_OPTION.*repartition\(2\)"):
        load(frame_of(spark, 0, 3), root, shards="2")
    bad = frame_of(spark, 0, 2).selectExpr("if(keys = '3999', null, body) as body", "topic")
    with pytest.raises(Exception, match=r"RS_BAD_ROW.*body is null"):
        load(bad, root, shards="auto")
    # Tasks that Spark has killed may still write when it raises.
    wait_until(lambda: not root.exists() or os.listdir(root) == [])
    load(bad, root, shards="auto", badRows="divert")
    assert sorted(bodies(spark, root)) == list(range(ROWS - 1))
    kept = spark.read.parquet(str(root / "bad_rows")).collect()
    assert [row.bad_row_reason for row in kept] == ["body is null"]


def test_what_shards_are_not(spark: Any, tmp_path: Path) -> None:
    """A store is no place for shards, shards are no place for a plain write, and no stream."""
    store, root = tmp_path / "store", tmp_path / "s"
    frame = frame_of(spark, 0, 2)
    frame.write.format("rocketstore").mode("append").option("path", str(store)).save()
    with pytest.raises(Exception, match=r"RS_BAD_OPTION.*is a store"):
        load(frame, store, shards="auto")
    load(frame, root, shards="auto")
    with pytest.raises(Exception, match=r"RS_BAD_OPTION.*2 shards.*option shards"):
        frame.write.format("rocketstore").mode("append").option("path", str(root)).save()
    stream = spark.readStream.format("rate").load().selectExpr("cast(value as string) as body")
    options = {"path": str(root), "topic": "t", "checkpointLocation": str(tmp_path / "c")}
    with pytest.raises(Exception, match=r"RS_BAD_OPTION.*only in a batch"):
        query = stream.writeStream.format("rocketstore").options(**options, shards="auto").start()
        query.awaitTermination()
    assert sorted(bodies(spark, root)) == list(range(ROWS))


def test_a_job_imports_into_shards(spark: Any, tmp_path: Path) -> None:
    """It has as many partitions as shards are asked for, at most."""
    from rocketstore.spark import jobs

    source, root = tmp_path / "parquet", tmp_path / "s"
    frame_of(spark, 0, 4).write.parquet(str(source))
    assert jobs.import_(spark, str(source), root, shards=2, segmentBytes="8m") == ROWS
    assert len(shard_paths(str(root)) or []) == 2
    assert sorted(bodies(spark, root)) == list(range(ROWS))
