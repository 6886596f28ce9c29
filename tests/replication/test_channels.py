"""A connection in the loop: what comes while somebody waits, and while nobody does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rocketstore.replication.transport.channels import Channel, accepted
from tests.support.waiting import PATIENCE_S

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
