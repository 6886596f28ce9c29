"""Sockets of replication: what is cancelled or never answered leaves nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import ConfigError
from rocketstore.replication.transport import addresses, channels
from rocketstore.replication.transport.loop import in_thread
from tests.replication.copies import open_master
from tests.support.small_store import open_small


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with channels.listener("127.0.0.1:0", 8) as sock:
        yield sock


def test_a_connection_that_comes_as_an_accept_is_cancelled_is_left(
    listening: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """The next accept has it, and the loop has no error to log."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(channels.accept(listening))
        await asyncio.sleep(0)  # it waits
        with socket.create_connection(listening.getsockname()) as client:
            # Both are of the loop's next round, the cancellation before the connection.
            loop.call_soon(task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            async with asyncio.timeout(60):
                sock, address = await channels.accept(listening)
            with sock:
                assert address == client.getsockname()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert not caplog.records


def test_a_lookup_that_hangs_holds_up_no_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait(60) and [])
    monkeypatch.setattr(channels, "HANDSHAKE_S", 0.05)
    try:
        with pytest.raises(TimeoutError, match="no address in 0.05 s"):
            open_master(tmp_path, listen="localhost:0")
        assert not answers.is_set()
    finally:
        answers.set()
    with open_small(tmp_path, "r"):  # nobody has it open
        pass


def test_a_name_that_there_is_not_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(ConfigError, match="no such address: no such name"):
        open_master(tmp_path, listen="localhost:0")


def test_those_who_ask_for_one_host_wait_for_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before the thread that asks has come to run."""
    threads: list[threading.Thread] = []
    monkeypatch.setattr(addresses, "start_thread", threads.append)
    first, second = (addresses.lookup("127.0.0.1", 7) for _ in range(2))
    assert first is second
    (thread,) = threads
    thread.start()
    assert first.result(60)
    thread.join()
    assert not addresses._lookups


def test_a_thread_that_there_is_not_leaves_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_thread(_: object) -> None:
        raise OSError("no thread")

    monkeypatch.setattr(addresses, "start_thread", start_thread)
    with pytest.raises(OSError, match="no thread"):
        addresses.lookup("127.0.0.1", 7).result(60)
    assert not addresses._lookups


def test_work_goes_on_where_no_thread_starts_any_more() -> None:
    """As at the end of the interpreter, which closes the stores that are open."""

    async def scene() -> None:
        assert await in_thread(threading.get_ident) != threading.get_ident()
        await asyncio.get_running_loop().shutdown_default_executor()
        assert await in_thread(threading.get_ident) == threading.get_ident()

    asyncio.run(scene())
