"""The log as a copy receives it by one connection: what it asks for, compares and appends.

RocketMQ's protocol proves nothing, so a `ClassicLogReceiver` compares before it appends. The
protocol of rocketstore has done so when its first event comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from rocketstore.errors import ReplicationError
from rocketstore.replication.protocol.classic import (
    ClassicReplicaLink,
    Overlap,
)
from rocketstore.replication.protocol.compression import CODECS, Codec
from rocketstore.replication.protocol.handshake import FinalError
from rocketstore.replication.protocol.link import CutTo, Data, Event, Heartbeat, ReplicaLink
from rocketstore.replication.protocol.session import ReplicaSession
from rocketstore.replication.replica.copied_log import CopiedLog
from rocketstore.replication.settings import Replica
from rocketstore.replication.transport.channels import connected

__all__ = [
    "ANSWER_S",
    "ClassicLogReceiver",
    "LogReceiver",
    "last_file_of",
    "link_and_receiver",
]

#: Longest wait for the answer to one question, where a master keeps silent, seconds.
ANSWER_S: Final = 15.0


class LogReceiver:
    """Takes the events of one connection. `begun`: what comes is appended, so what was is
    acknowledged."""

    def __init__(self, log: CopiedLog, said_end: Callable[[], int] = int) -> None:
        """`said_end`: where the master's log ends, as it said last."""
        self.log = log
        self.begun = False
        self._said_end = said_end
        self._sent_end = 0

    @property
    def master_end(self) -> int:
        """Where the master's log ended at least, by what it said and sent."""
        return max(self._said_end(), self._sent_end)

    @property
    def caught_up(self) -> bool:
        """Whether the disk has all that the master had when it last said so."""
        return self.begun and self.log.synced >= self.master_end

    @property
    def asks(self) -> int:
        """Physical offset that is asked for."""
        return self.log.end

    @property
    def proved(self) -> int:
        """What may be acknowledged before anything came."""
        return min(self.log.end, self.asks)

    async def take(self, event: Event) -> bool:
        """Takes what the master said. True: it was data, or that there is none now."""
        if isinstance(event, Heartbeat):
            if not self.begun:
                self._begin(event.offset)
            self._sent_end = max(self._sent_end, event.offset)
        elif isinstance(event, Data):
            self._sent_end = max(self._sent_end, event.offset + len(event.data))
            await self.log.take(event.data)
        elif isinstance(event, CutTo):
            raise self.log.order_cut(event.offset)
        else:
            return False
        return True

    def _begin(self, offset: int) -> None:
        self.log.resume_at(offset)
        self.begun = True


class ClassicLogReceiver(LogReceiver):
    """With a master of RocketMQ. To it a request for offset 0 means its last file. So an empty copy
    asks for offset 1, and adds the byte at 0 itself: 0, as the size of a record is below 2^24. A
    copy with messages asks for its last bytes, and compares them."""

    def __init__(self, log: CopiedLog, begin: int | str) -> None:
        super().__init__(log)
        self._overlap: Overlap | None = None
        self._idle = 0
        self._first = b""
        if not log.empty:
            start, own = log.last_bytes()
            if not start:  # 0 asks for the last file
                start, own = 1, own[1:]
            self._overlap = Overlap(start, own)
            self._asks = start
        elif begin == "last file":
            self._asks = 0
        elif log.begin or (begin != "oldest" and begin):
            self._asks = log.begin or int(begin)
        else:
            self._asks, self._first = 1, b"\0"

    @property
    def asks(self) -> int:
        return self._asks

    @property
    def proved(self) -> int:
        """What is asked for, again: a master that reads late takes the last number for the
        request."""
        return self._asks

    @property
    def caught_up(self) -> bool:
        """A master of RocketMQ only says that it has nothing more, after a while."""
        return bool(self._idle) and super().caught_up

    @property
    def in_vain(self) -> bool:
        """Whether the master has said twice that it has nothing of what this copy needs first."""
        return not self.begun and self._idle > 1 and self._asks > 0

    async def take(self, event: Event) -> bool:
        if isinstance(event, Heartbeat):
            self._idle += 1
            return self.begun
        if not isinstance(event, Data):
            return False
        self._idle = 0
        self._sent_end = max(self._sent_end, event.offset + len(event.data))
        data = event.data
        if not self.begun:
            data = self._compared(event)
        if len(data) and not self.begun:
            if self._first and event.offset == len(self._first):
                self.log.resume_at(0)
                await self.log.take(memoryview(self._first))
            else:
                self.log.resume_at(event.offset)
            self.begun = True
        if len(data):
            await self.log.take(data)
        return True

    def _compared(self, event: Data) -> memoryview:
        """The data after what is compared. Empty data is none."""
        expected = self._asks if self._overlap is None else self._overlap.next
        if event.offset != expected and expected:
            raise ReplicationError(
                f"the master sent bytes at {event.offset}, and was asked for those at {expected}"
            )
        if self._overlap is None:
            return event.data
        rest = self._overlap.take(event.data)
        if self._overlap.over:
            self.log.resume_at(self._overlap.end)
            self.begun = True
        return rest

    def why_in_vain(self, last_file: int | None) -> ReplicationError | None:
        """What it means that nothing came, where the master's last file begins at `last_file`.
        None: its log is empty, as this one."""
        if self._overlap is None:
            if last_file is None or (last_file == 0 and self._first):
                return None
            return FinalError(
                f"the master has nothing at {self._asks - len(self._first)} any more: begin the "
                f"copy with begin='last file', or with the offset at which a file of the master's "
                f"begins (its last one: {last_file})"
            )
        if last_file is not None and last_file > self._overlap.next:
            return FinalError(
                f"this copy ends at {self.log.end}, and the master has removed what lies there: "
                "make a new copy in an empty directory"
            )
        return self._overlap.ended_early()


async def last_file_of(settings: Replica) -> int | None:
    """Where the last file of a master of RocketMQ begins; None: its log is empty. Asked in a
    connection of its own."""
    link, buffer = ClassicReplicaLink(), memoryview(bytearray(1 << 16))
    with contextlib.closing(await connected(settings.master, settings.tls)) as channel:
        await channel.send(link.ask(0))
        async with asyncio.timeout(ANSWER_S):
            while True:
                size = await channel.receive_into(buffer)
                if not size:
                    raise ConnectionError("the master ended the connection")
                for event in link.receive(buffer[:size]):
                    return event.offset if isinstance(event, Data) else None


def link_and_receiver(
    settings: Replica, log: CopiedLog, only_asks: bool
) -> tuple[ReplicaLink, LogReceiver]:
    """What a connection with these settings speaks, and what takes its events."""
    if settings.protocol == "rocketmq":
        return ClassicReplicaLink(), ClassicLogReceiver(log, settings.begin)
    last_file = settings.begin == "last file"
    codec = Codec.NONE if settings.compression is None else CODECS[settings.compression]
    session = ReplicaSession(
        log, settings.key, last_file=last_file, only_asks=only_asks, codec=codec
    )
    return session, LogReceiver(log, lambda: session.master_end)
