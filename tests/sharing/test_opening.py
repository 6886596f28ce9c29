"""An open with `shared` becomes host or guest, or says why not; the end of a process is the end of both."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    ConfigError,
    GuestStoreError,
    StoreLockedError,
)
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing import hidden, opening
from rocketstore.sharing.opening import check_shared
from rocketstore.testing import ManualClock
from tests.process.other_process import HOLD, SMALL, OtherProcess, open_small, other_process
from tests.sharing.hosts import host_pid
from tests.sharing.links import GUEST, in_thread
from tests.support.forking import in_child
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(120, method="thread"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def is_host(store: Store) -> bool:
    return isinstance(engine_of(store), WritingEngine)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"shared": "yes"}, "shared = 'yes': True, False, 'guest' or 'host'"),
        ({"shared": 1}, "shared = 1"),
        ({"shared": None}, "shared = None"),
        ({"shared": True, "mode": "r"}, "mode = 'r'"),
        ({"shared": True, "clock": ManualClock(0)}, "clock ="),
        ({"shared": True, "untrusted": True}, "untrusted = True: not with shared=True"),
        ({"shared": True, "on_arrival": print}, "on_arrival"),
        ({"shared": "guest", "retention": rocketstore.Retention(max_bytes=1 << 30)}, "retention ="),
    ],
    ids=str,
)
def test_what_a_shared_store_cannot_have(root: Path, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rocketstore.open(root, **given)
    assert text in str(caught.value)
    assert not root.exists()


def test_a_store_in_memory_is_not_shared() -> None:
    with pytest.raises(ConfigError, match=":memory:"):
        rocketstore.open(":memory:", shared=True)
    check_shared(False, "r", ":memory:", clock=1)


def test_a_host_may_have_what_a_guest_may_not(root: Path) -> None:
    arrived: list[str] = []
    with open_small(
        root,
        shared="host",
        retention=rocketstore.Retention(max_bytes=1 << 30),
        on_arrival=lambda topic, *_: arrived.append(topic),
    ) as store:
        store.writer("orders").put(b"x")
        wait_until(lambda: arrived == ["orders"])


def test_the_first_one_holds_it(root: Path) -> None:
    with open_small(root, shared=True) as first:
        assert is_host(first)
        with open_small(root, shared=True) as second:
            assert not is_host(second)
            assert second.retention.rule is None  # the host has answered
            assert second.stats().host_pid == os.getpid()
    assert not StoreLayout(root).host_socket.exists()


def test_a_guest_needs_a_host(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "OPEN_S", 0.1)
    with pytest.raises(StoreLockedError, match="held by no process") as caught:
        open_small(root, shared="guest")
    assert not root.exists()
    assert caught.value.waited_s >= 0.1
    assert "there is no store here" in str(caught.value)
    opened: list[Store] = []
    thread, found = in_thread(lambda: opened.append(open_small(root, shared="guest", wait_s=60)))
    with open_small(root, shared="host"):
        thread.join()
        assert found == [None]
        opened[0].close()


def test_a_store_that_is_not_shared_says_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "OPEN_S", 0.1)
    with open_small(root), pytest.raises(StoreLockedError, match="the store that is open"):
        open_small(root, shared=True)
    with other_process(HOLD, root) as plain:
        assert plain.line() == "open"
        with pytest.raises(StoreLockedError, match=f"{plain.pid}.*shared=True there, too"):
            open_small(root, shared=True)
        with pytest.raises(StoreLockedError):
            open_small(root, shared="host")


def test_many_open_at_once(root: Path) -> None:
    """One of them makes the store, and holds it."""
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(other_process(GUEST, root, shared=True)) for _ in range(6)]
        for guest in guests:
            assert guest.line() == "open"
        host = host_pid(root)
        others = [guest for guest in guests if guest.pid != host]
        assert len(others) == 5
        for guest in others:
            guest.hears("who")
            assert guest.line() == str(host)


def test_a_relative_path_and_another_directory(
    host: OtherProcess, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where this process is the next host."""
    monkeypatch.chdir(root.parent)
    with rocketstore.open(root.name, shared=True, **SMALL) as guest:
        monkeypatch.chdir("/")
        guest.writer("orders").put(b"0")
        host.kill()
        assert guest.writer("orders").put(b"1").queue_offset == 1
        assert host_pid(root) == os.getpid()


# ---- the end of processes ----

#: Ends without a close: a host's own guests must not take its lock anew.
LEFT_OPEN = """
import warnings
warnings.simplefilter("ignore")
store = rocketstore.open(path, **options)
writer = store.writer("orders")
say("open")
told()
writer.put(b"x", durability="os")
say("put")
"""


def test_a_process_that_ends_closes_what_it_holds(host: OtherProcess, root: Path) -> None:
    with other_process(LEFT_OPEN, root, shared=True) as guest:
        assert guest.line() == "open"
        host.kill()
        guest.hears()
        assert guest.line() == "put"
        guest.ends()
    assert not StoreLayout(root).host_socket.exists()
    with open_small(root) as store:
        assert store.recovery.mode == "clean"
        assert [message.body for message in store.consumer("orders")] == [b"x"]


def test_a_child_of_the_host_is_a_guest_of_its_own(root: Path) -> None:
    with open_small(root, shared=True) as store:
        store.writer("orders").put(b"0")

        def child() -> None:
            with open_small(root, shared=True) as own:
                assert not is_host(own)
                assert own.writer("orders").put(b"1").queue_offset >= 1
                assert host_pid(root) == os.getppid()

        assert [in_child(child) for _ in range(3)] == [0, 0, 0]
        assert store.writer("orders").put(b"2").queue_offset == 4


def test_a_child_of_a_hidden_host(host: OtherProcess, root: Path) -> None:
    """It is a guest too, and the store of its parent is not its own."""
    with open_small(root, shared=True) as store:
        host.kill()
        store.writer("orders").put(b"0", unique_id="0")
        assert list(hidden._held) == [os.fspath(root)]

        def child() -> None:
            assert hidden._held == {}
            with open_small(root, shared=True) as own:
                own.writer("orders").put(b"1")
                assert host_pid(root) == os.getppid()
            assert store.closed

        assert in_child(child) == 0
        assert store.writer("orders").put(b"2").queue_offset == 2
        assert host_pid(root) == os.getpid()


def test_nothing_is_left(host: OtherProcess, root: Path) -> None:
    """Of guests that come and go, in threads and descriptors."""

    def come_and_go() -> None:
        with open_small(root, shared=True) as store:
            store.writer("orders").put(b"0", durability="os")

    come_and_go()
    threads, before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        come_and_go()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == before
    assert hidden._links == {}


def test_a_store_is_destroyed_under_its_guests(root: Path) -> None:
    with other_process(GUEST, root, shared=True) as guest:
        with open_small(root, shared=True) as store:
            assert guest.line() == "open"
            if is_host(store):
                store.destroy()
                assert not root.exists()
            else:
                with pytest.raises(GuestStoreError):
                    store.destroy()
                shutil.rmtree(root)
        guest.hears()
