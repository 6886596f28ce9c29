"""Checkpoints: written from what is durable, never ahead of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketstore import Store
from rocketstore.log.commitlog import checkpointer
from rocketstore.log.commitlog import flusher as flusher_module
from rocketstore.log.commitlog.checkpoint import OwnCheckpoint
from rocketstore.log.index.store import IndexStore
from tests.support.checkpoints import own_checkpoint, rocketmq_times
from tests.support.copies import copy_if_there
from tests.support.small_store import (
    STILL,
    dispatched,
    engine_of,
    open_small,
    open_still,
    parts,
    until,
)


def own(root: Path) -> OwnCheckpoint:
    found = own_checkpoint(root)
    assert found is not None
    return found


def save(store: Store, *, derived: bool = True) -> None:
    parts(store).checkpointer._note_end()
    parts(store).checkpointer.save(derived=derived)


@pytest.mark.store(**STILL, durability="os")
def test_log_time_follows_the_flush(tmp_path: Path, store: Store) -> None:
    """S000-97 S000-111 S001-55 S001-58 S002-20 S003-42: K-10 K-12: not the append, not the dispatch."""
    first = store.writer("t").put(b"x")
    save(store)
    assert rocketmq_times(tmp_path)[0] == 0
    store.wait_flushed(first.end_offset)
    assert rocketmq_times(tmp_path)[0] == 0  # the file is not written by the flush itself
    save(store)
    assert rocketmq_times(tmp_path)[0] == first.store_timestamp_ms


@pytest.mark.store(**STILL, durability="os")
def test_durable_offset_is_a_record_end_that_is_flushed(tmp_path: Path, store: Store) -> None:
    first = store.writer("t").put(b"x", durability="disk")
    save(store)
    store.writer("t").put(b"y")
    save(store)
    checkpoint = own(tmp_path)
    assert checkpoint.flushed == first.end_offset
    assert checkpoint.last_record_start == first.physical_offset
    assert not checkpoint.clean


@pytest.mark.store(**STILL, durability="os", consume_queue_flush_interval_ms=86_400_000)
def test_queue_and_index_are_synced_before_they_are_named(tmp_path: Path, store: Store) -> None:
    """D-17 D-18: without the sync of derived files their offsets stay."""
    result = store.writer("t").put(b"x", keys="k", durability="disk")
    dispatched(store)
    before = own(tmp_path).dispatched
    save(store, derived=False)
    assert own(tmp_path).dispatched == before
    save(store, derived=True)
    assert own(tmp_path).dispatched == result.end_offset
    assert own(tmp_path).indexed == result.end_offset


@pytest.mark.store(**STILL, durability="os")
def test_dispatched_never_passes_flushed(tmp_path: Path, store: Store) -> None:
    first = store.writer("t").put(b"x", durability="disk")
    save(store)
    store.writer("t").put(b"y")
    dispatched(store)
    save(store)
    assert own(tmp_path).dispatched == first.end_offset


def test_dispatched_is_a_record_end_also_between_two_steps_of_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flushed position may lie within a record then. Dispatching began there after a kill, and never went on."""
    monkeypatch.setattr(flusher_module, "FLUSH_STEP_BYTES", 4096)
    with open_still(tmp_path, "os", index_enabled=True) as store:
        writer = store.writer("t")
        ends = {writer.put(bytes(1000), keys="k").end_offset for _ in range(30)}
        dispatched(store)
        seen: set[tuple[int, ...]] = set()

        def look() -> None:
            save(store)
            found = own(tmp_path)
            seen.add((store.flushed_offset, found.flushed, found.dispatched, found.indexed))

        monkeypatch.setattr(parts(store).live, "check", look)
        parts(store).flusher.flush()
        assert {flushed for flushed, *_ in seen} - ends - {0}
        assert {place for _, *places in seen for place in places} <= ends | {0}


