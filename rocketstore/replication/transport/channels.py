"""The connections of replication, made and accepted, with TLS and without; no protocol."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import weakref
from collections.abc import Sequence
from typing import Any, Final, Protocol

from rocketstore.errors import ConfigError
from rocketstore.replication.protocol.link import Buffer
from rocketstore.replication.transport.addresses import lookup, split_address
from rocketstore.values.kept_errors import without_frames

__all__ = [
    "Channel",
    "accept",
    "accepted",
    "connected",
    "listener",
]

#: Longest handshake of TLS, longest attempt to connect, and to find an address to listen at, seconds.
HANDSHAKE_S: Final = 10.0
#: What TLS keeps of bytes that the system has not taken, bytes.
TLS_PENDING_BYTES: Final = 1 << 20
#: Bytes that the system took or gave at once after which other work of the loop runs.
YIELD_BYTES: Final = 256 << 10
#: What a call counts for besides its bytes: a peer that sends single bytes takes time, too.
CALL_BYTES: Final = 16 << 10
#: Connections that wait to be accepted, count: the system takes no larger number.
BACKLOG_MOST: Final = 4096


class Channel(Protocol):
    """One connection. One task receives at a time, and one sends."""

    peer: str

    async def receive_into(self, buffer: memoryview) -> int:
        """Waits for bytes of the peer; how many there are now at the begin of `buffer`. 0: it sends
        no more.

        Raises:
            OSError: the connection is broken.
        """

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Returns once the system has taken all of it. Others get their turn meanwhile.

        Raises:
            OSError: the connection is broken.
        """

    def close(self) -> None:
        """Ends the connection at once; what was not sent is lost. Idempotent."""


class _Yielding:
    """What never waits for its peer, as that floods it, lets others have their turn."""

    _at_once = 0

    async def _took(self, size: int) -> int:
        """Notes that `size` bytes went or came at once; gives `size`."""
        self._at_once += size + CALL_BYTES
        if self._at_once >= YIELD_BYTES:
            self._at_once = 0
            await asyncio.sleep(0)
        return size


class _Plain(_Yielding):
    """Bytes go from where they are straight to the kernel."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self.peer = peer
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        #: Buffer for what comes next, and the future of the task that waits for it.
        self._wanted: tuple[memoryview, asyncio.Future[int]] | None = None
        self._watched = False

    async def receive_into(self, buffer: memoryview) -> int:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            return await self._took(self._sock.recv_into(buffer))
        if not self._watched:  # and it stays so from one wait to the next
            self._loop.add_reader(self._sock.fileno(), self._came)
            self._watched = True
        came: asyncio.Future[int] = self._loop.create_future()
        self._wanted = buffer, came
        try:
            return await came
        finally:
            self._wanted = None

    def _came(self) -> None:
        if self._wanted is None or self._wanted[1].done():
            self._loop.remove_reader(self._sock.fileno())  # until somebody waits
            self._watched = False
            return
        buffer, came = self._wanted
        try:
            came.set_result(self._sock.recv_into(buffer))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            came.set_exception(without_frames(error))

    async def send(self, buffers: Sequence[Buffer]) -> None:
        sent = 0
        with contextlib.suppress(BlockingIOError, InterruptedError):
            sent = self._sock.sendmsg(buffers)
        rest = _unsent(buffers, sent)
        if not rest:
            await self._took(sent)
        for view in rest:
            await self._loop.sock_sendall(self._sock, view)

    def close(self) -> None:
        # Call it after the tasks that wait for the socket are cancelled.
        self._watched = False
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()


class _Encrypted(_Yielding):
    """TLS, which copies."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str
    ) -> None:
        self.peer = peer
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=TLS_PENDING_BYTES)

    async def receive_into(self, buffer: memoryview) -> int:
        data = await self._reader.read(len(buffer))
        buffer[: len(data)] = data
        return await self._took(len(data))

    async def send(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self._writer.write(buffer)
            await self._writer.drain()
        await asyncio.sleep(0)

    def close(self) -> None:
        self._writer.transport.abort()


def _unsent(buffers: Sequence[Buffer], sent: int) -> list[memoryview]:
    """What is left of buffers of which the first `sent` bytes are gone."""
    rest: list[memoryview] = []
    for buffer in buffers:
        size = len(buffer)
        if sent < size:
            rest.append(memoryview(buffer)[sent:])
        sent = max(sent - size, 0)
    return rest


# ---- making them ----

#: A child of a fork would keep connections and ports open that its parent has closed.
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _leave_in_child() -> None:
    for sock in list(_sockets):
        with contextlib.suppress(OSError):
            os.close(sock.detach())
    _sockets.clear()


os.register_at_fork(after_in_child=_leave_in_child)


def listener(address: str, backlog: int) -> socket.socket:
    """A socket that accepts connections at "address:port". Raises ConfigError, OSError."""
    host, port = split_address("listen", address)
    try:
        found = lookup(host, port, socket.AI_PASSIVE).result(HANDSHAKE_S)
    except socket.gaierror as error:
        raise ConfigError("listen", address, f"no such address: {error.strerror}") from None
    except TimeoutError:
        text = f"the system has named no address in {HANDSHAKE_S:g} s"
        raise TimeoutError(errno.ETIMEDOUT, text, address) from None
    family, kind, protocol, _, place = found[0]
    sock = socket.socket(family, kind, protocol)
    _sockets.add(sock)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(min(backlog, BACKLOG_MOST))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, os.strerror(error.errno or errno.EIO), address) from error
    return sock


async def accept(listening: socket.socket) -> tuple[socket.socket, Any]:
    """The next connection to a listener, and its address. Raises OSError.

    `loop.sock_accept` may take a connection in the moment in which it is cancelled: that is lost, and
    the loop logs an InvalidStateError.
    """
    loop = asyncio.get_running_loop()
    while True:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            sock, address = listening.accept()
            sock.setblocking(False)
            return sock, address
        came = asyncio.Event()
        loop.add_reader(listening, came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(listening)


async def accepted(sock: socket.socket, peer: str, tls: ssl.SSLContext | None) -> Channel:
    """The channel of a connection that a listener has accepted. Raises OSError."""
    _prepare(sock)
    if tls is None:
        return _Plain(sock, peer)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=YIELD_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    return _Encrypted(reader, writer, peer)


async def connected(address: str, tls: ssl.SSLContext | None) -> Channel:
    """A channel to "host:port". Raises ConfigError, OSError; TimeoutError is one."""
    host, port = split_address("master", address)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(HANDSHAKE_S):
        try:
            found = await asyncio.wrap_future(lookup(host, port))
        except socket.gaierror as error:
            raise socket.gaierror(error.errno, f"host {host!r}: {error.strerror}") from None
        last: OSError | None = None
        for family, kind, protocol, _, place in found:
            sock = socket.socket(family, kind, protocol)
            _prepare(sock)
            try:
                await loop.sock_connect(sock, place)
                if tls is None:
                    return _Plain(sock, address)
                reader, writer = await asyncio.open_connection(
                    sock=sock, ssl=tls, server_hostname=host, limit=TLS_PENDING_BYTES
                )
                return _Encrypted(reader, writer, address)
            except OSError as error:
                last = error
                sock.close()
            except BaseException:
                sock.close()
                raise
    raise last or OSError(errno.EHOSTUNREACH, "no address", address)


def _prepare(sock: socket.socket) -> None:
    _sockets.add(sock)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
