"""The way of a copy through one connection: where it asks, what it compares, where it appends.

RocketMQ's protocol proves nothing, so a `ClassicCourse` compares before it appends. The protocol of
rocketstore has done so when its first event comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rocketstore._native.format.scanner import SearchBudget, resynchronise
from rocketstore.errors import BackpressureError, ReplicationError
from rocketstore.log.layout.ordered_cut import order_cut
from rocketstore.replication.compared_log import CopyLog
from rocketstore.replication.protocol.classic_replica import (
    OVERLAP_BYTES,
    ClassicReplicaLink,
    Overlap,
)
from rocketstore.replication.protocol.compression import CODECS, Codec
from rocketstore.replication.protocol.handshake import FinalError
from rocketstore.replication.protocol.link import CutTo, Data, Event, Heartbeat
from rocketstore.replication.protocol.session import ReplicaSession
from rocketstore.replication.replica.records import Incoming, Piece
from rocketstore.replication.role.state import load_state, save_state
from rocketstore.replication.transport.channels import connected

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.replication.protocol.link import ReplicaLink
    from rocketstore.replication.settings import Replica

__all__ = [
    "ANSWER_S",
    "ClassicCourse",
    "CopiedLog",
    "Course",
    "MustOpenAgainError",
    "last_file_of",
    "link_and_course",
]

#: Least length of what one append takes, and of a file's view that is compared, bytes.
APPEND_BYTES: Final = 1 << 20
#: While more and more comes, a flush is asked for as often as this, bytes: each takes the disk, and
#: a processor, from the next.
FLUSH_BYTES: Final = 32 << 20
#: What is synced where it was received, at most, bytes: less than it takes to wake another thread.
HERE_BYTES: Final = 256 << 10
#: A sync that took longer leaves the next ones to the flusher, for so long, seconds.
QUICK_S: Final = 0.1
SLOW_FOR_S: Final = 1.0
#: Before an append is tried again that found no room, seconds.
ROOM_AGAIN_S: Final = 0.01
#: Longest wait for the answer to one question, where a master keeps silent, seconds.
ANSWER_S: Final = 15.0
DISK: Final = 2


class CopiedLog:
    """The log of a store that is a copy, which grows by whole records."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._log = engine.commit_log.log
        self._incoming: Incoming | None = None
        self._wanted = 0  # up to where a flush was asked for
        self._slow_until = 0.0

    @property
    def empty(self) -> bool:
        return self.end == self.begin

    @property
    def begin(self) -> int:
        return self._engine.commit_log.begin_offset

    @property
    def end(self) -> int:
        """Everything below was received."""
        return self._engine.positions.wrote

    @property
    def synced(self) -> int:
        """Everything below is on the disk."""
        return self._engine.positions.flushed

    @property
    def segment_bytes(self) -> int:
        return self._engine.config.commit_log_file_size_bytes

    def last_bytes(self) -> tuple[int, bytes]:
        """Where the last bytes begin that are compared, and these bytes.

        Raises:
            BackpressureError: they are not on the disk in time.
        """
        end, limit_ms = self.end, self._engine.config.sync_flush_timeout_ms
        if not self._log.wait(end, DISK, limit_ms):
            raise BackpressureError(f"the copy was not flushed in {limit_ms} ms")
        start = at = self._record_before(end)
        found = bytearray()
        while at < end:
            file = self._engine.commit_log.queue.find(at)
            if file is None:
                raise ReplicationError(f"the copy lacks the file of its bytes at {at}")
            size = min(end, file.end_offset) - at
            found += file.view(at - file.start_offset, size)
            at += size
        return start, bytes(found)

    def _record_before(self, end: int) -> int:
        """Where a record begins, or the log, so that its master finds one there, too."""
        at, files = end - OVERLAP_BYTES, self._engine.commit_log.queue
        while at > self.begin and (file := files.find(at)) is not None and at > file.start_offset:
            position, to = at - file.start_offset, min(file.size, end - file.start_offset)
            found = resynchronise(file, position, to, budget=SearchBudget(), verify=0)
            if found is not None:
                return file.start_offset + found
            if file.end_offset < end:
                return file.end_offset
            at = max(at - OVERLAP_BYTES, file.start_offset)
        return max(at, self.begin)

    def order_cut(self, offset: int) -> MustOpenAgainError:
        """What lies from `offset` on is not of the master's history; nothing is appended any more."""
        layout = self._engine.layout
        state = load_state(layout)
        if state is not None and state.role == "master":  # first: what is cut was of a master
            save_state(layout, replace(state, role="replica"))
        order_cut(layout, offset)
        return MustOpenAgainError(
            f"{self._engine.path}: [{offset}, {self.end}) is not of the master's history, and is "
            "cut off at the next open: close the store, and open it"
        )

    def go_on(self, offset: int) -> None:
        """What comes next begins at `offset`: the end of the log, or where an empty one begins.

        Raises:
            FinalError: no log of ours can begin there.
        """
        if offset != self.end and not self.empty:
            raise ReplicationError(f"the master goes on at {offset}, the copy ends at {self.end}")
        if offset != self.end and offset % self.segment_bytes:
            raise FinalError(
                f"the master's file begins at {offset}, no multiple of {self.segment_bytes}: open "
                "the copy with the master's commit_log_file_size_bytes"
            )
        if offset != self.end and self._engine.commit_log.queue.files:
            raise FinalError(
                f"the master goes on at {offset}, and this copy, which is empty, has a file at "
                f"{self.end}: make a new copy in an empty directory"
            )
        config, ring = self._engine.config, self._engine.write.ring
        record_most = config.record_limit_bytes
        append_most = max(2 * record_most, APPEND_BYTES) if ring is None else ring.size
        self._incoming = Incoming(
            offset, self.segment_bytes, record_most=record_most, append_most=append_most
        )

    async def take(self, data: memoryview) -> None:
        """The next bytes. Returns once the log has what is whole of them.

        Raises:
            ReplicationError: they are no records.
            StoreFailedError, StoreClosedError, DiskFullError, OSError: as a put.
        """
        assert self._incoming is not None
        for piece in self._incoming.take(data):
            await self._append(piece)

    def sync_here(self) -> bool:
        """Brings what was received to the disk before it returns, where that is little, no flush is
        under way, and the last one was quick: the loop stands still meanwhile. False: it is not.

        Raises:
            OSError: the store has failed.
        """
        end, synced, began = self.end, self.synced, time.monotonic()
        if self._wanted > synced or end - synced > HERE_BYTES or began < self._slow_until:
            return False
        if end > synced:
            self._engine.write.flusher.flush(alone=True)  # this thread appends
            if (ended := time.monotonic()) - began > QUICK_S:
                self._slow_until = ended + SLOW_FOR_S
        return self.synced >= end

    def sync_soon(self, *, now: bool) -> None:
        """Has what was received brought to the disk: `now`, as nothing else waits to be received,
        or once it is much."""
        end = self.end
        if end > self._wanted and (now or end - self._wanted >= FLUSH_BYTES):
            self._wanted = end
            self._log.request_flush(end)

    async def _append(self, piece: Piece) -> None:
        while True:
            try:
                if piece.offset != self.end:
                    self._engine.begin_at(piece.offset)
                self._log.append_raw(piece.offset, piece.data, piece.last_record, piece.stored_ms)
            except BackpressureError:
                self._log.request_flush(self.end)
                await asyncio.sleep(ROOM_AGAIN_S)
                continue
            return


