"""What is no row: records that no consumer is given, and what a read says it leaves out or has no use for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import rocketstore
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from rocketstore.tools import repair
from tests.spark.reading import everything, make_store, rows_of
from tests.spark.source.test_source import numbers, read_all, warnings

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12


def make_transactions(root: Path) -> None:
    """Two of each kind, and plain ones around."""
    with rocketstore.open(root, durability="os") as store:
        for number in range(2):
            store.writer("t", queue_id=0).put(b"plain-%d" % number)
            for kind in (PREPARED, ROLLED_BACK, COMMITTED):
                store.put_message("t", b"%d-%d" % (kind, number), sys_flag=kind)
        store.put_message("hidden", b"x", sys_flag=PREPARED)


def rows(root: Path, **options: str) -> list[dict[str, Any]]:
    from rocketstore.spark.source.plan import plan_batch, read

    chosen = ReadOptions.parse({"path": str(root), **options}, stream=False)
    scans, bounds = plan_batch(chosen)
    batches = [batch for scan in scans for batch in read(scan, chosen, bounds)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": "queue_offset,body"},
        {"decompress": "false"},
        {"startingOffsets": '{"t": {"0": 0}}'},
        {"conditions": '[["queue_offset", ">=", [0]]]'},
    ],
    ids=["all", "columns", "as-stored", "bounds", "conditions"],
)
def test_rows_are_what_a_consumer_is_given(tmp_path: Path, options: dict[str, str]) -> None:
    make_transactions(tmp_path)
    wanted = [b"plain-0", b"8-0", b"plain-1", b"8-1"]
    found = rows(tmp_path, **options)
    assert [(row["queue_offset"], row["body"]) for row in found] == list(enumerate(wanted))
    assert [m.body for m in everything(tmp_path)] == wanted


def test_what_a_repair_put_in_the_place_of_damage(tmp_path: Path, rng: random.Random) -> None:
    from tests.spark.jobs.test_export import read, write

    root, target = tmp_path / "s", tmp_path / "out"
    messages = make_store(root, rng)
    damaged = messages.pop(300)
    segment = sorted((root / "commitlog").iterdir())[damaged.physical_offset >> 16]
    content = bytearray(segment.read_bytes())
    content[damaged.physical_offset % (64 * 1024) + 92] ^= 0xFF
    segment.write_bytes(content)
    assert repair(root).units == 1
    assert [row["physical_offset"] for row in rows(root)] == [m.physical_offset for m in messages]
    assert {row[1] for row in write(root, target, 1 << 30)} == {"orders", "events"}
    assert read(target) == rows_of(messages)


def test_jobs_count_messages(tmp_path: Path) -> None:
    from rocketstore.spark.jobs.stats import merge_stats, stats_part, stats_scans
    from tests.spark.jobs.test_export import write

    root = tmp_path / "s"
    make_transactions(root)
    found = merge_stats(row for scan in stats_scans(root, 1 << 30) for row in stats_part(scan))
    assert [(row[0], row[1], row[3], *row[-2:]) for row in found] == [("t", 0, 4, 0, 3)]
    written = write(root, tmp_path / "out", 1 << 30)
    assert [(row[1], row[3]) for row in written] == [("t", 4)]


def test_offsets_of_a_group_come_from_messages(tmp_path: Path) -> None:
    """Old releases of RocketMQ gave prepared records numbers that are no queue offsets."""
    with rocketstore.open(tmp_path, durability="os") as store:
        store.writer("t", queue_id=0).put(b"x")
        store.put_message("hidden", b"x", sys_flag=PREPARED)
    stream = Progress(ReadOptions.parse({"path": str(tmp_path)}, stream=True))
    assert stream.queue_offsets(stream.end()) == {"t": {0: 1}}
    stream.close()


def test_a_long_list_of_damage_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    from rocketstore.log.read.column_reader import ScanReport
    from rocketstore.scanning.scan import Scan
    from rocketstore.spark.source.plan import left_out_logged

    report = ScanReport()
    for start in range(0, 240, 20):
        report.lose(start, start + 10, "body CRC")
    scan = mock.Mock(spec=Scan, path="s", begin_offset=0, end_offset=240, on_damage="skip")
    scan.report = report
    with left_out_logged(scan):
        pass
    assert caplog.messages[0].endswith("[180, 190) body CRC; 2 more")


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_of_a_topic_that_is_not_read_are_told(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    """They were ignored in silence: a mistyped topic read another one's whole backlog."""
    root = tmp_path / "s"
    make_store(root, rng, 60)
    wanted = numbers(read_all(root, topic="orders"))
    assert warnings(caplog) == []
    offsets = {option: '{"events": {"0": 1}}'}
    assert numbers(read_all(root, topic="orders", **offsets)) == wanted
    [told] = warnings(caplog)
    assert told.startswith(f"{option} names topic 'events', which is not among those")
    assert numbers(read_all(root, topicPattern=".*", **offsets)) != wanted
    assert len(warnings(caplog)) == 1
