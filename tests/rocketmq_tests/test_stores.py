"""A whole store: what is read back, what a restart finds, what is dispatched when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore import CorruptRecordError, DurabilityTimeoutError, PutResult, Store
from tests.support.disk_calls import disk_calls
from tests.support.made_store import write_at
from tests.support.small_store import (
    SEGMENT,
    dispatched,
    everything,
    no_dispatch,
    open_small,
    open_still,
    parts,
)  # fmt: skip


def put(store: Store, count: int) -> list[PutResult]:
    return [store.writer("orders").put(b"%d" % n * 40) for n in range(count)]


def ends(store: Store) -> tuple[int, int]:
    return store.end_offset, store.max_queue_offset("orders", 0)


def damage(root: Path, result: PutResult) -> None:
    """Zeros in the body, as if its page had never been written."""
    name = f"{result.physical_offset // SEGMENT * SEGMENT:020d}"
    write_at(root / "commitlog" / name, result.physical_offset % SEGMENT + 110, bytes(16))


# ---- reading back ----


def test_a_poll_gives_as_many_as_are_asked_for(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        put(store, 32)
        for count in (32, 20, 10):
            with dispatched(store).consumer("orders", queue_id=0) as consumer:
                assert [m.queue_offset for m in consumer.poll(count)] == list(range(count))


def test_the_store_time_of_a_queue_offset_is_that_of_its_put(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        results = put(store, 20)
        found = {m.queue_offset: m.store_timestamp_ms for m in everything(dispatched(store))}
    assert found == {r.queue_offset: r.store_timestamp_ms for r in results}


def test_first_and_last_message_are_found_by_their_physical_offsets(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        results = put(store, 10)
        for number in (0, 9):
            message = store.get(results[number].physical_offset)
            assert (message.body, message.size) == (b"%d" % number * 40, results[number].size)


# ---- dispatch ----


def test_the_maximum_counts_what_is_dispatched(tmp_path: Path) -> None:
    """A put takes its queue offset in the log; readers see the queue grow when its unit is there."""
    with open_small(tmp_path) as store:
        assert store.max_queue_offset("orders", 0) == 0
        put(store, 3)
        assert dispatched(store).max_queue_offset("orders", 0) == 3
        with no_dispatch(store):
            assert [r.queue_offset for r in put(store, 2)] == [3, 4]
            assert store.max_queue_offset("orders", 0) == 3
        assert dispatched(store).max_queue_offset("orders", 0) == 5


def test_without_a_flush_an_os_store_dispatches_and_a_disk_store_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-09: what readers of a disk store see survives a power cut."""
    for durability, seen in (("os", 10), ("disk", 0)):
        gate = threading.Event()
        with open_still(tmp_path / durability, durability) as store:
            flusher = parts(store).flusher
            real: Callable[[], None] = flusher.flush

            def hang(gate: threading.Event = gate, real: Callable[[], None] = real) -> None:
                assert gate.wait(20)
                real()

            monkeypatch.setattr(flusher, "flush", hang)
            for _ in range(10):
                store.writer("orders", durability="memory").put(b"x" * 60)
            dispatched(store)
            assert store.flushed_offset == 0 < store.end_offset
            assert store.max_queue_offset("orders", 0) == seen
            assert len(everything(store)) == seen
            gate.set()


# ---- waiting for the disk ----


def test_every_wait_that_is_too_long_says_so_and_no_message_is_lost(tmp_path: Path) -> None:
    gate = threading.Event()
    with disk_calls() as calls, open_small(tmp_path, commit_log_file_size_bytes=1 << 16) as store:
        calls.hold(lambda: gate.wait(20))
        writer = store.writer("orders")
        tickets = [writer.submit(b"%d" % n) for n in range(100)]
        for ticket in tickets:
            with pytest.raises(DurabilityTimeoutError):
                ticket.result(timeout_s=0.0)
        gate.set()
        assert [t.result(timeout_s=20).queue_offset for t in tickets] == list(range(100))
        assert all(t.done() for t in tickets)


# ---- restart ----


def test_a_restart_finds_both_ends_where_they_were(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        put(store, 100)
        before = ends(dispatched(store))
    for _ in range(2):
        with open_small(tmp_path) as store:
            assert ends(store) == before
    with open_small(tmp_path) as store:
        assert [r.queue_offset for r in put(store, 100)] == list(range(100, 200))
    with open_small(tmp_path) as store:
        bodies = [m.body for m in everything(store)]
    assert bodies == [b"%d" % (n % 100) * 40 for n in range(200)]


@pytest.mark.parametrize("abort", [False, True])
def test_a_last_record_that_is_bad_is_cut_off_and_kept_aside(tmp_path: Path, abort: bool) -> None:
    """Both ends are those in front of it, as in RocketMQ; D-21: its bytes are in quarantine."""
    with open_small(tmp_path) as store:
        *_, before, last = put(store, 30)
        dispatched(store)
    damage(tmp_path, last)
    if abort:
        (tmp_path / "abort").touch()
    with open_small(tmp_path) as store:
        assert ends(store) == (before.end_offset, 29)
        assert [m.queue_offset for m in everything(store)] == list(range(29))
        assert store.recovery.cut == (last.physical_offset, last.end_offset)
        assert store.recovery.quarantine
        assert store.recovery.lost, "it was durable"
        assert f"gone: [{last.physical_offset}, {last.end_offset})" in str(store.recovery)
        assert [r.queue_offset for r in put(store, 100)] == list(range(29, 129))
        assert len(everything(dispatched(store))) == 129


@pytest.mark.parametrize("abort", [False, True])
def test_a_bad_record_in_front_of_good_ones_costs_that_message_alone(
    tmp_path: Path, abort: bool
) -> None:
    """K-16 D-20: RocketMQ gives up all that lies behind it."""
    with open_small(tmp_path) as store:
        results = put(store, 30)
        before = ends(dispatched(store))
    bad = results[25]
    damage(tmp_path, bad)
    if abort:
        (tmp_path / "abort").touch()
    with open_small(tmp_path) as store:
        assert ends(store) == before
        assert [d.start for d in store.recovery.damage] == [bad.physical_offset]
        for number, result in enumerate(results):
            if result is not bad:
                assert store.get(result.physical_offset).queue_offset == number
        with pytest.raises(CorruptRecordError):
            store.get(bad.physical_offset)
        assert store.writer("orders").put(b"next").queue_offset == 30


def test_a_stop_that_leaves_something_undispatched_is_not_clean(tmp_path: Path) -> None:
    """K-37: `abort` stays, and the next open does what is missing."""
    store = open_small(tmp_path)
    put(store, 5)
    with no_dispatch(store):
        put(store, 5)
        store.close()
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "unclean"
        assert store.max_queue_offset("orders", 0) == 10
        assert len(everything(store)) == 10
    assert not (tmp_path / "abort").exists()


def test_files_of_others_in_any_directory_hinder_nothing(tmp_path: Path) -> None:
    """K-44: in the log, in a queue and beside it; none of them is touched."""
    with open_small(tmp_path) as store:
        put(store, 30)
    aliens = []
    for directory in ("commitlog", "consumequeue/orders/0", "consumequeue/orders", "consumequeue"):
        for number in range(3):
            aliens.append(tmp_path / directory / f"other{number}.dat")
            aliens[-1].write_bytes(b"")
    for mode in ("rw", "r"):
        with open_small(tmp_path, mode) as store:
            assert len(everything(store)) == 30
            assert store.topics() == ["orders"]
            assert store.queues("orders") == [0]
    assert all(path.exists() for path in aliens)
