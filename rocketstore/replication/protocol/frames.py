"""The frames of rocketstore's own protocol: a header with two checksums, and a body.

The first byte of a frame has its top bit set, which no offset of RocketMQ's protocol has. So either
side tells a peer of the other protocol by its first byte.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rocketstore._native.format.codec import crc32
from rocketstore.errors import ReplicationError
from rocketstore.replication.protocol.epochs import EPOCHS_MAX, Epoch, check_epochs
from rocketstore.replication.protocol.link import Buffer

__all__ = [
    "DATA",
    "DATA_MOST",
    "TAIL_MOST",
    "VERSION",
    "ZLIB",
    "Accept",
    "Ask",
    "Code",
    "Frame",
    "FrameReader",
    "Kind",
    "data_frame",
    "frame",
    "pack_epochs",
    "unpack_epochs",
]

MAGIC: Final = b"\xd2srp"
VERSION: Final = 1
#: Magic, version, kind, flags, bytes of the body, CRC-32 of the body, CRC-32 of what is before it.
HEADER: Final = struct.Struct(">4sBBHIII")
HEAD: Final = struct.Struct(">4sBBHII")
#: Bytes of a log in one frame: the checksum of one takes a tenth of a millisecond.
DATA_MOST: Final = 1 << 20
#: Body of a frame that is no data, bytes: a whole history with its identity.
BODY_MOST: Final = 32 << 10
#: Before the bytes of the log: term, offset of the first byte, end of the master's log, their number.
DATA: Final = struct.Struct(">IQQI")
#: Id of the replica, store id, begin and end of the log, begin and digest of its tail, whether to
#: begin late.
ASK: Final = struct.Struct(">16s16sQQQ32s?")
#: Store id, where the data begins, whether to cut there first, end of the log.
ACCEPT: Final = struct.Struct(">16sQ?Q")
EPOCH: Final = struct.Struct(">IIQ8s")
COUNT: Final = struct.Struct(">I")
OFFSET_MAX: Final = 2**63 - 1
#: Bytes at the end of a copy whose digest the master is asked to compare, while others wait.
TAIL_MOST: Final = 64 << 10
#: The bytes of the log are compressed.
ZLIB: Final = 1


class Kind(enum.IntEnum):
    """What a frame is."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    ASK = 4
    ACCEPT = 5
    DATA = 6
    ACK = 7
    HEARTBEAT = 8
    ERROR = 9


class Code(enum.IntEnum):
    """Why a peer ends a connection. The number goes over the wire."""

    PROTOCOL = 1
    AUTHENTICATION = 2
    OTHER_STORE = 3
    NO_COMMON_HISTORY = 4
    DIVERGED = 5
    REMOVED = 6
    FENCED = 7
    PROMOTED_TWICE = 8


class Frame(NamedTuple):
    """One frame. `body` is valid until the reader takes the next piece."""

    kind: Kind
    flags: int
    body: memoryview


def frame(kind: Kind, body: bytes = b"", flags: int = 0) -> bytes:
    """A frame as it is sent."""
    return _header(kind, flags, len(body), crc32(body)) + body


def data_frame(
    term: int, offset: int, end: int, data: Buffer, *, size: int | None = None
) -> Sequence[Buffer]:
    """A frame of bytes of a log; `data` goes as it is. `size`: of the bytes before they were
    compressed."""
    length = len(data)
    before = DATA.pack(term, offset, end, length if size is None else size)
    checksum = crc32(data, crc32(before))
    flags = 0 if size is None else ZLIB
    return (_header(Kind.DATA, flags, len(before) + length, checksum) + before, data)


def _header(kind: int, flags: int, size: int, checksum: int) -> bytes:
    head = HEAD.pack(MAGIC, VERSION, kind, flags, size, checksum)
    return head + COUNT.pack(crc32(head))


