"""A host where the system gives no more, and where it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketstore.errors import InvalidTopicError, MessageRejectedError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.sharing import host as host_module
from rocketstore.sharing import meeting, messages
from rocketstore.sharing.host import Desk, host_of
from rocketstore.sharing.host_calls import Call
from rocketstore.sharing.link import HostLink
from tests.process.other_process import open_small
from tests.sharing.served import Served
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(120, method="thread"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


# ---- limits of the system ----


def test_no_descriptor_for_a_guest(served: Served, link: HostLink) -> None:
    """It hears which limit, at once; those that are there go on, and the next one comes in."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    link.call("echo")
    sock = socket.socket(socket.AF_UNIX)  # before there is none left
    path = os.open(served.layout.own, os.O_PATH)
    filler: list[int] = []
    try:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, most[1]))
        with contextlib.suppress(OSError):
            while True:
                filler.append(os.dup(0))
        sock.settimeout(10)
        sock.connect(f"/proc/self/fd/{path}/host.sock")
        answer = messages.receive_hello(sock, 10.0)
        assert link.call("echo")[1] == b""
        with pytest.raises(OSError, match="RLIMIT_NOFILE") as caught:
            link.line()
        assert caught.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        for fd in (*filler, path):
            os.close(fd)
        sock.close()
    error = messages.error_of(answer["error"])
    assert isinstance(error, OSError)
    assert error.errno == errno.EMFILE
    assert "RLIMIT_NOFILE" in str(error)
    other = served.link()
    assert other.call("echo")[1] == b""
    other.close()


def test_no_thread_for_a_guest(
    served: Served, link: HostLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(thread: threading.Thread) -> None:
        raise OSError(errno.EAGAIN, "no thread: raise pids.max")

    with monkeypatch.context() as patch:
        patch.setattr(host_module, "start_thread", none)
        sock, answer = served.hello()
        sock.close()
    assert "pids.max" in str(messages.error_of(answer["error"]))
    assert link.call("echo")[1] == b""
    other, answer = served.hello()
    assert "error" not in answer
    other.close()


def test_too_many_connections(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "CONNECTIONS_MAX", 2)
    first, _ = served.hello()
    second, _ = served.hello(kind="call")
    third, answer = served.hello(kind="call")
    assert "2 connections" in str(messages.error_of(answer["error"]))
    for sock in (first, second, third):
        sock.close()


# ---- the end ----


def test_a_close_answers_what_has_begun_and_no_more(root: Path, calls: dict[str, Call]) -> None:
    """What has come and has not begun hears "again"; the first connection of a guest ends last."""
    served = Served(root)
    goes_on, may_end = threading.Event(), threading.Event()

    def slow(*_: object) -> tuple[object, bytes]:
        goes_on.set()
        may_end.wait(60)
        return "done", b""

    calls["slow"] = slow
    main, _ = served.hello()
    call, _ = served.hello(kind="call")
    messages.send_call(call, {"call": "slow"}, b"", 5.0)
    messages.send_call(call, {"call": "echo"}, b"", 5.0)
    goes_on.wait(60)
    closing = threading.Thread(target=served.store.close)
    closing.start()
    wait_until(lambda: not served.layout.host_socket.exists())
    assert meeting.connect(served.layout) is None
    main.setblocking(False)
    with pytest.raises(BlockingIOError):
        main.recv(1)
    may_end.set()
    assert messages.receive_call(call, 100, 30.0) == ({"ok": "done"}, b"")
    assert messages.receive_call(call, 100, 30.0) == ({"again": True}, b"")
    main.setblocking(True)
    assert call.recv(1) == main.recv(1) == b""
    closing.join()
    with pytest.raises(messages.UnsentError):
        messages.send_call(call, {"call": "echo"}, b"", 5.0)
    assert served.idle
    main.close()
    call.close()


def test_the_lock_is_held_until_the_socket_is_gone(
    root: Path, calls: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(root)
    seen: list[bool] = []
    release = type(served.engine.write.lock).release

    def look(lock: Any) -> None:
        seen.append(served.layout.host_socket.exists())
        release(lock)

    monkeypatch.setattr(type(served.engine.write.lock), "release", look)
    link = served.link()
    served.store.close()
    link.close()
    assert seen
    assert not any(seen)


def test_a_call_that_does_not_end_keeps_no_store_open(
    root: Path, calls: dict[str, Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "STOP_S", 0.2)
    monkeypatch.setattr(host_module, "LATE_S", 0.2)
    served = Served(root)
    goes_on, may_end = threading.Event(), threading.Event()

    def slow(*_: object) -> tuple[object, bytes]:
        goes_on.set()
        may_end.wait(60)
        return "done", b""

    calls["slow"] = slow
    main, _ = served.hello()
    call, _ = served.hello(kind="call")
    messages.send_call(call, {"call": "slow"}, b"", 5.0)
    goes_on.wait(60)
    served.store.close()
    assert main.recv(1) == call.recv(1) == b""
    open_small(root).close()
    may_end.set()
    wait_until(lambda: served.idle)
    main.close()
    call.close()


def test_silent_ones_do_not_delay_a_close(root: Path, calls: object) -> None:
    """Those that say no hello, have said nothing since, or half of a call."""
    served = Served(root)
    sockets = [served.raw(), served.hello()[0], served.hello(kind="call")[0]]
    sockets += [served.hello(kind="call")[0], served.hello(kind="puts")[0]]
    sockets[3].sendall(struct.pack("<II", 10, 10) + b"{")
    sockets[4].sendall(b"half")
    before = threading.active_count()
    served.store.close()
    assert threading.active_count() < before
    for sock in sockets:
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
        sock.close()
    assert served.idle


# ---- puts ----


def test_which_queues_a_guest_may_put_to(served: Served) -> None:
    desk = Desk(served.engine)
    state, waits = desk.queue_of(b"orders", 3)
    assert (state, waits) == (served.engine.queue_state("orders", 3), False)
    assert desk.queue_of(SCHEDULE_TOPIC.encode(), 0)[1]
    assert desk.queue_of(TIMER_TOPIC.encode(), 0)[1]
    for topic in (b"RMQ_SYS_TRANS_HALF_TOPIC", b"rmq_sys_x", b"OFFSET_MOVED_EVENT"):
        with pytest.raises(MessageRejectedError, match="puts nothing there"):
            desk.queue_of(topic, 0)
    for topic in (b"", b"a/b", b"..", b"\xff\xfe", "ü".encode(), b"x" * 300):
        with pytest.raises(InvalidTopicError):
            desk.queue_of(topic, 0)
    for topic, queue_id in (
        (b"orders", -1),
        (b"orders", 2**31),
        (SCHEDULE_TOPIC.encode(), 18),
        (TIMER_TOPIC.encode(), 1),
    ):
        with pytest.raises(ValueError, match=f"queue_id = {queue_id}"):
            desk.queue_of(topic, queue_id)


def test_a_host_makes_no_second_listener(served: Served) -> None:
    assert host_of(served.engine) is served.host
