"""A guest finds its host, becomes the next one where there is none, and says what it waits for."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    GuestStoreError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreLockedError,
    StoreReplacedError,
)
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing import hidden, host_calls, messages, opening
from rocketstore.sharing import host as host_module
from rocketstore.sharing import link as link_module
from rocketstore.sharing.host import host_of
from rocketstore.sharing.link import HostLink
from tests.process.other_process import HOLD, OtherProcess, open_small, other_process
from tests.sharing.hosts import host_pid
from tests.sharing.links import GUEST, RULE, asks, become, in_thread, linked, soon
from tests.support.forking import in_child
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(120, method="thread"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

# ---- the next host ----


def test_a_link_finds_the_next_host(host: OtherProcess, root: Path) -> None:
    told: list[int] = []
    link = HostLink(StoreLayout(root))
    link.on_connected.append(lambda link: told.append(link.session))
    assert link.connect(10.0)
    link.start()
    link.start()
    assert asks(link) == host.pid
    life = link.life
    host.kill()
    with other_process(HOLD, root, shared="host") as second:
        assert second.line() == "open"
        assert asks(link) == second.pid
        assert (link.session, told) == (2, [1, 2])
        assert link.life != life
    link.close()


@pytest.mark.parametrize("how", ["kill", "close"])
def test_a_link_becomes_the_host(host: OtherProcess, root: Path, how: str) -> None:
    """And stays a guest of its own process; others find it. It closes with the last of them here."""
    with linked(root) as other, linked(root, become(root)) as link:
        with linked(root, become(root)) as second:
            if how == "kill":
                host.kill()
            else:
                host.hears()
                assert host.line() == "closed"
            assert asks(link) == asks(other) == asks(second) == os.getpid()
            assert host_pid(root) == os.getpid()
            assert list(hidden._held) == [os.fspath(root)]
        assert asks(other) == os.getpid()
    assert hidden._held == {}
    assert StoreLock.probe(StoreLayout(root)) is None
    with open_small(root) as store:
        assert store.recovery.mode == "clean"


def test_one_of_many_becomes_the_host(host: OtherProcess, root: Path, rng: random.Random) -> None:
    """Again and again, until one is left; each finds the same one, which holds the lock."""
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(other_process(GUEST, root, shared=True)) for _ in range(5)]
        for guest in guests:
            assert guest.line() == "open"
        victim = host
        while guests:
            if rng.random() < 0.5:
                victim.kill()
            else:
                victim.hears()
                assert victim.line() == "closed"
            for guest in guests:
                guest.hears("who")
            found = {guest.line() for guest in guests}
            assert len(found) == 1
            victim = next(guest for guest in guests if str(guest.pid) in found)
            assert host_pid(root) == victim.pid
            guests.remove(victim)


def test_a_host_that_is_stopped_is_not_replaced(
    host: OtherProcess, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls end at their limits, and say which process it is and how it is; those to come as those under
    way."""
    with linked(root, become(root)) as link:
        assert asks(link) == host.pid
        os.kill(host.pid, signal.SIGSTOP)
        wait_until(lambda: "stopped" in link.host_state())
        said = f"process {host.pid}.*which is stopped"
        with pytest.raises(OutcomeUnknownError, match=said):
            link.call(RULE, limit_s=0.2)  # on a connection that is there
        with pytest.raises(StoreLockedError, match=said) as caught:
            link.call(RULE, limit_s=0.2)  # on one that is not taken
        assert caught.value.waited_s >= 0.2
        monkeypatch.setattr(opening, "OPEN_S", 0.2)
        with pytest.raises(StoreLockedError, match=said):
            open_small(root, shared=True)
        assert host_pid(root) == host.pid
        assert link.session == 1
        os.kill(host.pid, signal.SIGCONT)
        assert asks(link) == host.pid


