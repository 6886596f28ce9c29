"""A replica's end of RocketMQ's protocol, which does not identify the master.

So this end proves what it can: it asks for bytes that it has, and goes on only where they are the
same. `classic` has the frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketstore.errors import DivergedError, ReplicationError
from rocketstore.replication.protocol.classic import HEADER, report
from rocketstore.replication.protocol.link import Buffer, Data, Event, Heartbeat

__all__ = ["OVERLAP_BYTES", "ClassicReplicaLink", "Overlap"]

#: Bytes at the end of a copy that are compared with those of the master.
OVERLAP_BYTES: Final = 64 << 10
#: Longest frame that is believed, bytes: the buffer of a slave of RocketMQ takes no more.
FRAME_MOST: Final = 4 << 20


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
