"""Signal handlers that raise, read or put wherever the main thread is (K-01: nothing hangs, nothing is lost)."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from rocketstore import BackpressureError, ConsumerBusyError, Store, StoreLockedError
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.shutdown import Closing
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.queue_files import QueueFiles
from rocketstore.log.queues.units import UNIT_SIZE
from tests.support.small_store import SEGMENT, dispatched, engine_of, everything, open_small, parts

ENOUGH = 2000
#: The alarms here would take away a limit by SIGALRM.
pytestmark = pytest.mark.timeout(300, method="thread")


class InterruptedHere(Exception):
    pass


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Sets what SIGALRM does."""
    before = signal.getsignal(signal.SIGALRM)

    def react(what: Callable[[], object]) -> None:
        def handler(number: int, frame: FrameType | None) -> None:
            what()

        signal.signal(signal.SIGALRM, handler)

    yield react
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def stop() -> None:
    raise InterruptedHere


def struck(work: Callable[[], object], times: int = ENOUGH) -> int:
    """Does `work` again and again, an alarm in each; how often that ended it.

    The collector rests: it calls back for what earlier tests have left, threads say, and Python ignores an
    exception there and warns."""
    ended = 0
    gc.collect()
    gc.disable()
    try:
        for number in range(times):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 20e-6 + number % 11 * 4e-6)
                    for _ in range(200):
                        work()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except InterruptedHere:
                ended += 1
    finally:
        gc.enable()
    return ended


def in_time(work: Callable[[], object], timeout_s: float = 10) -> bool:
    """Whether another thread gets through `work`."""
    done = threading.Event()

    def run() -> None:
        with contextlib.suppress(BackpressureError):
            work()
            done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return done.is_set()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_small(tmp_path, durability="os") as store:
        store.writer("t").put(b"x")
        yield store


def test_a_handler_that_raises_leaves_no_turn_behind(
    store: Store, alarm: Callable[[Callable[[], object]], None]
) -> None:
    dispatcher = engine_of(store)._dispatcher
    alarm(stop)
    assert struck(lambda: dispatcher.catch_up(store.end_offset)) > 0
    assert in_time(lambda: dispatcher.catch_up(store.end_offset))


def test_a_handler_reads_while_its_thread_dispatches(
    store: Store, alarm: Callable[[Callable[[], object]], None]
) -> None:
    dispatcher = engine_of(store)._dispatcher
    read = []
    alarm(lambda: read.append(dispatcher.catch_up(store.end_offset)))
    struck(lambda: dispatcher.catch_up(store.end_offset))
    assert read
    assert in_time(lambda: dispatcher.catch_up(store.end_offset))


def test_a_consumer_that_is_interrupted_is_free_again(
    store: Store, alarm: Callable[[Callable[[], object]], None]
) -> None:
    """As by Ctrl-C that is caught outside a loop of polls."""
    with store.consumer("t", group="g") as consumer:
        alarm(stop)
        assert struck(lambda: consumer._take(1), 500) > 0
        assert struck(consumer.poll, 500) > 0
        consumer.seek("earliest")
        assert len(consumer.poll()) == 1
        busy: list[ConsumerBusyError] = []

        def use_it() -> None:
            with pytest.raises(ConsumerBusyError, match="give each thread its own") as caught:
                consumer._take(1)
            busy.append(caught.value)

        with consumer._use():
            use_it()
            assert in_time(use_it)
        assert len(busy) == 2
        consumer._take(1)


