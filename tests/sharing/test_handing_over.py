"""A host that closes in order gives the locked descriptor to a guest: nobody else gets the store in between."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import StoreLockedError
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing import host as host_module
from rocketstore.sharing import messages
from rocketstore.sharing.meeting import process_state
from tests.process.other_process import OtherProcess, other_process
from tests.sharing.hosts import host_pid
from tests.sharing.links import GUEST, asks, become, in_thread, linked
from tests.sharing.served import Served
from tests.support.waiting import wait_until


def held(root: Path) -> bool:
    return StoreLock.probe(StoreLayout(root)) is not None


def taken_in_between(root: Path, act: Callable[[], object]) -> bool:
    """Whether a program that tries all the time gets the lock while `act` runs."""
    ends = threading.Event()

    def attempts() -> bool:
        while not ends.is_set():
            try:
                StoreLock.acquire(StoreLayout(root), 0).release()
            except StoreLockedError:
                continue
            return True
        return False

    thread, found = in_thread(attempts)
    try:
        act()
    finally:
        ends.set()
        thread.join()
    return found != [False]


def closed_to(host: OtherProcess, guest: OtherProcess, root: Path) -> None:
    host.hears()
    assert host.line() == "closed"
    wait_until(lambda: host_pid(root) == guest.pid)


def test_nobody_has_the_store_between_two_hosts(host: OtherProcess, root: Path) -> None:
    """The store is known to have been closed: nothing is recovered."""
    with other_process(GUEST, root, shared=True) as guest:
        assert guest.line() == "open"
        assert not taken_in_between(root, lambda: closed_to(host, guest, root))
        with other_process(GUEST, root, shared=True) as last:
            assert last.line() == "open"
            assert not taken_in_between(root, lambda: closed_to(guest, last, root))
            last.hears()
            assert last.line() == "closed"
    assert not held(root)


def test_a_stopped_guest_gets_nothing(root: Path, served: Served) -> None:
    with other_process(GUEST, root, shared=True) as guest:
        assert guest.line() == "open"
        os.kill(guest.pid, signal.SIGSTOP)
        wait_until(lambda: process_state(guest.pid) == "stopped")
        served.store.close()
        assert not held(root)
        os.kill(guest.pid, signal.SIGCONT)
        wait_until(lambda: host_pid(root) == guest.pid)


def test_guests_that_hold_no_store_say_so(
    root: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "HEIR_S", 60.0)  # nobody waits for it
    with other_process(GUEST, root, shared="guest") as guest:
        assert guest.line() == "open"
        served.store.close()
        assert not held(root)


def client(
    served: Served, *, answers: bool = True, stays: bool = True
) -> tuple[threading.Thread, list[list[int]]]:
    """A guest of its own process, for the host, which answers when it is asked; what it gets: descriptors."""
    sock, _ = served.hello(heir=True)
    sock.settimeout(60)
    wait_until(lambda: any(one.may_hold for one in served.host._guests.values()))
    next(iter(served.host._guests.values())).pid = 1

    def run() -> list[int]:
        with sock:
            assert sock.recv(1) == messages.ASKS
            if answers:
                sock.sendall(messages.ASKS)
            if not stays:
                sock.shutdown(socket.SHUT_RDWR)
                return []
            return list(socket.recv_fds(sock, 1, 1)[1])

    return in_thread(run)


def test_the_lock_goes_with_the_descriptor(root: Path, served: Served) -> None:
    """It is held after the host has closed, and free once the heir has."""
    thread, found = client(served)
    served.store.close()
    thread.join()
    ((descriptor,),) = found
    assert held(root)
    with pytest.raises(StoreLockedError):
        StoreLock.acquire(served.layout, 0)
    lock = StoreLock.inherited(served.layout, descriptor)
    assert lock is not None and lock.held
    lock.release()
    assert not held(root)


@pytest.mark.parametrize(("answers", "stays"), [(False, True), (True, False)])
def test_an_heir_that_is_none(root: Path, served: Served, answers: bool, stays: bool) -> None:
    """It does not answer, or ends before it has the lock."""
    thread, found = client(served, answers=answers, stays=stays)
    served.store.close()
    thread.join()
    assert found == [[]]
    assert not held(root)


def test_what_is_no_lock_of_the_store_is_closed(served: Served, tmp_path: Path) -> None:
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert StoreLock.inherited(served.layout, other) is None
    unlocked = os.open(served.layout.lock, os.O_RDWR)  # another description has the lock
    assert StoreLock.inherited(served.layout, unlocked) is None
    for descriptor in (other, unlocked):
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


def test_an_heir_that_cannot_open_the_store_lets_it_go(host: OtherProcess, root: Path) -> None:
    """It tries again as all others do."""
    take, given = become(root), list[bool]()

    def fails_once(lock: StoreLock | None) -> WritingEngine:
        given.append(lock is not None)
        if lock is not None:
            raise OSError("not now")
        return take(None)

    with linked(root, fails_once) as link:
        host.hears()
        assert host.line() == "closed"
        assert asks(link) == os.getpid()
        assert given[:2] == [True, False]


def test_a_link_that_closes_lets_the_lock_go(root: Path, served: Served) -> None:
    with linked(root) as link:
        served.store.close()
        lock = StoreLock.acquire(served.layout, 0)
        link._given = lock
    assert not lock.held
