"""One connection of a hostile peer: frames that may be said, often, and such as are none."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import socket
import ssl
import zlib
from collections import Counter
from pathlib import Path
from typing import Final

from rocketstore.replication.protocol import frames
from rocketstore.replication.protocol.epochs import NUMBER_MAX, RISE_MOST, Epoch
from rocketstore.replication.protocol.frames import Code, FrameReader, Kind, frame
from rocketstore.replication.protocol.handshake import ERROR
from tests.replication.certificates import contexts

__all__ = [
    "NO_TERMS",
    "NUMBERS",
    "PATIENCE_S",
    "Peer",
    "Plan",
    "an_error",
    "changed",
    "connected",
    "some_epochs",
    "tls_of",
]

#: Longest wait for an answer, seconds: a peer that is not answered does something else.
PATIENCE_S: Final = 0.3
#: Allowed frames before something else, count.
RUNS: Final = (0, 1, 30, 3000, 30_000)
PIECE: Final = 512
#: At the ends of what fields hold, besides those about the end of a log.
NUMBERS: Final = (0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NO_TERMS: Final = (0, 2 + RISE_MOST, 2**31, NUMBER_MAX - 1, NUMBER_MAX)


@dataclasses.dataclass(frozen=True)
class Plan:
    """`role`: of what is attacked. `address`: where that listens. `log`: bytes of its log, for a peer
    that has to have the same. `scenes`: their names, "" for all; `alone`: no two frames go at once."""

    role: str
    protocol: str
    seed: int
    segment_bytes: int
    address: str = ""
    certificate: str = ""
    key: bool = False
    connections: int = 4
    log: str = ""
    scenes: str = ""
    alone: bool = False


class Peer:
    """One connection of a hostile peer."""

    def __init__(self, sock: socket.socket, rng: random.Random, plan: Plan, said: Counter[str]):
        self.sock, self.rng, self.plan, self._said = sock, rng, plan, said
        self._reader, self._heard = FrameReader(), list[frames.Frame]()
        sock.settimeout(PATIENCE_S)

    def say(self, *parts: bytes, count: int | None = None) -> None:
        self.sock.sendall(b"".join(parts))
        self._said["frames"] += len(parts) if count is None else count

    def say_often(self, one: bytes) -> None:
        """An allowed frame, without a pause, in large pieces or each in one of its own."""
        count = self.rng.choice(RUNS)
        if self.plan.alone or self.rng.random() < 0.3:
            for _ in range(count):
                self.say(one)
            return
        for begun in range(0, count, PIECE):
            self.say(one * min(PIECE, count - begun), count=min(PIECE, count - begun))

    def hear(self, kind: Kind) -> memoryview:
        while True:
            for one in self._heard:
                if one.kind is kind:
                    self._heard.remove(one)
                    return one.body
            data = self.sock.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            self._heard += [
                one._replace(body=memoryview(bytes(one.body)))
                for one in self._reader.take(memoryview(data))
            ]

    def number(self, *near: int) -> int:
        found = [one + step for one in near for step in (-1, 0, 1)]
        return self.rng.choice([*NUMBERS, *found]) % 2**64

    def end(self) -> None:
        """It hears the last word, or not."""
        with contextlib.suppress(OSError):
            while self.rng.random() < 0.7 and self.sock.recv(1 << 16):
                pass


def changed(peer: Peer, kind: Kind, body: bytes, within: int = 1 << 20) -> bytes:
    """A frame that is none, or another one; most have right checksums. `within`: how much of the body
    may be changed below a right checksum, bytes."""
    rng, at = peer.rng, peer.rng.randrange(max(1, min(within, len(body))))
    how = rng.randrange(8)
    if how == 0:
        whole = bytearray(frame(kind, body))
        whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        return bytes(whole)
    if how == 1:
        return rng.randbytes(rng.randrange(1, 300))
    if how == 2:
        return frame(kind, body[:at])
    if how == 3:
        return frame(kind, body + rng.randbytes(rng.randrange(1, 1200)))
    if how == 4:
        number = rng.randrange(256)
        return frames._header(number, rng.choice((0, 1, 2, 9)), len(body), zlib.crc32(body)) + body
    if how == 5:
        return frames._header(kind, 0, rng.choice((2**16, 2**20, 2**32 - 1)), 0) + body
    if how == 6:
        return frame(rng.choice(list(Kind)), body, rng.choice((0, 0, 1, 2, 0xFFFF)))
    other = bytearray(body or b"\0")
    other[at] ^= 1 << rng.randrange(8)
    return frame(kind, bytes(other))


def an_error(peer: Peer) -> bytes:
    code = peer.rng.choice([0, 11, 65535, *Code])
    text = peer.rng.choice((b"", b"\xff\n\x1b[2J" * 9, b"x" * 1000, b"x" * 3000))
    return frame(Kind.ERROR, ERROR.pack(code, peer.number()) + text)


def some_epochs(peer: Peer, *known: Epoch) -> tuple[Epoch, ...]:
    """What no history of the store goes on with."""
    rng = peer.rng
    made = tuple(
        Epoch(rng.choice(NO_TERMS), rng.choice((0, 1, NUMBER_MAX)), peer.number(), rng.randbytes(8))
        for _ in range(rng.choice((0, 1, 2, 40)))
    )
    return (*known, *made)[: rng.choice((1, 9, 2000))]


@functools.cache
def tls_of(certificate: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts(Path(certificate))


def connected(plan: Plan) -> socket.socket:
    host, port = plan.address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), PATIENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not plan.certificate:
        return sock
    return tls_of(plan.certificate)[1].wrap_socket(sock, server_hostname=host)
