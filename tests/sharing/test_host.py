"""A host answers its guests whatever others of them do."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import struct
import threading
from pathlib import Path
from typing import Any, cast

import pytest

import rocketstore
from rocketstore.errors import GuestStoreError
from rocketstore.sharing import host as host_module
from rocketstore.sharing import messages
from rocketstore.sharing.host_calls import Call
from rocketstore.sharing.host_commits import GuestClaims
from rocketstore.sharing.link import HostLink
from tests.sharing.served import Served
from tests.support.forking import in_child
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(120, method="thread"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


# ---- calls ----


def test_a_call_is_answered(link: HostLink) -> None:
    assert link.call("echo", {"n": 3, "text": "ü"}, b"abc") == (
        {"call": "echo", "n": 3, "text": "ü"},
        b"cba",
    )


def test_errors_of_calls_come_back_and_hurt_nobody(link: HostLink, served: Served) -> None:
    with pytest.raises(KeyError, match="which"):
        link.call("refuse")
    with pytest.raises(rocketstore.RocketStoreError, match="ZeroDivisionError"):
        link.call("fail")
    with pytest.raises(GuestStoreError, match="does not know it; upgrade it there"):
        link.call("unheard of")
    for name in ("huge", "odd"):
        with pytest.raises(ValueError, match=r"."):
            link.call(name)
    assert link.call("echo")[1] == b""
    (state,) = served.host._guests.values()
    assert len(state.connections) == 1, "one connection was enough"


def test_many_calls_at_once(link: HostLink, served: Served) -> None:
    """More than a guest may have connections: those beyond wait for their turn."""
    found: list[bytes] = []

    def ask(n: int) -> None:
        found.append(link.call("echo", {}, b"%03d" % n)[1])

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one[::-1] for one in found) == [b"%03d" % n for n in range(100)]
    (state,) = served.host._guests.values()
    assert len(state.connections) <= host_module.GUEST_CONNECTIONS_MAX


def test_a_guest_has_no_more_connections_than_it_may(served: Served) -> None:
    main, _ = served.hello()
    opened = [served.hello(kind="call") for _ in range(host_module.GUEST_CONNECTIONS_MAX)]
    assert all("error" not in answer for _, answer in opened)
    last, answer = served.hello(kind="call")
    assert answer["error"]["kind"] == "GuestStoreError"
    for sock, _ in (*opened, (main, {}), (last, {})):
        sock.close()
    wait_until(lambda: served.idle)


# ---- hellos ----


def test_what_a_host_says_of_itself(served: Served) -> None:
    sock, answer = served.hello()
    with sock:
        assert answer["protocol"] == messages.PROTOCOL
        assert answer["release"] == rocketstore.__version__
        assert answer["pid"] == os.getpid()
        assert bytes.fromhex(answer["life"]) == served.engine.write.page.positions.run_id
        assert answer["recovered_end"] == served.engine.recovery.end
        assert answer["max_request_bytes"] > served.engine.config.max_message_size_bytes


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"protocol": messages.PROTOCOL + 1}, "GuestStoreError", "upgrade this one"),
        ({"protocol": 0, "release": "0.1.0"}, "GuestStoreError", "0.1.0.*upgrade the other one"),
        ({"protocol": None}, "GuestStoreError", "upgrade"),
        ({"kind": "ghost"}, "ValueError", "ghost"),
        ({"kind": ["guest"]}, "ValueError", "guest"),
        ({"guest": 5}, "ValueError", "of 5"),
        ({"guest": "short"}, "ValueError", "short"),
        ({"guest": {"a": 1}}, "ValueError", "a"),
    ],
)
def test_a_hello_that_means_nothing_is_refused(
    served: Served, fields: dict[str, Any], kind: str, text: str
) -> None:
    sock, answer = served.hello(**fields)
    with sock:
        error = messages.error_of(answer["error"])
        assert type(error).__name__ == kind
        with pytest.raises(type(error), match=text):
            raise error
        assert sock.recv(1) == b""
    wait_until(lambda: served.idle)


def test_fields_of_a_hello_may_be_anything(served: Served) -> None:
    sock, answer = served.hello(pid={"x": 1}, name=["y" * 5000], more="z" * 5000)
    with sock:
        assert "error" not in answer
        (figures,) = served.host.figures()
        assert figures.pid == os.getpid()  # the kernel says so
        assert len(figures.name) <= host_module.NAME_MAX
    wait_until(lambda: served.idle)


def test_a_connection_of_no_guest_ends(served: Served) -> None:
    for kind in ("call", "puts"):
        sock, answer = served.hello(kind=kind, guest="b" * 32)
        with sock:
            assert answer == {}


def test_a_guest_comes_once(served: Served) -> None:
    """A second one of its name waits until the end of the first is seen."""
    first, _ = served.hello()
    second, answer = served.hello()
    assert answer == {}
    second.close()
    first.close()
    wait_until(lambda: served.idle)
    third, answer = served.hello()
    assert answer["pid"] == os.getpid()
    third.close()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack("<I", 0xFFFFFFFF), id="too long"),
        pytest.param(struct.pack("<I", 4) + b"null", id="no object"),
        pytest.param(struct.pack("<I", 5) + b"{\xff\xff\xff}", id="no JSON"),
        pytest.param(struct.pack("<I", 60_000) + b'{"a":' * 12_000, id="deep"),
    ],
)
def test_what_is_no_hello_ends_its_connection(served: Served, link: HostLink, data: bytes) -> None:
    with served.raw() as sock:
        sock.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert link.call("echo")[1] == b""


def test_those_that_say_nothing_hold_nobody_up(
    served: Served, link: HostLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "HELLO_S", 0.2)
    silent = [served.raw() for _ in range(100)]
    silent[0].sendall(b"\x10\0\0\0{")
    assert link.call("echo")[1] == b""
    for sock in silent:
        assert sock.recv(1) == b""
        sock.close()
    wait_until(lambda: len(served.host._connections) == 2)


def test_random_bytes_of_guests_hurt_nobody(
    served: Served, link: HostLink, rng: random.Random
) -> None:
    """As hellos, as calls and as puts."""
    main, _ = served.hello()
    for n in range(120):
        kind = ("call", "puts", "")[n % 3]
        sock = served.hello(kind=kind)[0] if kind else served.raw()
        with sock, contextlib.suppress(OSError):
            sock.settimeout(5)
            data = bytearray(rng.randbytes(rng.randrange(1, 200)))
            if kind == "call" and rng.random() < 0.7:
                text = json.dumps({"call": "echo", "x": rng.random()}).encode()
                data = bytearray(struct.pack("<II", len(text), 3) + text + b"abc")
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        assert link.call("echo", {}, b"x")[1] == b"x"
    main.close()
    wait_until(lambda: len(served.host._guests) == 1)


# ---- guests that come and go ----


def test_a_thousand_guests_leave_nothing_behind(served: Served, link: HostLink) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before, threads = descriptors(), threading.active_count()
    for n in range(1000):
        main, _ = served.hello(guest=f"{n:032x}")
        if n % 3 == 0:
            call, _ = served.hello(guest=f"{n:032x}", kind="call")
            call.close()
        if n % 3 == 1:
            served.hello(guest=f"{n:032x}", kind="puts")[0].close()
        main.close()
    wait_until(lambda: len(served.host._guests) == 1)
    wait_until(lambda: descriptors() <= before)
    wait_until(lambda: threading.active_count() <= threads)
    assert link.call("echo")[1] == b""


def test_the_end_of_a_guest_ends_what_it_has(served: Served, calls: dict[str, Call]) -> None:
    """All of its connections, and its claims after the last call that goes on."""
    seen: list[Any] = []
    goes_on, may_end = threading.Event(), threading.Event()

    def slow(engine: object, state: GuestClaims, fields: object, blob: bytes) -> Any:
        goes_on.set()
        may_end.wait(60)
        state.claims[7] = cast("Any", "late")
        seen.append(state)
        return None, b""

    calls["slow"] = slow
    main, _ = served.hello()
    call, _ = served.hello(kind="call")
    other, _ = served.hello(kind="call")
    puts, _ = served.hello(kind="puts")
    (state,) = served.host._guests.values()
    state.claims[3] = "claimed"
    messages.send_call(call, {"call": "slow"}, b"", 5.0)
    goes_on.wait(60)
    assert served.host.figures()[0].in_flight == 1
    main.close()
    assert other.recv(1) == puts.recv(1) == b""
    assert state.claims == {3: "claimed"}
    may_end.set()
    wait_until(lambda: served.idle)
    assert (seen, state.claims) == ([state], {})
    for sock in (call, other, puts):
        sock.close()


def test_a_process_that_is_killed_is_a_guest_that_has_gone(served: Served, link: HostLink) -> None:
    def child() -> None:
        other = HostLink(served.layout)
        assert other.connect(10.0)
        other.start()
        other.call("echo")
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        assert in_child(child) == -signal.SIGKILL
    wait_until(lambda: len(served.host._guests) == 1)
    assert link.call("echo")[1] == b""


def test_a_guest_that_takes_no_answers_holds_nobody_up(
    served: Served, link: HostLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "ANSWER_S", 0.3)
    main, _ = served.hello()
    deaf, _ = served.hello(kind="call")
    with pytest.raises(messages.UnsentError):
        while True:
            messages.send_call(deaf, {"call": "echo"}, bytes(100_000), 0.1)
    assert link.call("echo", {}, b"x")[1] == b"x"
    (state,) = (one for one in served.host._guests.values() if one.guest == "a" * 32)
    wait_until(lambda: not state.connections)
    main.close()
    deaf.close()


def test_figures_of_guests(served: Served, link: HostLink) -> None:
    link.call("echo")
    wait_until(lambda: served.store.stats().guests[0].in_flight == 0)  # its answer is sent
    (one,) = served.store.stats().guests
    assert (one.pid, one.puts, one.bytes, one.in_flight) == (os.getpid(), 0, 0, 0)
    assert one.name == Path("/proc/self/comm").read_text().strip()
    assert 0 <= one.heard_s < 60
