"""An open does not wait for the delivery of delayed messages, and does not fail because of it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Retention, StoreBehindError, StoreClosedError
from rocketstore.api import open as api_open
from rocketstore.engine import writing_engine
from rocketstore.log.dispatch import dispatcher
from rocketstore.log.queues import queue_files
from rocketstore.services.delay import copies, service
from rocketstore.services.retention import service as retention_service
from rocketstore.testing import ManualClock
from tests.services.delay_tools import TOPIC, bodies, crash, file_of
from tests.support.disk_calls import Blocks
from tests.support.retention_tools import ALL, fill
from tests.support.small_store import engine_of, open_small
from tests.support.striking import at_each_line
from tests.support.waiting import wait_until


def workers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("rocketstore-")]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocks]:
    made = Blocks()
    monkeypatch.setattr(dispatcher, "RETRY_S", 0.02)
    monkeypatch.setattr(service, "AFTER_ERROR_S", 0.02)
    monkeypatch.setattr(queue_files, "allocate_blocks", made.allocate)
    yield made
    made.full = False


@pytest.mark.parametrize("other_level", [False, True])
def test_an_open_of_a_store_whose_dispatch_stands(
    tmp_path: Path, clock: ManualClock, disk: Blocks, other_level: bool
) -> None:
    """Messages that wait are in the log alone; also where another level has its queue."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        writer = store.writer("orders")
        writer.put(b"now")
        if other_level:
            writer.put(b"other", delay_level=2)
        assert bodies(store) == [b"now"]
        disk.full = True
        writer.put(b"later", delay_level=1)
        store.flush()
        wait_until(lambda: bool(store.flags.behind))
        copy = crash(path, tmp_path / "copy")
        disk.full = False
    clock.advance(5)
    disk.full = True
    with open_small(copy, clock=clock) as store:
        assert [part for part, _ in store.flags.behind] == ["consume queues"]
        wait_until(lambda: isinstance(store.delayed.error, StoreBehindError))
        assert "dispatch stands" in str(store.delayed.error)
        assert repr(store.delayed).startswith("Delayed(")
        assert workers().count("rocketstore-delays") == 1
    assert workers() == []
    with open_small(copy, clock=clock) as store:
        wait_until(lambda: store.delayed.error is not None)
        disk.full = False
        expected = sorted([b"now", b"later", *([b"other"] if other_level else [])])
        wait_until(lambda: sorted(bodies(store)) == expected)
        wait_until(lambda: store.delayed.error is None)
        wait_until(lambda: len(store.delayed) == 0)
    assert workers() == []


