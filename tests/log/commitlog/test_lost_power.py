"""What the crash model (tests/power_loss) found, each as small as it can be told."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from rocketstore import Store
from rocketstore._native.dispatch.dispatch_loop import DispatchLoop
from rocketstore.engine.engine import CloseMode
from rocketstore.log.commitlog.checkpointer import Checkpointer
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.mapped_files import mapped_file_queue, second_names
from rocketstore.log.mapped_files.second_names import SecondNames
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.queue_files import QueueFiles
from rocketstore.log.queues.units import UNIT_SIZE
from tests.support.log_store import SEGMENT, LogBuilder, durable_at, load_log, recover_store
from tests.support.small_store import dispatched, engine_of, everything, open_small, parts, watched


def leave(store: Store) -> None:
    """As a process that dies leaves it."""
    engine_of(store)._close(CloseMode(clean=False))


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said to be durable by itself."""
    monkeypatch.setattr(Checkpointer, "step", lambda self: None)


@pytest.mark.usefixtures("unsaved")
def test_units_that_a_dead_run_left_in_the_page_cache_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-18: they stand there already, so nothing has to be written; on disk they need not be."""
    store = open_small(tmp_path)
    store.writer("orders").put_batch([b"x"] * 3)
    dispatched(store)
    leave(store)
    synced = []
    real = ConsumeQueueStore.sync

    def sync(self: ConsumeQueueStore, dirty: Iterable[tuple[str, int, int, int]]) -> bool:
        synced.extend(ranges := list(dirty))
        return real(self, ranges)

    monkeypatch.setattr(ConsumeQueueStore, "sync", sync)
    with open_small(tmp_path) as store:
        parts(store).checkpointer.save(derived=True)
        assert synced == [("orders", 0, 0, 3)]


def test_pre_blanks_are_synced_with_the_unit_behind_them() -> None:
    """D-18: a gap in a queue is filled beside the loop that counts what is to be synced."""
    loop = DispatchLoop((), multi_dispatch=False, report_arrivals=False)
    loop.add_queue(b"orders", 0, 3)
    loop.set_next(b"orders", 0, 9)
    assert loop.take_dirty() == [(b"orders", 0, 3, 9)]


def test_units_that_are_missing_at_the_end_of_a_file_end_the_queue(tmp_path: Path) -> None:
    """D-17: the next file has its name already. What is put next takes their numbers."""

    def queue() -> ConsumeQueue:
        files = QueueFiles(
            tmp_path / "orders",
            "write",
            4 * UNIT_SIZE,
            tmp_directory=tmp_path,
            make_place=lambda path, _: path.mkdir(exist_ok=True),
        )
        return ConsumeQueue("orders", 0, files, lambda: 0)

    before = queue()
    for number in range(5):
        before.put(number, 100 * number, 100, 0)
    before.close()
    first = tmp_path / "orders" / segment_name(0)
    first.write_bytes(first.read_bytes()[: 3 * UNIT_SIZE] + bytes(UNIT_SIZE))
    after = queue()
    after.truncate_from(300)
    assert after.max_offset == 3
    after.close()


@pytest.mark.usefixtures("unsaved")
def test_an_index_that_was_never_synced_is_not_believed(tmp_path: Path) -> None:
    """D-17: pages of a later file may have come to the disk before those of an earlier one."""
    store = open_small(tmp_path / "s", index_entries=8)
    writer = store.writer("orders")
    for number in range(12):
        writer.put(b"x", keys=f"k{number}")
        if number == 3:
            dispatched(store)
            shutil.copytree(tmp_path / "s" / "index", tmp_path / "index")
    dispatched(store)
    parts(store).checkpointer.save(derived=False)
    leave(store)
    shutil.copytree(tmp_path / "index", tmp_path / "s" / "index", dirs_exist_ok=True)
    with open_small(tmp_path / "s", index_entries=8) as store:
        assert [len(store.query("orders", f"k{number}")) for number in range(12)] == [1] * 12


@pytest.mark.usefixtures("unsaved")
@pytest.mark.parametrize("clean", [True, False])
def test_keys_of_runs_without_the_index_are_found_later(tmp_path: Path, clean: bool) -> None:
    """D-17: such a run says nothing of the index."""
    for index_enabled in (True, False, False, False):
        store = open_small(tmp_path, index_enabled=index_enabled)
        store.writer("orders").put(b"x", keys="k")
        store.close() if clean else leave(store)
    with open_small(tmp_path) as store:
        assert len(store.query("orders", "k")) == len(everything(store)) == 4


def test_second_names_are_gone_for_good_before_recovery_removes_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-22: one whose removal the disk never got would bring the segment back."""
    layout = StoreLayout(tmp_path / "s")
    make_directories(layout)
    for directory in (layout.commit_log, layout.live):
        (directory / segment_name(0)).write_bytes(bytes(4096))
    calls = watched(monkeypatch, second_names)
    SecondNames(layout).restore()
    assert calls.made == ["unlink", "sync_directory"]


def test_each_removal_at_the_end_is_durable_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-22: last to first on the disk, too: what is left is never a log with a gap."""
    layout = LogBuilder().fill(60).write(tmp_path / "s")
    log = load_log(layout)
    calls = watched(monkeypatch, mapped_file_queue)
    log.remove_from(2 * SEGMENT)
    assert calls.made == ["unlink", "sync_directory"] * 2
    log.close()


def test_segments_below_the_minimum_may_be_gone_in_any_order(tmp_path: Path) -> None:
    """D-27: retention was interrupted, and the disk had taken the second removal only."""
    builder = LogBuilder().fill(60)
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60, minimum=2 * SEGMENT, clean=True)
    (layout.commit_log / segment_name(SEGMENT)).unlink()
    report = recover_store(layout, clean=True)
    assert (report.mode, report.begin) == ("clean", 2 * SEGMENT)
    assert not (layout.commit_log / segment_name(0)).exists()
