"""The frames of rocketstore's own protocol: a header with two checksums, and a body.

The first byte of a frame has its top bit set, which no offset of RocketMQ's protocol has. So either
side recognizes a peer of the other protocol by its first byte.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rocketstore._native.format.codec import crc32
from rocketstore.errors import ReplicationError
from rocketstore.replication.protocol.compression import Codec
from rocketstore.replication.protocol.epochs import EPOCHS_MAX, Epoch, check_epochs
from rocketstore.replication.protocol.link import Buffer

__all__ = [
    "DATA",
    "DATA_MOST",
    "OFFSETS_MOST",
    "TAIL_MOST",
    "VERSION",
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
#: Body of any other frame, bytes: a whole history with its identity.
BODY_MOST: Final = 32 << 10
#: Body of a frame of offsets, bytes.
OFFSETS_MOST: Final = 64 << 10
#: Before the bytes of the log: term, offset of the first byte, end of the master's log, their number.
DATA: Final = struct.Struct(">IQQI")
#: Id of the replica, store id, begin and end of the log, begin and digest of its tail, whether to
#: begin late, bytes of a segment, whether only an answer is wanted.
ASK: Final = struct.Struct(">16s16sQQQ32s?Q?")
#: Store id, where the data begins, whether to cut there first, end of the log, bytes of a segment.
ACCEPT: Final = struct.Struct(">16sQ?QQ")
EPOCH: Final = struct.Struct(">IIQ8s")
COUNT: Final = struct.Struct(">I")
OFFSET_MAX: Final = 2**63 - 1
#: Bytes at the end of a copy whose digest the master is asked to compare, while others wait.
TAIL_MOST: Final = 64 << 10


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
    OFFSETS = 10


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
    NO_PLACE = 9
    SEGMENT_BYTES = 10


#: What kinds have larger bodies, bytes.
BODY_MOST_OF: Final = {Kind.DATA: DATA_MOST + DATA.size, Kind.OFFSETS: OFFSETS_MOST}


#: Flags of a frame of data: how it is compressed.
CODEC_FLAGS: Final = frozenset(Codec)


class Frame(NamedTuple):
    """One frame. `body` is valid until the reader takes the next piece."""

    kind: Kind
    flags: int
    body: memoryview


def frame(kind: Kind, body: bytes = b"", flags: int = 0) -> bytes:
    """A frame as it is sent."""
    return _header(kind, flags, len(body), crc32(body)) + body


def data_frame(
    term: int,
    offset: int,
    end: int,
    data: Buffer,
    *,
    size: int | None = None,
    codec: Codec = Codec.NONE,
) -> Sequence[Buffer]:
    """A frame of bytes of a log; `data` goes as it is. `size`: of the bytes before they were
    compressed by `codec`."""
    length = len(data)
    before = DATA.pack(term, offset, end, length if size is None else size)
    checksum = crc32(data, crc32(before))
    return (_header(Kind.DATA, codec, len(before) + length, checksum) + before, data)


def _header(kind: int, flags: int, size: int, checksum: int) -> bytes:
    head = HEAD.pack(MAGIC, VERSION, kind, flags, size, checksum)
    return head + COUNT.pack(crc32(head))


class FrameReader:
    """Makes frames of pieces of any size. What a peer sends is bounded before it is kept."""

    def __init__(self, body_most: int | None = None) -> None:
        """`body_most`: a longer body is refused, besides those that no frame has."""
        self.body_most = body_most
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
                if self.body_most is not None and self._found[2] > self.body_most:
                    raise ReplicationError(
                        f"a {self._found[0].name} frame of {self._found[2]} bytes, before anything "
                        "was proved"
                    )
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
    if size > BODY_MOST_OF.get(kind, BODY_MOST):
        raise ReplicationError(f"a {kind.name} frame of {size} bytes")
    if flags and not (data and flags in CODEC_FLAGS):
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
    """What a replica says of itself. `tail`: where the bytes of `digest` begin, which end at `end`.
    `only_asks`: no data is to come."""

    replica_id: bytes
    store_id: bytes
    begin: int
    end: int
    tail: int
    digest: bytes
    last_file: bool
    segment_bytes: int
    epochs: tuple[Epoch, ...]
    only_asks: bool = False

    def pack(self) -> bytes:
        return ASK.pack(*self[:-2], self.only_asks) + pack_epochs(self.epochs)

    @classmethod
    def unpack(cls, body: memoryview) -> Ask:
        """ValueError for what no replica says."""
        *said, only_asks = ASK.unpack_from(_long(body, ASK))
        asked = cls._make((*said, unpack_epochs(body[ASK.size :]), only_asks))
        begin, end, tail = asked.begin, asked.end, asked.tail
        if not begin <= tail <= end <= OFFSET_MAX:
            raise ValueError(f"a log [{begin}, {end}) with its tail at {tail}")
        if end - tail > TAIL_MOST:
            raise ValueError(f"a digest of {end - tail} bytes")
        if asked.epochs and not any(asked.store_id):
            raise ValueError("a history of no store")
        return asked


class Accept(NamedTuple):
    """What a master says of itself. `start`: where its data begins. `cut`: where the replica has to
    cut its log first; then no data comes."""

    store_id: bytes
    start: int
    cut: bool
    end: int
    segment_bytes: int
    epochs: tuple[Epoch, ...]

    def pack(self) -> bytes:
        return ACCEPT.pack(*self[:-1]) + pack_epochs(self.epochs)

    @classmethod
    def unpack(cls, body: memoryview) -> Accept:
        """ValueError for what no master says."""
        store_id, start, cut, end, segment_bytes = ACCEPT.unpack_from(_long(body, ACCEPT))
        epochs = unpack_epochs(body[ACCEPT.size :])
        if not start <= end <= OFFSET_MAX or not any(store_id) or not epochs:
            raise ValueError(f"data from {start} on of a log that ends at {end}")
        return cls(store_id, start, bool(cut), end, segment_bytes, epochs)


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