def test_without_a_host_a_call_says_why_not(root: Path) -> None:
    open_small(root).close()
    with other_process(HOLD, root, shared="host") as process:
        assert process.line() == "open"
        tried = threading.Event()

        def broken(lock: StoreLock | None) -> WritingEngine:
            tried.set()
            raise OSError(28, "No space left on device")

        with linked(root, broken) as link, linked(root) as never:
            process.kill()
            tried.wait(60)
            wait_until(lambda: link._why is not None)
            with pytest.raises(StoreLockedError, match="held by no process") as caught:
                link.call(RULE, limit_s=0.1)
            assert isinstance(caught.value.__cause__, OSError)
            with pytest.raises(StoreLockedError, match="held by no process"):
                never.call(RULE, limit_s=0.1)
            with open_small(root, shared="host"):
                assert asks(link) == asks(never) == os.getpid()


def test_a_host_that_shares_nothing_is_waited_for(host: OtherProcess, root: Path) -> None:
    with linked(root, become(root)) as link:
        host.kill()
        with other_process(HOLD, root) as plain:
            # The link may be quicker.
            said = plain.line()
            if said == "open":
                with pytest.raises(StoreLockedError, match=f"locked by.*process {plain.pid}"):
                    link.call(RULE, limit_s=0.1)
                plain.kill()
            assert asks(link) == os.getpid()


