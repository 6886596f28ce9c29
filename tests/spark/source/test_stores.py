"""How the Spark face opens a store; a log that is not all there is RS_DATA_LOST, and never an empty table."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.engine import open as opening
from rocketstore.log.layout.positions_page import PositionsPage
from rocketstore.spark import stores
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch
from rocketstore.spark.source.stream_progress import Progress
from tests.corruption.missing_logs import MISSING, unmount
from tests.spark.reading import make_store
from tests.support.small_store import segments


@pytest.fixture
def recovering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A store that this process seems to recover, until the function is called."""
    monkeypatch.setattr(opening, "RECOVERY_S", 0.01)
    with rocketstore.open(tmp_path / "s", commit_log_file_size_bytes=1 << 20) as store:
        store.writer("t").put(b"one")
    lock = syscalls.open(str(tmp_path / "s" / "lock"), os.O_RDWR)
    assert syscalls.lock_first_byte(lock)
    page = PositionsPage.create(tmp_path / "s" / "rocketstore" / "positions")
    page.begin()

    def end() -> None:
        page.end()
        syscalls.close(lock)

    yield end
    page.close()


def rows(root: Path) -> int:
    scans, _ = plan_batch(ReadOptions.parse({"path": str(root)}, stream=False))
    return sum(columns.rows for scan in scans for columns in scan)


def test_a_batch_waits_for_a_recovery(tmp_path: Path, recovering: Callable[[], None]) -> None:
    """An empty answer would be a lie."""
    timer = threading.Timer(0.3, recovering)
    timer.start()
    assert rows(tmp_path / "s") == 1
    timer.join()


def test_a_wait_for_a_recovery_ends(
    tmp_path: Path, recovering: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "RECOVERING_S", 0.3)
    with pytest.raises(SparkFaceError, match=rf"RS_STORE_RECOVERING.*{os.getpid()}"):
        rows(tmp_path / "s")
    recovering()


LOST = r"RS_DATA_LOST\] .*segments of the commit log are missing: .*mount or restore them"


def progress(root: Path, **options: str) -> Progress:
    given = {"path": str(root), "startingOffsets": "earliest", **options}
    return Progress(ReadOptions.parse(given, stream=True))


@pytest.mark.parametrize("lose", MISSING.values(), ids=MISSING)
def test_a_batch_and_a_stream(
    tmp_path: Path, rng: random.Random, lose: Callable[[Path], None]
) -> None:
    root = tmp_path / "s"
    make_store(root, rng)
    before = progress(root)
    start = before.initial()
    end = before.latest(start)
    before.close()
    lose(root)
    for given in ({}, {"topic": "orders"}, {"topic": "orders", "startingOffsets": "latest"}):
        with pytest.raises(SparkFaceError, match=LOST) as caught:
            plan_batch(ReadOptions.parse({"path": str(root), **given}, stream=False))
        assert "(failOnDataLoss=false: go on after it)" in str(caught.value)
        assert "force=True" not in str(caught.value)
    for call in (
        lambda: progress(root).initial(),
        lambda: progress(root).end(),
        lambda: progress(root).latest(start),
        lambda: progress(root).parts(start, end),
    ):
        with pytest.raises(SparkFaceError, match=LOST):
            call()
    lossy = ReadOptions.parse({"path": str(root), "failOnDataLoss": "false"}, stream=False)
    scans, _ = plan_batch(lossy)
    assert sum(chunk.rows for scan in scans for chunk in scan) < 600
    stream = progress(root, failOnDataLoss="false")
    assert stream.latest(stream.initial())
    stream.close()


def test_a_stream_that_has_the_store_open(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    make_store(root, rng)
    stream = progress(root)
    start = stream.latest(stream.initial())
    monkeypatch.setattr("rocketstore.spark.source.stream_progress.REOPEN_S", -1.0)
    back = unmount(root)
    with pytest.raises(SparkFaceError, match=LOST):
        stream.latest(start)
    back()
    assert stream.latest(start) == start


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lose", [unmount, lambda root: segments(root)[-1].unlink()])
def test_a_frame_a_condition_and_jobs(
    spark: Any, tmp_path: Path, rng: random.Random, lose: Callable[[Path], None]
) -> None:
    from rocketstore.spark import jobs, read

    root = tmp_path / "s"
    count = len(make_store(root, rng))
    lose(root)
    frame = spark.read.format("rocketstore").option("path", str(root))
    for call in (
        lambda: frame.load().count(),
        lambda: read(spark, root, where="topic = 'orders'").count(),
        lambda: jobs.stats(spark, root),
        lambda: jobs.audit(spark, root),
        lambda: jobs.export(spark, root, tmp_path / "out"),
    ):
        with pytest.raises(Exception, match=LOST):
            call()
    assert not list(tmp_path.glob("out/**/*.parquet"))
    assert frame.option("failOnDataLoss", "false").load().count() < count
