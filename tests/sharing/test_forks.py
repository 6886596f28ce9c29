"""Forked, spawned and pooled processes: each child is a guest of its own, and a parent's store is closed in it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Store, StoreClosedError
from tests.process.other_process import SMALL, OtherProcess, other_process
from tests.sharing.conftest import Guests
from tests.sharing.hosts import host_pid
from tests.sharing.workers import begin_worker, open_and_put, put_one
from tests.support.forking import fork, in_child
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(120, method="thread"),
]
START_METHODS = ("fork", "spawn", "forkserver")


def bodies(store: Store) -> list[int]:
    return sorted(int(message.body) for message in store.consumer("orders"))


@pytest.fixture(params=["host", "guest"])
def parent(request: pytest.FixtureRequest, root: Path, guests: Guests) -> Store:
    """The store of the process that forks: a host, or a guest of another process."""
    if request.param == "guest":
        request.getfixturevalue("host")
        return guests()
    return guests("host")


def test_the_store_of_a_parent_is_closed_in_its_child(parent: Store) -> None:
    """Failure 10: each call says so at once; none waits, and none seems to work."""
    writer = parent.writer("orders")
    put = writer.put(b"0")
    consumer = parent.consumer("orders", group="g")
    consumer.poll(1)
    transaction = parent.transaction()
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: writer.put(b"x"),
        "put os": lambda: writer.put(b"x", durability="os"),
        "unique": lambda: writer.put(b"x", unique_id="x"),
        "put_batch": lambda: writer.put_batch([b"x"]),
        "submit": lambda: writer.submit(b"x"),
        "put_message": lambda: parent.put_message("orders", b"x"),
        "many": lambda: parent.put_batch([rocketstore.NewMessage("orders", b"x")]),
        "writer": lambda: parent.writer("orders"),
        "flush": parent.flush,
        "wait_flushed": lambda: parent.wait_flushed(put.end_offset),
        "consumer": lambda: parent.consumer("orders"),
        "poll": lambda: consumer.poll(timeout_s=5),
        "commit": consumer.commit,
        "transaction": parent.transaction,
        "tx.put": lambda: transaction.put("orders", b"x"),
        "trim": lambda: parent.trim(before_offset=0),
        "get": lambda: parent.get(put.physical_offset),
        "configure": lambda: parent.configure(flush_interval_ms=10),
        "stats": parent.stats,
    }

    def check() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # a child that hangs ends
        assert parent.closed
        wrong = []
        for name, call in calls.items():
            try:
                call()
            except StoreClosedError:
                continue
            except BaseException as error:
                wrong.append(f"{name}: {error!r}")
            else:
                wrong.append(f"{name}: no error")
        assert wrong == []
        parent.close()

    assert in_child(check) == 0
    assert writer.put(b"1").queue_offset == 1
    consumer.commit()
    transaction.put("orders", b"2")
    transaction.commit()
    assert bodies(parent) == [0, 1, 2]


def test_a_child_is_a_guest_of_its_own(parent: Store, root: Path) -> None:
    parent.writer("orders").put(b"0")

    def work() -> None:
        assert open_and_put(str(root), 1, 3) == [1, 2, 3]

    for _ in range(2):
        host = host_pid(root)
        assert in_child(work if len(bodies(parent)) == 1 else lambda: None) == 0
        assert host_pid(root) == host
    assert parent.writer("orders").put(b"4").queue_offset == 4
    assert bodies(parent) == [0, 1, 2, 3, 4]


def test_children_that_leave_at_once_take_nothing_with_them(parent: Store, root: Path) -> None:
    """With os._exit, and by a kill in the middle of their own puts."""
    writer = parent.writer("orders")
    host = host_pid(root)
    for n in range(5):
        assert in_child(lambda: os._exit(0)) == 0
        writer.put(b"%d" % n)

    def put_and_die() -> None:
        own = rocketstore.open(root, shared=True, **SMALL)
        own.writer("others").put(b"")
        os.kill(os.getpid(), signal.SIGKILL)

    for n in range(5, 8):
        assert in_child(put_and_die) == -signal.SIGKILL
        writer.put(b"%d" % n)
    assert host_pid(root) == host
    assert bodies(parent) == list(range(8))
    assert len(list(parent.consumer("others"))) == 3


#: Opens, has a group, forks a child that lives until its parent's standard input ends, says the child's pid.
FORKS = """
import signal
import threading
store = rocketstore.open(path, **options)
store.writer("orders").put(b"0")
consumer = store.consumer("orders", group="g")
child = os.fork()
if child == 0:
    signal.pause()