def test_a_log_that_has_failed_is_opened_again(
    host: OtherProcess, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could close a hidden store, and open it again."""
    monkeypatch.setattr(link_module, "LOOK_S", 0.01)
    with linked(root, become(root)) as link:
        host.kill()
        assert asks(link) == os.getpid()
        engine = hidden._held[link.root]
        engine.commit_log.fail(OSError(5, "Input/output error"))
        wait_until(lambda: link.session == 3)
        assert asks(link) == os.getpid()
        assert hidden._held[link.root] is not engine
        assert engine.closed


def test_a_store_that_is_removed_is_not_made_anew(host: OtherProcess, root: Path) -> None:
    """Nor is another one in its place taken for it."""
    with linked(root, become(root)) as link:
        root.rename(root.parent / "moved")
        host.kill()
        with pytest.raises(StoreReplacedError):
            link.call(RULE, limit_s=60)
        assert not root.exists()
        with open_small(root, shared="host"), pytest.raises(StoreReplacedError):
            link.call(RULE, limit_s=60)


# ---- calls ----


class Answers:
    """A host whose one call does what a test says."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.count = 0
        monkeypatch.setattr(host_module, "CALLS", {"ask": self._ask, **host_calls.CALLS})
        self.store = open_small(root, shared="host")
        self.host = host_of(engine_of(self.store))

    def _ask(self, *_: object) -> tuple[object, bytes]:
        self.count += 1
        self.begun.set()
        self.goes_on.wait(60)
        return self.count, b""

    def cut(self) -> None:
        """Ends the connections of calls, as a host does that dies before its answer."""
        for state in list(self.host._guests.values()):
            for sock in state.connections.copy():
                sock.shutdown(2)


@pytest.fixture
def answers(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    made = Answers(root, monkeypatch)
    yield made
    made.goes_on.set()
    made.store.close()


@pytest.mark.parametrize("again", [False, True])
def test_a_call_without_an_answer(answers: Answers, again: bool) -> None:
    """It is unknown what became of it; one that may be done twice is asked again."""
    with linked(answers.root) as link:
        thread, found = in_thread(lambda: link.call("ask", again=again)[0])
        answers.begun.wait(60)
        answers.goes_on.set()
        answers.cut()
        thread.join()
        if again and found != [1]:
            assert found == [2]
        elif found != [1]:  # the answer was quicker
            assert isinstance(found[0], OutcomeUnknownError)
            assert f"process {os.getpid()}, which is running" in str(found[0])
            assert answers.count == 1
        assert link.session == 1


def test_an_answer_that_is_late_goes_to_nobody(answers: Answers) -> None:
    with linked(answers.root) as link:
        with pytest.raises(OutcomeUnknownError, match="has not answered in time"):
            link.call("ask", limit_s=0.1)
        answers.goes_on.set()
        assert link.call("ask")[0] == 2


def test_a_call_that_the_host_has_not_begun_is_asked_at_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close in order costs guests a pause, and no error."""
    answers = Answers(root, monkeypatch)
    with linked(root, become(root)) as link:
        thread, found = in_thread(lambda: link.call("ask")[0])
        answers.begun.wait(60)
        closing = threading.Thread(target=answers.store.close)
        closing.start()
        wait_until(lambda: answers.host._ending)
        second, later = in_thread(lambda: link.call("ask")[0])
        answers.goes_on.set()
        for each in (thread, closing, second):
            each.join()
        assert (found, later) == ([1], [2])
        assert link.session == 2


def test_a_close_ends_those_that_wait(host: OtherProcess, root: Path) -> None:
    link = HostLink(StoreLayout(root))
    assert link.connect(10.0)
    link.start()
    host.kill()
    wait_until(lambda: not link._ready)
    waiting = [
        in_thread(lambda: link.call(RULE)),
        in_thread(lambda: link.await_host(soon())),
    ]
    link.close()
    for thread, found in waiting:
        thread.join()
        assert isinstance(found[0], StoreClosedError)
    link.close()
    with pytest.raises(StoreClosedError):
        link.call(RULE)


def test_too_many_calls(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "CALLS_MAX", 2)
    with linked(answers.root) as link:
        going = [in_thread(lambda: link.call("ask")[0]) for _ in range(2)]
        wait_until(lambda: answers.count == 2)
        with pytest.raises(rocketstore.BackpressureError, match="2 calls"):
            link.call("ask", limit_s=0.05)
        thread, found = in_thread(lambda: link.call("ask")[0])
        answers.goes_on.set()
        for each, _ in (*going, (thread, found)):
            each.join()
        assert found == [3]


def test_a_session_whose_lines_have_ended_is_renewed(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its host has had its time to say the last words."""
    monkeypatch.setattr(link_module, "LAST_WORDS_S", 0.05)
    with linked(answers.root) as link:
        link.await_host(soon())
        link.await_host(soon(), ended=link.session - 1)
        assert link.session == 1
        link.await_host(soon(), ended=1)
        assert link.session == 2
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()}.*which is running"):
            link.await_host(time.monotonic_ns(), ended=2)


def test_a_host_that_cannot_be_told_is_left(answers: Answers) -> None:
    """What is called at each host raises: another session begins."""
    fails = [True, False]
    link = HostLink(StoreLayout(answers.root))

    def told(link: HostLink) -> None:
        link.call(RULE)  # before anybody else
        if link.session > 1 and fails.pop(0):
            raise ConnectionResetError("it has ended")

    link.on_connected.append(told)
    assert link.connect(10.0)
    link.start()
    link._shut(1)
    wait_until(lambda: link._ready and not fails)
    assert link.session == 3
    link.close()


def test_a_child_has_no_link(answers: Answers) -> None:
    with linked(answers.root) as link:

        def child() -> None:
            for call in (lambda: link.call(RULE), lambda: link.await_host(soon())):
                with pytest.raises(StoreClosedError, match="forked child"):
                    call()

        answers.goes_on.set()
        link.call("ask")
        assert in_child(child) == 0
        assert link.call("ask")[0] == 2
        assert link.session == 1


def test_an_unknown_protocol_says_which_side_to_upgrade(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = host_module.Host._greeting
    monkeypatch.setattr(
        host_module.Host, "_greeting", lambda host: real(host) | {"protocol": 9, "release": "9.0"}
    )
    link = HostLink(StoreLayout(answers.root))
    with pytest.raises(GuestStoreError, match=r"rocketstore 9\.0 .*upgrade this one"):
        link.connect(5.0)
    link.close()
    monkeypatch.setattr(host_module.Host, "_greeting", lambda host: {"protocol": messages.PROTOCOL})
    link = HostLink(StoreLayout(answers.root))
    with pytest.raises(GuestStoreError, match="what none says"):
        link.connect(5.0)
    link.close()
