"""Sockets and connections of replication: what comes, what is cancelled or never answered leaves nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketstore import ConfigError
from rocketstore.replication.transport import addresses, channels
from rocketstore.replication.transport.channels import Channel, accepted
from rocketstore.replication.transport.loop import in_thread
from tests.replication.copies import open_master
from tests.support.small_store import open_small
from tests.support.waiting import PATIENCE_S


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


ROOM = 1 << 16


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Channel, socket.socket]]:
    """A channel, and the socket of its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        sock, _ = listener.accept()
    channel = await accepted(sock, "peer", None)
    try:
        with peer:
            yield channel, peer
    finally:
        channel.close()


async def received(channel: Channel, most: int = ROOM) -> bytes:
    buffer = memoryview(bytearray(most))
    async with asyncio.timeout(PATIENCE_S):
        return bytes(buffer[: await channel.receive_into(buffer)])


def test_each_wait_gets_what_comes() -> None:
    async def scene() -> None:
        async with pair() as (channel, peer):
            for number in range(100):
                waits = asyncio.create_task(received(channel))
                await asyncio.sleep(0)
                peer.sendall(b"%d" % number)
                assert await waits == b"%d" % number

    asyncio.run(scene())


def test_what_comes_while_nobody_waits_stays_in_the_system() -> None:
    """The loop sleeps meanwhile: it is not told again and again."""

    async def scene() -> None:
        async with pair() as (channel, peer):
            waits = asyncio.create_task(received(channel, 3))
            await asyncio.sleep(0)
            peer.sendall(b"one, two")
            assert await waits == b"one"
            loop, calls = asyncio.get_running_loop(), 0
            select = loop._selector.select  # type: ignore[attr-defined]

            def counted(timeout: float | None = None) -> object:
                nonlocal calls
                calls += 1
                return select(timeout)

            loop._selector.select = counted  # type: ignore[attr-defined]
            await asyncio.sleep(0.2)
            assert calls < 20
            assert await received(channel) == b", two"

    asyncio.run(scene())


def test_a_wait_that_is_given_up_loses_nothing() -> None:
    async def scene() -> None:
        async with pair() as (channel, peer):
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await channel.receive_into(memoryview(bytearray(ROOM)))
                peer.sendall(b"late")
                await asyncio.sleep(0.01)
                assert await received(channel) == b"late"

    asyncio.run(scene())


def test_the_end_of_a_connection_is_told() -> None:
    async def scene() -> None:
        async with pair() as (channel, peer):
            waits = asyncio.create_task(received(channel))
            await asyncio.sleep(0)
            peer.shutdown(socket.SHUT_WR)
            assert await waits == b""
        async with pair() as (channel, peer):
            waits = asyncio.create_task(received(channel))
            await asyncio.sleep(0)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            with pytest.raises(ConnectionResetError):
                await waits

    asyncio.run(scene())