class MustOpenAgainError(ReplicationError):
    """The log has to end at another offset than it does, which no open store can do. The order is
    on the disk; the next open carries it out."""


class Course:
    """Where a connection is. `begun`: what comes is appended, so what was is acknowledged."""

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
        self.log.go_on(offset)
        self.begun = True


class ClassicCourse(Course):
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
                self.log.go_on(0)
                await self.log.take(memoryview(self._first))
            else:
                self.log.go_on(event.offset)
            self.begun = True
        if len(data):
            await self.log.take(data)
        return True

    def _compared(self, event: Data) -> memoryview:
        """The data behind what is compared. Empty data is none."""
        expected = self._asks if self._overlap is None else self._overlap.next
        if event.offset != expected and expected:
            raise ReplicationError(
                f"the master sent bytes at {event.offset}, and was asked for those at {expected}"
            )
        if self._overlap is None:
            return event.data
        rest = self._overlap.take(event.data)
        if self._overlap.over:
            self.log.go_on(self._overlap.end)
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


def link_and_course(
    engine: WritingEngine, settings: Replica, log: CopiedLog, only_asks: bool
) -> tuple[ReplicaLink, Course]:
    """What a connection with these settings speaks, and its way."""
    if settings.protocol == "rocketmq":
        return ClassicReplicaLink(), ClassicCourse(log, settings.begin)
    last_file = settings.begin == "last file"
    codec = Codec.NONE if settings.compression is None else CODECS[settings.compression]
    session = ReplicaSession(
        CopyLog(engine), settings.key, last_file=last_file, only_asks=only_asks, codec=codec
    )
    return session, Course(log, lambda: session.master_end)
