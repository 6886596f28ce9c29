"""What a stream of Spark reads of a running RocketMQ, by a copy that `rocketstore follow` keeps; without Spark."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.interop.messages import SMALL
from tests.interop.oracle import Oracle
from tests.interop.test_replication_from_java import java_master, put_part
from tests.support.copies import store_is_there
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java


def test_a_stream_reads_each_message_of_a_master_once(oracle: Oracle, tmp_path: Path) -> None:
    """Also those that come while it reads, and after the copy was killed and began again."""
    copy = tmp_path / "copy"
    with java_master(oracle, tmp_path / "java") as (master, address):
        put_part(master, 0)
        with _following(address, copy):
            wait_until(lambda: store_is_there(copy))
            stream = Progress(ReadOptions.parse(_options(copy), stream=True))
            reading = _Reading(stream)
            put_part(master, 1)
            wait_until(lambda: reading.goes_on() >= 600)
        put_part(master, 2)
        with _following(address, copy):
            wait_until(lambda: reading.goes_on() >= 900)
        stream.close()
    assert [body.rstrip(b".") for body in reading.bodies] == [
        b"%d/%06d" % (part, number) for part in range(3) for number in range(300)
    ]


class _Reading:
    """What micro-batches had, one after the other; offsets go through a checkpoint's JSON."""

    def __init__(self, stream: Progress) -> None:
        self._stream, self._start = stream, stream.initial()
        self.bodies: list[bytes] = []

    def goes_on(self) -> int:
        """Reads what came; how many there are."""
        start = json.loads(json.dumps(self._start))
        end = self._stream.latest(start)
        if end != start:
            scans, _ = self._stream.parts(start, end)
            self.bodies += [bytes(body) for scan in scans for rows in scan for body in rows["body"]]
            self._start = end
        return len(self.bodies)


def _options(copy: Path) -> dict[str, str]:
    return {"path": str(copy), "startingOffsets": "earliest", "columns": "body"}


@contextlib.contextmanager
def _following(address: str, copy: Path) -> Iterator[None]:
    """`rocketstore follow`, which is killed at the end of the block."""
    size = SMALL["mappedFileSizeCommitLog"]
    words = ("follow", address, copy, "--protocol", "rocketmq", "--segment-bytes", size)
    with (
        open(copy.with_suffix(".log"), "ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "rocketstore", *map(str, words)],
            stdout=log, stderr=log, cwd=ROOT,
        ) as child,
    ):  # fmt: skip
        try:
            yield
        finally:
            child.kill()