class FrameReader:
    """Makes frames of pieces of any size. What a peer sends is bounded before it is kept."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._found: tuple[Kind, int, int, int] | None = None  # kind, flags, size, checksum
        self._filled = 0
        # A frame that came in pieces lies in one, while the next one may begin in the other.
        self._bodies = [bytearray(), bytearray()]

    def take(self, piece: memoryview) -> Iterator[Frame]:
        """The frames that end in `piece`.

        Raises:
            ReplicationError: it is no frame of this protocol.
            ConnectionError: bytes were changed on the way.
        """
        while len(piece):
            if self._found is None:
                wanted = HEADER.size - len(self._head)
                self._head += piece[:wanted]
                piece = piece[wanted:]
                if self._head[: len(MAGIC)] != MAGIC[: len(self._head)]:
                    raise _other_protocol(self._head[0])
                if len(self._head) < HEADER.size:
                    return
                self._found, self._filled = _parse_header(bytes(self._head)), 0
                self._head.clear()
            kind, flags, size, checksum = self._found
            if self._filled == 0 and len(piece) >= size:
                body, piece = piece[:size], piece[size:]
            else:
                part = piece[: size - self._filled]
                self._keep(part, size)
                piece = piece[len(part) :]
                if self._filled < size:
                    return
                body = memoryview(self._bodies[0])[:size]
                self._bodies.reverse()
            self._found = None
            if crc32(body) != checksum:
                raise ConnectionError(f"a {kind.name} frame was changed on the way: its checksum")
            yield Frame(kind, flags, body)

    def _keep(self, part: memoryview, size: int) -> None:
        if len(self._bodies[0]) < size:
            self._bodies[0] = bytearray(size)
        memoryview(self._bodies[0])[self._filled : self._filled + len(part)] = part
        self._filled += len(part)


def _parse_header(head: bytes) -> tuple[Kind, int, int, int]:
    _, version, number, flags, size, checksum, own = HEADER.unpack(head)
    if own != crc32(head[: HEAD.size]):
        raise ConnectionError("the header of a frame was changed on the way: its checksum")
    if version != VERSION:
        raise ReplicationError(
            f"the peer speaks version {version} of the protocol, this release {VERSION}: run the "
            "same release of rocketstore on both"
        )
    try:
        kind = Kind(number)
    except ValueError:
        raise ReplicationError(f"a frame of the unknown kind {number}") from None
    data = kind is Kind.DATA
    if size > (DATA_MOST + DATA.size if data else BODY_MOST):
        raise ReplicationError(f"a {kind.name} frame of {size} bytes")
    if flags & ~(ZLIB if data else 0):
        raise ReplicationError(f"a {kind.name} frame with the flags {flags:#x}")
    return kind, flags, size, checksum


def _other_protocol(first: int) -> ReplicationError:
    if first < 0x80:
        return ReplicationError(
            "the peer speaks RocketMQ's HA protocol, or none: a broker of RocketMQ needs "
            "protocol='rocketmq'"
        )
    return ReplicationError("the peer does not speak rocketstore's protocol; is TLS on at one end?")


# ---- bodies ----


class Ask(NamedTuple):
    """What a replica says of itself. `tail`: where the bytes of `digest` begin, which end at `end`."""

    replica_id: bytes
    store_id: bytes
    begin: int
    end: int
    tail: int
    digest: bytes
    last_file: bool
    epochs: tuple[Epoch, ...]

    def pack(self) -> bytes:
        return ASK.pack(*self[:-1]) + pack_epochs(self.epochs)

    @classmethod
    def unpack(cls, body: memoryview) -> Ask:
        """ValueError for what no replica says."""
        replica_id, store_id, begin, end, tail, digest, last_file = ASK.unpack_from(
            _long(body, ASK)
        )
        if not begin <= tail <= end <= OFFSET_MAX:
            raise ValueError(f"a log [{begin}, {end}) with its tail at {tail}")
        if end - tail > TAIL_MOST:
            raise ValueError(f"a digest of {end - tail} bytes")
        epochs = unpack_epochs(body[ASK.size :])
        if epochs and not any(store_id):
            raise ValueError("a history of no store")
        return cls(replica_id, store_id, begin, end, tail, digest, bool(last_file), epochs)


class Accept(NamedTuple):
    """What a master says of itself. `start`: where its data begins. `cut`: where the replica has to
    cut its log first; then no data comes."""

    store_id: bytes
    start: int
    cut: bool
    end: int
    epochs: tuple[Epoch, ...]

    def pack(self) -> bytes:
        return ACCEPT.pack(*self[:-1]) + pack_epochs(self.epochs)

    @classmethod
    def unpack(cls, body: memoryview) -> Accept:
        """ValueError for what no master says."""
        store_id, start, cut, end = ACCEPT.unpack_from(_long(body, ACCEPT))
        epochs = unpack_epochs(body[ACCEPT.size :])
        if not start <= end <= OFFSET_MAX or not any(store_id) or not epochs:
            raise ValueError(f"data from {start} on of a log that ends at {end}")
        return cls(store_id, start, bool(cut), end, epochs)


def pack_epochs(epochs: Sequence[Epoch]) -> bytes:
    rows = (EPOCH.pack(one.term, one.run, one.start, one.id) for one in epochs)
    return COUNT.pack(len(epochs)) + b"".join(rows)


def unpack_epochs(body: memoryview) -> tuple[Epoch, ...]:
    """ValueError for what no history is."""
    (count,) = COUNT.unpack_from(_long(body, COUNT))
    if count > EPOCHS_MAX or len(body) != COUNT.size + count * EPOCH.size:
        raise ValueError(f"{count} epochs in {len(body)} bytes")
    epochs = tuple(Epoch(*row) for row in EPOCH.iter_unpack(body[COUNT.size :]))
    check_epochs(epochs)
    return epochs


def _long(body: memoryview, form: struct.Struct) -> memoryview:
    if len(body) < form.size:
        raise ValueError(f"{len(body)} bytes of {form.size}")
    return body
