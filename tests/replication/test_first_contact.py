"""What an open of a copy waits for: the first words with its master."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from rocketstore.replication.replica import service as replica_service
from rocketstore.replication.transport import channels
from rocketstore.replication.transport.limits import PendingConnections
from tests.replication.copies import (
    caught_up,
    copy_of,
    open_copy,
    open_master,
    put_some,
    service_of,
)
from tests.support.small_store import open_small
from tests.support.waiting import wait_until

#: Far below what hangs, far above what a busy machine needs, seconds.
SOON_S = 60.0
HANGS_S = 600.0


@pytest.fixture
def silent_master() -> Iterator[str]:
    """It takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def hanging_lookup(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A system that looks up no name for long; set once it is asked."""
    asked, answers = threading.Event(), threading.Event()

    def getaddrinfo(*_: object, **__: object) -> None:
        asked.set()
        answers.wait(HANGS_S)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(channels, "HANDSHAKE_S", 0.3)
    yield asked
    answers.set()


def names_of_threads() -> list[str]:
    return [one.name for one in threading.enumerate()]


def test_an_interrupt_ends_an_open_that_waits_for_the_master(
    tmp_path: Path, silent_master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_service, "ANSWER_S", HANGS_S)
    monkeypatch.setattr(replica_service, "PROOF_S", HANGS_S)
    with open_small(tmp_path / "copy"):
        pass

    def interrupt() -> None:
        wait_until(lambda: "rocketstore-first-contact" in names_of_threads())
        time.sleep(0.2)  # it has asked
        os.kill(os.getpid(), signal.SIGINT)

    user = threading.Thread(target=interrupt)
    user.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        open_copy(tmp_path / "copy", silent_master, silence_limit=timedelta(seconds=HANGS_S))
    user.join()
    assert time.monotonic() - began < SOON_S
    # One that has looked up the address belongs to nobody.
    left = [name for name in names_of_threads() if name != "rocketstore-lookup"]
    assert not [name for name in left if name.startswith("rocketstore")]
    with open_small(tmp_path / "copy", "r"):  # nobody has it open
        pass


def test_a_lookup_that_hangs_holds_up_neither_open_nor_close_nor_exit(
    tmp_path: Path, hanging_lookup: threading.Event
) -> None:
    before, began = set(threading.enumerate()), time.monotonic()
    with open_copy(tmp_path / "copy", "master.example:10912") as copy:
        assert hanging_lookup.is_set()
        assert time.monotonic() - began < SOON_S
        wait_until(lambda: copy.replication.last_error is not None)
        assert names_of_threads().count("rocketstore-lookup") == 1, "each attempt asks again"
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
    (left,) = set(threading.enumerate()) - before
    assert left.name == "rocketstore-lookup"
    assert left.daemon, "the interpreter would wait for it"


def test_a_master_sends_its_log_once(tmp_path: Path) -> None:
    """The first contact asks, and the log comes by the connection that goes on."""
    with open_master(tmp_path / "master") as master:
        put_some(master)
        with open_copy(tmp_path / "copy", master) as copy:
            caught_up(copy, master)
            assert service_of(master).connections == 2
            assert copy_of(copy).connections == 1
            # It counts what it has sent, which may have come before.
            wait_until(lambda: service_of(master).bytes_sent >= master.visible_offset)
            assert service_of(master).bytes_sent == master.visible_offset


def test_a_master_that_ends_at_once_closes_what_it_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled before it began runs no line of its own."""
    monkeypatch.setattr(PendingConnections, "add", lambda self, task, peer: task.cancel())
    with open_master(tmp_path) as master:
        host, port = service_of(master).address.split(":")
        gc.collect()  # what others have left
        with warnings.catch_warnings(record=True) as unclosed:
            warnings.simplefilter("always", ResourceWarning)
            with socket.create_connection((host, int(port)), SOON_S) as peer:
                assert peer.recv(1) == b""
            gc.collect()
        assert [one for one in unclosed if port in str(one.message)] == []


def test_master_that_ends_a_connection_without_a_word_may_want_other_settings(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as kept:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    taken = kept.enter_context(listener.accept()[0])
                    taken.shutdown(socket.SHUT_WR)

        ending = threading.Thread(target=hang_up)
        ending.start()
        with open_copy(tmp_path / "c", f"127.0.0.1:{listener.getsockname()[1]}") as copy:
            wait_until(lambda: "same tls= and protocol=" in str(copy_of(copy).last_error))
        listener.shutdown(socket.SHUT_RDWR)
        ending.join()


def test_trouble_without_a_text_has_that_of_its_kind(tmp_path: Path) -> None:
    """As ssl.SSLEOFError and ConnectionResetError may come."""
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        caught_up(copy, master)
        service = copy_of(copy)
        service._note(ConnectionResetError())
        assert str(service.last_error) == "the connection broke: ConnectionResetError"
