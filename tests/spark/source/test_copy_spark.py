"""A stream reads a copy of another store while it grows: `rocketstore follow`, and Spark."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from tests.replication.cutting_proxy import CuttingProxy
from tests.spark.patience import BUSY
from tests.spark.processes import Program, program
from tests.spark.putting_master import SEGMENT_BYTES
from tests.support.copies import store_is_there
from tests.support.paths import ROOT
from tests.support.ports import free_address
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


CUT = "has another history from"


@contextlib.contextmanager
def following(address: str, copy: Path) -> Iterator[None]:
    """`rocketstore follow`, until the end of the block."""
    words = ("follow", address, copy, "--segment-bytes", SEGMENT_BYTES)
    with open(copy.with_suffix(".log"), "wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "rocketstore", *map(str, words)],
            stdout=log, stderr=log, cwd=ROOT,
        )  # fmt: skip
    try:
        yield
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(60)


def numbers_put(running: Program) -> list[int]:
    """Those that are on the disk of a master."""
    words = running.log.read_text().split("\n")[:-1]
    return [int(word) for word in words if word.isdecimal()]


def last_number(copy: Path) -> int:
    """The last that a copy has: what its master put just before it was killed may not have come."""
    with rocketstore.open(copy, "r") as store:
        *_, last = store.consumer("orders")
        return int(bytes(last.body).split()[0])


class Query:
    """Numbers that a stream gave, in their order, and how old the newest of each batch was."""

    def __init__(self, spark: Any, copy: Path, checkpoint: Path, **options: str) -> None:
        self.numbers: list[int] = []
        self.ages_s: list[float] = []
        frame = spark.readStream.format("rocketstore").options(
            path=str(copy), columns="body", startingOffsets="earliest", **options
        )
        writer = frame.load().writeStream.foreachBatch(self._take)
        self._writer = writer.option("checkpointLocation", str(checkpoint))
        self._query = self._writer.start()

    def _take(self, batch: Any, _: int) -> None:
        rows = [bytes(row.body).split() for row in batch.collect()]
        if rows:
            self.ages_s.append(time.time() - int(rows[-1][1]) / 1e9)
        self.numbers += [int(number) for number, _ in rows]

    @property
    def error(self) -> str:
        """Why it ended. A batch that found no Python in time is run again, and gave nothing yet."""
        found = self._query.exception()
        if found is not None and BUSY in str(found):
            self._query = self._writer.start()
            return ""
        return "" if found is None else str(found)

    def comes_to_the_end_of(self, copy: Path) -> list[int]:
        """All numbers, once the last of them is the last of the copy."""
        found: list[int] = []

        def is_at_the_end() -> bool:
            found[:] = self.numbers
            return bool(self.error) or found[-1:] == [last_number(copy)]

        wait_until(is_at_the_end, lambda: f"{self.error} {found[-1:]} {last_number(copy)}")
        assert not self.error
        return found

    def stop(self) -> None:
        self._query.stop()


def test_a_stream_of_a_copy(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    """Connections that break, and a master that is killed: each number once. A master that was put
    back, and has the copy cut: the stream ends, and says why, then and after the log has grown."""
    master, copy, checkpoint = (tmp_path / name for name in ("master", "copy", "checkpoint"))
    address = free_address()
    with (
        contextlib.ExitStack() as stack,
        CuttingProxy(address, rng, 4, 20_000) as proxy,
        following(proxy.address, copy),
    ):
        first = stack.enter_context(_master(master, address, 0))
        wait_until(lambda: store_is_there(copy))
        query = Query(spark, copy, checkpoint)
        stack.callback(query.stop)
        wait_until(lambda: len(query.ages_s) > 2, lambda: query.error)
        first.kill()
        put = numbers_put(first)[-1]
        shutil.copytree(master, tmp_path / "older")
        second = stack.enter_context(_master(master, address, 100_000))
        wait_until(lambda: proxy.cut == 4 and len(numbers_put(second)) > 300)
        wait_until(lambda: last_number(copy) > 100_000)
        second.kill()
        found = query.comes_to_the_end_of(copy)
        assert found[-1] > 100_000
        expected = [*range(put + 1), *range(100_000, found[-1] + 1)]
        # One more may have been on the disk when its master was killed.
        assert [n for n in found if n != put + 1] == expected
        print(f"ages of the newest row: {[f'{age:.2f}' for age in query.ages_s]} s")
        shutil.rmtree(master)
        shutil.move(tmp_path / "older", master)
        third = stack.enter_context(_master(master, address, 200_000))
        wait_until(lambda: bool(query.error))
        assert "RS_LOG_TRUNCATED" in query.error, query.error
        wait_until(lambda: len(numbers_put(third)) > len(numbers_put(second)))
        again = Query(spark, copy, checkpoint)
        stack.callback(again.stop)
        wait_until(lambda: bool(again.error))
        assert CUT in again.error, again.error
        assert not {n for n in query.numbers + again.numbers if n >= 200_000}
        on = Query(spark, copy, checkpoint, failOnDataLoss="false")
        stack.callback(on.stop)
        wait_until(lambda: last_number(copy) >= 200_000)
        third.kill()
        found = on.comes_to_the_end_of(copy)
        assert [n for n in found if n > put + 1] == [*range(200_000, found[-1] + 1)]


def _master(path: Path, address: str, first: int) -> Any:
    words = (path, address, first)
    return program("tests.spark.putting_master", words, path.with_name(f"{first}.out"))
