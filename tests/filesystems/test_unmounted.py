"""What a killed process had written is believed as long as its file system stays mounted (D-20)."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import shown_in_this_boot
from tests.filesystems.disks import disk
from tests.process.other_process import TOPIC, open_small, other_process
from tests.support.made_store import BODY_AT, write_at
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.proof]

COUNT = 60
#: Never a checkpoint, and nothing synced.
WRITER = f"""
from rocketstore.log.commitlog.checkpointer import Checkpointer
Checkpointer.step = lambda self: 1.0
store = rocketstore.open(path, durability="os", flush_interval_ms=3_600_000, **options)
writer = store.writer(TOPIC)
places = [writer.put(b"x" * 300) for n in range({COUNT})]
say(" ".join(str(place.physical_offset) for place in places) + " %d" % places[-1].end_offset)
told()
"""


def bring_out_of_order(layout: StoreLayout) -> None:
    """On the disk are the page of positions, and of the log what lies after its first two pages."""
    for path, begin in ((layout.positions, 0), (layout.commit_log / f"{0:020d}", 8192)):
        fd = os.open(path, os.O_RDWR)
        with mmap.mmap(fd, 0) as mapped:
            mapped.flush(begin, 4096)
        os.close(fd)


@pytest.mark.parametrize("end", ["stays", "unmounted", "power cut"])
def test_a_fault_in_the_middle(end: str, tmp_path: Path) -> None:
    """In the same boot, with the same inodes: the page of positions says that readers were shown all of it."""
    with disk(tmp_path, "ext4") as made:
        layout = StoreLayout(made.path / "store")
        with other_process(WRITER, layout.root) as writer:
            *starts, log_end = map(int, writer.line().split())
            wait_until(lambda: shown_in_this_boot(layout.positions) == log_end)
            writer.kill()
        if end == "power cut":
            bring_out_of_order(layout)
            made.cut_power()
        else:
            write_at(layout.commit_log / f"{0:020d}", starts[20] + BODY_AT, b"\xee")
        if end != "stays":
            made.remount()
        assert shown_in_this_boot(layout.positions) == log_end
        with open_small(layout.root, durability="os") as store:
            report = store.recovery
            if end == "stays":
                assert [one.start for one in report.damage] == [starts[20]]
                consumer = store.consumer(TOPIC)
                consumer.seek(21, queue_id=0)
                assert len(list(consumer)) == COUNT - 21
            else:
                assert not report.damage
                assert report.cut is not None and report.cut_records > 0
                assert report.end == (starts[20] if end == "unmounted" else 0)
                assert len(list(store.consumer(TOPIC))) == (20 if end == "unmounted" else 0)