def test_what_was_delivered_before_dispatch_stood_comes_once(
    tmp_path: Path, clock: ManualClock, disk: Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source and its copy are in the log alone. The queue comes with the first look at others:
    the start waits for all of them, so that it finds the copies of each."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        for level in (2, 1):
            store.writer("orders").put(b"%d" % level, delay_level=level)
        clock.advance(5)
        wait_until(lambda: sorted(bodies(store)) == [b"1", b"2"])
        store.flush()
        copy = crash(path, tmp_path / "copy")
    file_of(copy).unlink(missing_ok=True)
    for queue in (copy / "consumequeue" / TOPIC).iterdir():
        for file in queue.iterdir():
            file.unlink()
        queue.rmdir()
    disk.full = True
    with open_small(copy, clock=clock, check_queues=True) as store:
        wait_until(lambda: store.delayed.error is not None)
        disk.full = False
        wait_until(lambda: store.delayed.error is None and len(store.delayed) == 0)
        assert sorted(bodies(store)) == [b"1", b"2"]


def test_a_retention_goes_on_where_dispatch_stands(
    tmp_path: Path, clock: ManualClock, disk: Blocks
) -> None:
    with fill(open_small(tmp_path, clock=clock)) as store:
        waits = store.writer("late").put(b"late", delay_level=5)
        fill(store)
        store.flush()
        wait_until(lambda: store.dispatched_offset == store.visible_offset)
        disk.full = True
        store.writer("new").put(b"hidden")
        wait_until(lambda: bool(store.flags.behind))
        found = store.retention.run(ALL)
        assert 0 < found.new_begin_offset <= waits.physical_offset
        disk.full = False


def test_offsets_that_cannot_be_read(tmp_path: Path, clock: ManualClock) -> None:
    """The open works, delivery waits and says so, and retention keeps all; then it goes on."""
    with fill(open_small(tmp_path, clock=clock)) as store:
        store.writer("waits").put(b"x", delay_level=1)
        fill(store)
    file = file_of(tmp_path)
    file.unlink()
    file.symlink_to("nowhere")
    clock.advance(1)
    with open_small(tmp_path, clock=clock) as store:
        store.flush()
        wait_until(lambda: isinstance(store.delayed.error, OSError))
        assert store.retention.run(ALL).new_begin_offset == 0
        assert bodies(store, "waits") == []
    assert workers() == []
    file.unlink()
    with open_small(tmp_path, clock=clock) as store:
        wait_until(lambda: bodies(store, "waits") == [b"x"])


def test_a_delivery_without_a_thread_left(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open and the put that stores a message work, and what waits is delivered once there is a
    thread."""
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"0", delay_level=1)
    monkeypatch.setattr(service, "AFTER_ERROR_S", 0.0)
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "rocketstore-delays":
            raise RuntimeError("can't start new thread")
        real(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with open_small(tmp_path, clock=clock) as store:
            assert "no thread for rocketstore-delays" in str(store.delayed.error)
            store.writer("orders").put(b"1", delay_level=1)
            assert len(store.delayed) == 2
        assert workers() == []
        store = open_small(tmp_path, clock=clock)
    with store:
        store.writer("orders").put(b"2", delay_level=1)
        clock.advance(1)
        wait_until(lambda: bodies(store) == [b"0", b"1", b"2"])
        wait_until(lambda: store.delayed.error is None)


def test_an_open_that_fails_after_delivery_began(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another service cannot begin: no thread and no lock is left."""
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"x", delay_level=1)

    def fail(*_: object) -> None:
        assert "rocketstore-delays" in workers()
        raise OSError(errno.EAGAIN, "no thread for rocketstore-retention")

    monkeypatch.setattr(retention_service, "keep_by", fail)
    with pytest.raises(OSError, match="no thread for rocketstore-retention"):
        open_small(tmp_path, clock=clock, retention=Retention(max_bytes=1 << 20))
    assert workers() == []
    open_small(tmp_path, clock=clock).close()


def test_a_start_of_delivery_that_fails_ends_the_open(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expects: it is raised, and nothing is left."""
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"x", delay_level=1)
    with monkeypatch.context() as patch:
        patch.setattr(service.DelayService, "start", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            open_small(tmp_path, clock=clock)
    assert workers() == []
    open_small(tmp_path, clock=clock).close()


# A strike inside of `Store.__del__`, which asks the engine whether it is closed, is no one's to catch.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("module", [api_open, service, writing_engine], ids=lambda m: m.__name__)
def test_ctrl_c_at_any_line_of_an_open_with_delayed_messages(
    tmp_path: Path, clock: ManualClock, module: Any
) -> None:
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"x", delay_level=1)

    def ctrl_c() -> None:
        raise KeyboardInterrupt

    def work() -> None:
        store = None
        try:
            store = open_small(tmp_path, clock=clock)
            store.close()
        except KeyboardInterrupt:
            if store is not None:
                store.close()
            assert workers() == []

    assert at_each_line(module, work, ctrl_c) > 10
    clock.advance(1)
    with open_small(tmp_path, clock=clock) as store:
        wait_until(lambda: bodies(store) == [b"x"])


def test_a_close_does_not_wait_for_a_long_look_at_the_log(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the offsets are lost, the start reads the log; a close ends that at once."""
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"x", delay_level=1)
    looking, found, records = threading.Event(), copies.copies_in, list[int]()

    def for_ever(source: Any, begin: int, end: int, go_on: Any) -> Any:
        looking.set()
        while True:
            records.append(len(found(source, begin, end, go_on)._ours))

    file_of(tmp_path).unlink()
    monkeypatch.setattr(copies, "copies_in", for_ever)
    with open_small(tmp_path, clock=clock):
        assert looking.wait(60)
    assert workers() == []
    monkeypatch.undo()
    clock.advance(1)
    with open_small(tmp_path, clock=clock) as store:
        wait_until(lambda: bodies(store) == [b"x"])


def test_a_put_while_the_store_closes(tmp_path: Path, clock: ManualClock) -> None:
    """Its message is stored, so the put does not fail because delivery does not begin any more."""
    with open_small(tmp_path, clock=clock) as store:
        engine_of(store).guests.stop()
        with pytest.raises(StoreClosedError):
            service.deliver_in(engine_of(store))
        store.writer("orders").put(b"x", delay_level=1)
    clock.advance(1)
    with open_small(tmp_path, clock=clock) as store:
        wait_until(lambda: bodies(store) == [b"x"])


def test_an_open_says_what_waits(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was to look only learns how to leave it."""
    caplog.set_level("INFO", "rocketstore")
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"x", delay_level=1)
        store.writer("orders").put(b"y", delay_level=2)
    opens: list[tuple[dict[str, Any], bool]] = [({"deliver_delayed": False}, False), ({}, True)]
    for options, says in opens:
        caplog.clear()
        with open_small(tmp_path, "r+", clock=clock, **options) as store:
            if says:
                wait_until(lambda: "2 delayed messages wait" in caplog.text)
        assert ("delayed messages" in caplog.text) == says
