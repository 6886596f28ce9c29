"""The frames of RocketMQ's HA service (docs/format.md 13.1): no identity, no version, no checksum.

A slave sends 8 bytes, its largest physical offset; a master sends 12 bytes and then bytes of its log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from rocketstore.errors import ReplicationError
from rocketstore.replication.protocol.link import Acknowledged, Asked, Buffer, Event, Offsets

__all__ = [
    "HEADER",
    "REPORT",
    "ClassicMasterLink",
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
