"""The plainest copy that may say "synced": reads frames, writes and syncs them by plain calls, says so.

It checks nothing, keeps no queues and shows nothing. What puts that wait for it reach is what one
machine gives puts that wait for a copy in another of its processes.
"""

from __future__ import annotations

import os
import socket

from rocketstore.replication.protocol.compression import Codec
from rocketstore.replication.protocol.frames import (
    DATA,
    HEADER,
    Ask,
    FrameReader,
    Kind,
    frame,
)
from rocketstore.replication.protocol.handshake import Greeting
from rocketstore.replication.protocol.session import ACK

__all__ = ["keep"]

READ_BYTES = 2 << 20
FILE_BYTES = 64 << 20


def keep(address: str, path: str, segment_bytes: int) -> None:
    """Follows a master, from the last file of its log on, until that ends the connection. All goes
    into one small file, around and around."""
    host, port = address.rsplit(":", 1)
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    for _ in range(FILE_BYTES >> 20):  # blocks that were written before need no journal
        os.write(fd, bytes(1 << 20))
    os.fsync(fd)
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _meet(sock, segment_bytes)
        _follow(sock, fd)


def _meet(sock: socket.socket, segment_bytes: int) -> None:
    reader = FrameReader()
    sock.sendall(frame(Kind.HELLO, Greeting.pack(with_key=False, codec=Codec.NONE)))
    next(reader.take(memoryview(sock.recv(1 << 16))))
    ask = Ask(os.urandom(16), bytes(16), 0, 0, 0, bytes(32), True, segment_bytes, ())
    sock.sendall(frame(Kind.ASK, ask.pack()))


def _follow(sock: socket.socket, fd: int) -> None:
    buffer = memoryview(bytearray(READ_BYTES))
    have, synced = 0, 0
    while got := sock.recv_into(buffer[have:]):
        have, at, end = have + got, 0, synced
        while have - at >= HEADER.size:
            _, _, kind, _, size, _, _ = HEADER.unpack_from(buffer, at)
            body = at + HEADER.size
            if have - body < size:
                break
            if kind == Kind.DATA:
                _, offset, _, length = DATA.unpack_from(buffer, body)
                _write(fd, buffer[body + DATA.size : body + size], offset)
                end = offset + length
            at = body + size
        buffer[: have - at] = buffer[at:have]
        have -= at
        if end > synced:
            os.fdatasync(fd)
            synced = end
            sock.sendall(frame(Kind.ACK, ACK.pack(end, end)))


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        at = offset % FILE_BYTES
        done = os.pwrite(fd, data[: FILE_BYTES - at], at)
        data, offset = data[done:], offset + done