say(str(child))
told()
"""


@pytest.mark.parametrize("shared", ["host", "guest"])
def test_a_child_does_not_hide_the_death_of_its_parent(
    root: Path, guests: Guests, shared: str
) -> None:
    """It keeps neither the lock of a host nor the connection of a guest."""
    with contextlib.ExitStack() as stack:
        if shared == "guest":
            host = stack.enter_context(
                other_process("store = rocketstore.open(path, **options)\nsay('open')\ntold()",
                              root, shared="host")
            )  # fmt: skip
            assert host.line() == "open"
        forks = stack.enter_context(other_process(FORKS, root, shared=shared))
        child = int(forks.line())
        try:
            other = guests(True)
            with pytest.raises(rocketstore.GroupClaimedError):
                other.consumer("orders", group="g")
            forks.kill()
            assert other.writer("orders").put(b"1").queue_offset == 1

            def is_free() -> bool:
                with contextlib.suppress(rocketstore.GroupClaimedError):
                    other.consumer("orders", group="g").close()
                    return True
                return False

            wait_until(is_free)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("method", START_METHODS)
def test_processes_of_multiprocessing(root: Path, guests: Guests, method: str) -> None:
    """Beside a parent that is the host, each opens the store, and its messages keep their order."""
    with_parent = guests(True)
    context = multiprocessing.get_context(method)
    with context.Pool(3) as pool:
        given = [(str(root), 10 * n, 10) for n in range(4)]
        places = pool.starmap(open_and_put, given)
    assert sorted(place for own in places for place in own) == list(range(40))
    assert all(own == sorted(own) for own in places)
    assert bodies(with_parent) == list(range(40))


@pytest.mark.parametrize("method", START_METHODS)
def test_a_pool_whose_workers_are_killed(
    host: OtherProcess, root: Path, guests: Guests, method: str
) -> None:
    """Each worker opens the store once; a kill of some breaks their pool, and nothing else."""
    context = multiprocessing.get_context(method)
    put: set[int] = set()
    for life in range(2):
        with ProcessPoolExecutor(
            2, mp_context=context, initializer=begin_worker, initargs=(str(root),)
        ) as pool:
            numbers = range(100 * life, 100 * life + 20)
            list(pool.map(put_one, [b"%d" % n for n in numbers]))
            put |= {*numbers}
            if life == 0:
                for process in multiprocessing.active_children():
                    process.kill()
                with pytest.raises(BrokenProcessPool):
                    pool.submit(put_one, b"99").result()
    assert set(bodies(guests())) - {99} == put


def test_a_fork_while_the_parent_puts(parent: Store) -> None:
    """The child is forked from a thread beside others that are within a put."""
    end = threading.Event()
    counts = [0, 0]

    def put_on(number: int) -> None:
        writer = parent.writer("orders", queue_id=number)
        while not end.is_set():
            put = writer.put(b"0", durability=("os", "disk")[number])
            assert put.queue_offset == counts[number]
            counts[number] += 1

    def went_on(before: list[int]) -> bool:
        return all(n > m for n, m in zip(counts, before, strict=True))

    threads = [threading.Thread(target=put_on, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            before = list(counts)
            child = fork()
            if child == 0:
                try:
                    os._exit(0 if parent.closed else 1)
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            wait_until(partial(went_on, before))
    finally:
        end.set()
        for thread in threads:
            thread.join()
    for number in range(2):
        assert parent.max_queue_offset("orders", number) == counts[number]