def test_clean_mark_only_after_a_clean_stop(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        assert not own(tmp_path).clean
        end = store.writer("t").put(b"x").end_offset
    assert own(tmp_path).clean
    assert (own(tmp_path).flushed, own(tmp_path).dispatched) == (end, end)
    with open_small(tmp_path):
        assert not own(tmp_path).clean


def test_generations_rise(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        with open_small(tmp_path) as store:
            store.writer("t").put(b"x")
            save(store)
            seen.append(own(tmp_path).generation)
        seen.append(own(tmp_path).generation)
    assert seen == sorted(set(seen))


@pytest.mark.store(**STILL, durability="os")
def test_nothing_new_writes_nothing(tmp_path: Path, store: Store) -> None:
    store.writer("t").put(b"x", durability="disk")
    dispatched(store)
    save(store)
    before = own(tmp_path).generation
    save(store)
    assert own(tmp_path).generation == before


def test_trim_is_noted_first(tmp_path: Path, store: Store) -> None:
    for _ in range(12):
        store.writer("t").put(b"x" * 900)
    dispatched(store)
    begin = store.trim(before_offset=store.end_offset)
    assert own(tmp_path).minimum == begin > 0


def test_a_crash_behind_a_trim_costs_no_new_index(tmp_path: Path) -> None:
    """D-18 D-27: files of the index that the trim removes are not counted any more when they go."""
    with open_still(tmp_path / "live", "os", consume_queue_flush_interval_ms=86_400_000) as store:
        for number in range(200):
            end = store.writer("t").put(b"x" * 100, keys=f"k{number}").end_offset
        store.wait_flushed(end)
        dispatched(store)
        there = len(list((tmp_path / "live" / "index").iterdir()))
        assert store.trim(before_offset=store.end_offset) > 0
        assert len(list((tmp_path / "live" / "index").iterdir())) < there
        shutil.copytree(tmp_path / "live", tmp_path / "crashed", copy_function=copy_if_there)
    with open_small(tmp_path / "crashed") as store:
        assert store.recovery.mode == "unclean"
        assert store.recovery.index_start == store.recovery.dispatch_start == end
        assert [m.keys for m in store.query("t", "k199")] == [("k199",)]


@pytest.mark.store(**STILL, durability="os", consume_queue_flush_interval_ms=86_400_000)
def test_index_files_that_a_recovery_may_drop_are_not_counted(tmp_path: Path, store: Store) -> None:
    """D-18: those whose keys are all of records that are not flushed; without one, two crashes in a row
    would cost the whole index."""
    for number in range(60):
        end = store.writer("t").put(b"x", keys=f"k{number}").end_offset
    store.wait_flushed(end)
    save(store)
    for number in range(60, 80):
        store.writer("t").put(b"x", keys=f"k{number}")
    dispatched(store)
    save(store)
    assert len(list((tmp_path / "index").iterdir())) == 2
    assert (own(tmp_path).indexed, own(tmp_path).index_files) == (end, 1)


def test_slow_syncs_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_still(tmp_path, "os") as store:
        store.writer("t").put(b"x", keys="k", durability="disk")
        save(store)
        assert "sync" not in caplog.text
        monkeypatch.setattr(checkpointer, "SLOW_SYNC_MS", -1)
        store.writer("t").put(b"y", durability="disk")
        save(store)
    for what in ("queue files", "index files", "the checkpoint"):
        assert f"a sync of {what} took" in caplog.text


@pytest.mark.store(**STILL, durability="os", consume_queue_flush_interval_ms=1)
def test_an_idle_round_saves_nothing_until_something_moves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither flushed nor all of it: what is derived is synced as far as it goes."""
    writer, keeper = store.writer("t"), parts(store).checkpointer
    saved: list[bool] = []
    for move in (
        lambda: writer.put(b"x", keys="k"),
        lambda: store.wait_flushed(store.end_offset),
        lambda: writer.put(b"y", durability="disk"),
    ):
        move()
        dispatched(store)
        save(store)
        with monkeypatch.context() as patch:
            patch.setattr(keeper, "_save", lambda derived, *_: saved.append(derived))
            keeper.step()
            assert saved == []
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "_bounds", lambda: ())
        keeper._next_queue_flush = 0.0
        patch.setattr(keeper, "save", lambda *, derived: saved.append(derived))
        keeper.step()
    assert saved == [True]


@pytest.mark.store(**STILL, durability="os")
def test_an_index_that_a_sync_stopped_is_filled_again_at_once(store: Store) -> None:
    """The dispatcher rests in its native loop; the failure ends that."""
    writer, index = store.writer("t"), engine_of(store).index
    assert isinstance(index, IndexStore)
    writer.put(b"x", keys="k")
    dispatched(store)
    index.degrade(OSError("no room for a moment"))
    until(store, lambda: index.short is None)
    writer.put(b"y", keys="k")
    assert [m.body for m in store.query("t", "k")] == [b"y", b"x"]