def test_a_commit_after_one_that_was_interrupted_is_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the consumer has gone back to what it had stored before."""
    store.writer("t").put_batch([b"y", b"z"])
    with store.consumer("t", group="g") as consumer:
        assert consumer.poll(1)
        consumer.commit()
        real = engine_of(store).offsets.commit
        with monkeypatch.context() as patch:
            patch.setattr(
                engine_of(store).offsets, "commit", lambda *a, **named: (real(*a, **named), stop())
            )
            assert consumer.poll(2)
            with pytest.raises(InterruptedHere):
                consumer.commit()
        assert engine_of(store).offsets.get("t", "g") == {0: 3}
        consumer.seek(1, queue_id=0)
        consumer.commit()
        assert engine_of(store).offsets.get("t", "g") == {0: 1}


def test_puts_that_are_interrupted_lose_no_segment(
    tmp_path: Path, alarm: Callable[[Callable[[], object]], None]
) -> None:
    """Each third put needs the next segment."""
    with open_small(tmp_path, durability="os") as store:
        put = store.writer("t").put
        alarm(stop)
        struck(lambda: put(bytes(1500)), 300)
        count = len(everything(dispatched(store), "t"))
        put(b"last")
        assert [bytes(m.body) for m in everything(dispatched(store), "t")][count:] == [b"last"]
    with open_small(tmp_path, "r") as store:
        assert len(everything(store, "t")) == count + 1


def test_a_put_of_a_handler_does_not_wait_for_its_own_thread(
    tmp_path: Path,
    alarm: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_small(tmp_path, durability="os", max_wait_ms=20_000) as store:
        writer = store.writer("t")
        writer.put(bytes(100))
        preallocator = parts(store).commit_log._preallocator
        make = preallocator._create
        tried = threading.Event()

        def slowly(start: int) -> object:
            """The main thread waits for this."""
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            assert tried.wait(20)
            return make(start)

        monkeypatch.setattr(preallocator, "_create", slowly)
        refused: list[BackpressureError] = []

        def put_too() -> None:
            try:
                with pytest.raises(BackpressureError, match="this thread") as caught:
                    writer.put(bytes(3000))
                refused.append(caught.value)
            finally:
                tried.set()

        alarm(put_too)
        monkeypatch.setattr(preallocator, "request", lambda *_, **__: False)  # none is made ahead
        writer.put(bytes(3000))
        assert writer.put(bytes(3000)).physical_offset == SEGMENT
        assert len(refused) == 1


def test_waits_for_a_segment_do_not_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-15."""
    with open_small(tmp_path, durability="os", max_wait_ms=2000) as store:
        writer = store.writer("t")
        writer.put(bytes(100))
        preallocator = parts(store).commit_log._preallocator
        make, gate = preallocator._create, threading.Event()

        def when_let(start: int) -> object:
            assert gate.wait(30)
            return make(start)

        monkeypatch.setattr(preallocator, "_create", when_let)
        writer.put(bytes(3000))
        took: list[float] = []

        def refused() -> None:
            began = time.monotonic()
            with pytest.raises(BackpressureError):
                writer.put(bytes(3000))
            took.append(time.monotonic() - began)

        threads = [threading.Thread(target=refused) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gate.set()
        assert len(took) == 8
        assert max(took) < 10, "one after the other it would be 16 seconds"
        assert writer.put(bytes(3000)).physical_offset == SEGMENT


def test_a_turn_has_a_limit() -> None:
    lock = SignalSafeLock("the files", 50)
    inside = threading.Event()
    leave = threading.Event()

    def hold() -> None:
        with lock() as nested:
            assert not nested
            with lock() as again, lock(wait=False) as mine:
                assert again and mine
            inside.set()
            assert leave.wait(20)

    thread = threading.Thread(target=hold, name="the holder")
    thread.start()
    assert inside.wait(20)
    with pytest.raises(BackpressureError, match="the files: the holder has it for 50 ms"), lock():
        pass
    with lock(wait=False) as mine:
        assert not mine
    leave.set()
    thread.join()
    with lock() as nested:
        assert not nested


def test_a_lock_goes_with_its_passage() -> None:
    """CPython 3.14 serves signals between `__enter__` and the block: a handler that raises there leaves nothing but
    the object, which the frame lets go."""
    lock = SignalSafeLock("the files", 50)
    passage, other = lock(), lock()
    assert (passage.__enter__(), other.__enter__()) == (False, True)
    assert not in_time(lambda: lock().__enter__(), 1)
    del passage
    assert not in_time(lambda: lock().__enter__(), 1)
    other.__exit__(None, None, None)
    other.__exit__(None, None, None)
    del other  # once is enough
    assert in_time(lambda: lock().__enter__(), 1)


def test_a_lock_that_a_handler_must_not_have_again() -> None:
    lock = SignalSafeLock("the files", reentrant=False)
    with lock():
        with (
            pytest.raises(BackpressureError, match="the files: this thread is at it already"),
            lock(),
        ):
            pass
        with lock(wait=False) as mine:
            assert not mine
    with lock(wait=False) as mine:
        assert mine


@pytest.mark.parametrize("end", ["close", "destroy"])
@pytest.mark.parametrize("name", ["a trim or the close", "the next segment"])
def test_a_close_does_not_wait_for_ever_for_a_lock(tmp_path: Path, name: str, end: str) -> None:
    """It says what it waits for. The store stays locked, since the lock's owner may still write."""
    held, leave = threading.Event(), threading.Event()
    store = open_small(tmp_path / "s", durability="os")
    store.writer("t").put(b"x")
    begun = name == "the next segment"
    lock = parts(store).commit_log._rolling if begun else engine_of(store)._exclusive
    lock.limit_ms = 20

    def hold() -> None:
        with lock():
            held.set()
            leave.wait(60)

    thread = threading.Thread(target=hold, name="the holder")
    thread.start()
    assert held.wait(20)
    try:
        for call in (end, "close"):
            with pytest.raises(BackpressureError, match=f"{name}: the holder has it for 20 ms"):
                getattr(store, call)()
        with pytest.raises(StoreLockedError):
            open_small(tmp_path / "s")
    finally:
        leave.set()
        thread.join()
    engine_of(store)._closing, engine_of(store)._guard.over = (
        Closing(),
        False,
    )  # as if it had not begun
    store.close()
    with open_small(tmp_path / "s") as store:
        assert len(everything(store, "t")) == 1


@pytest.mark.parametrize("units", [0, 10], ids=["the first file", "the next file"])
def test_a_file_that_got_its_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: int
) -> None:
    """The next try goes on with it: else nothing would become readable until the store is opened again."""
    (tmp_path / "tmp").mkdir()
    files = QueueFiles(
        tmp_path / "orders", "write", 10 * UNIT_SIZE, tmp_directory=tmp_path / "tmp",
        make_place=lambda path, _: path.mkdir(exist_ok=True),
    )  # fmt: skip
    queue = ConsumeQueue("orders", 0, files, lambda: 0)
    for number in range(units):
        queue.put(number, 100 * number, 100, 0)
    with monkeypatch.context() as patch:
        patch.setattr(MappedFileQueue, "publish", lambda self, file: stop())
        with pytest.raises(InterruptedHere):
            queue.put(units, 100 * units, 100, 0)
    queue.put(units, 100 * units, 100, 7)
    assert queue.unit(units) == (100 * units, 100, 7)
    assert queue.max_offset == units + 1
    assert len(list((tmp_path / "orders").iterdir())) == 1 + (units > 0)
    queue.close()
