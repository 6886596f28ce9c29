"""The frames of RocketMQ's HA service (docs/format.md 13.1): no identity, no version, no checksum.

A slave sends 8 bytes, its largest physical offset; a master sends 12 bytes and then bytes of its log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from rocketstore.errors import DivergedError, ReplicationError
from rocketstore.replication.protocol.link import (
    Acknowledged,
    Asked,
    Buffer,
    Data,
    Event,
    Heartbeat,
    Offsets,
)

__all__ = [
    "HEADER",
    "OVERLAP_BYTES",
    "REPORT",
    "ClassicMasterLink",
    "ClassicReplicaLink",
    "Overlap",
    "frame_header",
    "report",
]

#: Slave to master: its largest physical offset. The first one asks, later ones acknowledge.
REPORT: Final = struct.Struct(">q")
#: Master to slave: physical offset of the first byte, and the number of bytes; 0: a heartbeat.
HEADER: Final = struct.Struct(">qi")
#: Bytes of one frame of ours. The buffer of a Java slave takes 4 MiB, and a frame has to be whole
#: in it.
SENT_DATA_MOST: Final = 2 << 20


def report(offset: int) -> bytes:
    """What a slave sends: it has everything below `offset`."""
    return REPORT.pack(offset)


def frame_header(offset: int, size: int) -> bytes:
    """What comes before `size` bytes that begin at the physical offset `offset`."""
    return HEADER.pack(offset, size)


class ClassicMasterLink:
    """The end of a master. It takes the last whole number of what has arrived, as RocketMQ does:
    earlier ones say less."""

    ready: Final = True
    compares: Final = False
    replica_id: Final = None
    carries_offsets: Final = False
    codec: Final = 0

    def __init__(self, data_most: int = SENT_DATA_MOST) -> None:
        self.data_most = data_most
        self._rest = b""
        self._asked = False

    def start(self) -> Sequence[Buffer]:
        return ()

    def receive(self, data: memoryview) -> Sequence[Event]:
        got = self._rest + bytes(data)
        whole = len(got) - len(got) % REPORT.size
        self._rest = got[whole:]
        events: list[Event] = []
        if whole and not self._asked:
            self._asked = True
            offset = _offset(got, 0)
            # Where its log begins is not said: what it is sent from here on is all that it has.
            events.append(Asked(offset, offset))
        if whole:
            offset = _offset(got, whole - REPORT.size)
            events.append(Acknowledged(offset, offset))
        return events

    def replies(self) -> Sequence[Buffer]:
        return ()

    def data(self, offset: int, data: memoryview) -> Sequence[Buffer]:
        return (frame_header(offset, len(data)), data)

    def offsets(self, offsets: Offsets) -> Iterator[Buffer]:
        return iter(())

    def heartbeat(self, offset: int) -> Sequence[Buffer]:
        return (frame_header(offset, 0),)

    def no_place(self, why: str) -> None:
        """There is no word for it."""


def _offset(data: bytes, at: int) -> int:
    offset: int = REPORT.unpack_from(data, at)[0]
    if offset < 0:
        raise ReplicationError(
            f"a replica says that its log ends at {offset}: below 0; one that speaks rocketstore's "
            "protocol needs protocol='rocketmq'"
        )
    return offset


#: Bytes at the end of a copy that are compared with those of the master.
OVERLAP_BYTES: Final = 64 << 10
#: Longest frame that is believed, bytes: the buffer of a slave of RocketMQ takes no more.
FRAME_MOST: Final = 4 << 20


# A replica's end of RocketMQ's protocol, which does not identify the master. So this end proves
# what it can: it asks for bytes that it has, and goes on only where they are the same.


class ClassicReplicaLink:
    """The end of a replica. A `ReplicaLink`: bytes of a frame are given as they come."""

    ready: Final = True
    codec: Final = 0

    def __init__(self) -> None:
        self._header = bytearray()
        self._next = -1  # where the rest of the frame begins
        self._left = 0  # of the frame that comes

    def start(self) -> Sequence[Buffer]:
        return ()

    def ask(self, offset: int) -> Sequence[Buffer]:
        return (report(offset),)

    def acknowledge(self, received: int, synced: int) -> Sequence[Buffer]:
        """One number: what is on the disk."""
        return (report(synced),)

    def replies(self) -> Sequence[Buffer]:
        return ()

    def receive(self, data: memoryview) -> Sequence[Event]:
        events: list[Event] = []
        at = 0
        while at < len(data):
            if not self._left:
                at = self._take_header(data, at, events)
                continue
            part = data[at : at + self._left]
            events.append(Data(self._next, part))
            self._next += len(part)
            self._left -= len(part)
            at += len(part)
        return events

    def _take_header(self, data: memoryview, at: int, events: list[Event]) -> int:
        to = at + HEADER.size - len(self._header)
        self._header += data[at:to]
        if len(self._header) < HEADER.size:
            return len(data)
        offset, size = HEADER.unpack(self._header)
        self._header.clear()
        if offset < 0 or not 0 <= size <= FRAME_MOST:
            raise ReplicationError(
                f"the master sent a frame of {size} bytes at {offset}: it does not speak the "
                "protocol of RocketMQ's HA service, or another one of it (controller mode)"
            )
        if size:
            self._next, self._left = offset, size
        else:
            events.append(Heartbeat(offset))
        return to


class Overlap:
    """Bytes [start, end) that this copy has, against those that the master sends first."""

    def __init__(self, start: int, own: bytes) -> None:
        self._start = start
        self._own = own
        self._seen = 0

    @property
    def end(self) -> int:
        return self._start + len(self._own)

    @property
    def over(self) -> bool:
        """Whether all of it was the same."""
        return self._seen == len(self._own)

    @property
    def next(self) -> int:
        """Physical offset of the byte that comes next."""
        return self._start + self._seen

    def take(self, data: memoryview) -> memoryview:
        """Compares what comes; gives what goes beyond.

        Raises:
            DivergedError: a byte is another one.
        """
        size = min(len(data), len(self._own) - self._seen)
        own = memoryview(self._own)[self._seen : self._seen + size]
        if data[:size] != own:
            at = self.next + next(n for n in range(size) if data[n] != own[n])
            where = f"at {at}" if at > self._start else f"from {at} on, or before"
            raise DivergedError(
                f"this copy and its master have different bytes {where} (the {len(self._own)} "
                f"bytes from {self._start} on are compared): one of them has lost what the other "
                "has; make a new copy in an empty directory",
                at,
            )
        self._seen += size
        return data[size:]

    def ended_early(self) -> DivergedError:
        """The master has nothing after `next`, where this copy goes on."""
        return DivergedError(
            f"the master's log ends at {self.next} or before, this copy at {self.end}: the master "
            "has lost what this copy has; make a new copy in an empty directory",
            self.next,
        )
