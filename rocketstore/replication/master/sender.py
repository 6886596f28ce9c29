"""One connected replica: the log goes out, acknowledgements come in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import ReplicationError
from rocketstore.replication.master.log_source import LogSource
from rocketstore.replication.master.rates import LagTimes, Rate, RateLimit
from rocketstore.replication.master.sent_offsets import OFFSETS_EVERY_S, SentOffsets
from rocketstore.replication.protocol.compression import CodecName, codec_name
from rocketstore.replication.protocol.link import (
    Acknowledged,
    Asked,
    Buffer,
    Ended,
    Event,
    Fenced,
    MasterLink,
)
from rocketstore.replication.settings import Master
from rocketstore.replication.transport.channels import Channel
from rocketstore.replication.transport.limits import Throttle
from rocketstore.replication.transport.loop import end_tasks, in_thread
from rocketstore.values.arguments import seconds

__all__ = ["ConnectedReplica", "ReplicaSender"]

logger = logging.getLogger(__name__)

#: A connection that has not asked for the log after so long ends, seconds.
FIRST_WORD_S: Final = 10.0
#: Longest time for the last answers to a replica that is refused, seconds.
LAST_WORD_S: Final = 2.0
#: What one read takes, bytes: acknowledgements are small, and what is read takes the loop.
RECEIVE_BYTES: Final = 4 << 10
#: Reads of acknowledgements that each piece of the log allows a replica, and that it may have saved
#: up at most, counts. More reads are a flood.
ANSWERS: Final = 2
ANSWERS_MOST: Final = 64
#: Answers that wait to be sent, count: a peer that asks more and reads nothing is disconnected.
REPLIES_MAX: Final = 64
#: How often a silence is looked at within its limit, count.
TIMES_A_LIMIT: Final = 8


@dataclass(frozen=True, slots=True)
class ConnectedReplica:
    """A replica that is connected to this master.

    `sent`, `received` and `synced` are physical offsets: how far the log went out, and how far the
    replica says that it has it, and has it on its disk. `lag_bytes` is what the disk of the replica
    lacks, and `lag_ms` for how long this connection has known that it lacks some of it.
    """

    address: str
    connected_s: float
    asked: int | None
    sent: int
    received: int
    synced: int
    lag_bytes: int
    lag_ms: int
    #: Whether `replicas(n)` counts it.
    counts: bool
    #: Whether it may: a record of this log begins where it asked for the log.
    fits: bool
    bytes_sent: int
    bytes_per_s: int
    compression: CodecName | None


class ReplicaSender:
    """Serves one connection until it ends. Everything happens in the loop."""

    def __init__(
        self,
        channel: Channel,
        link: MasterLink,
        source: LogSource,
        settings: Master,
        acknowledged: Callable[[ReplicaSender, int], None],
        idle: Callable[[], None],
        fenced: Callable[[int], None],
        admit: Callable[[], None],
        *,
        throttle: Throttle,
    ) -> None:
        """`acknowledged(self, synced)`; `idle()`: this one waits until the log has grown and `wake`
        was called; `fenced(epoch)`: the peer knows a later epoch than this store has;
        `admit()`: the peer asks for the log, ReplicationError where there is no place."""
        self.link = link
        self._channel = channel
        self._source = source
        self._settings = settings
        self._acknowledged = acknowledged
        self._idle = idle
        self._fenced = fenced
        self._admit = admit
        self._woken, self._throttle = asyncio.Event(), throttle
        self._replies: deque[Buffer] = deque()
        self._began = self._heard = self._said = time.monotonic()
        self.asked: int | None = None
        #: Whether a record of this log begins where it asked for the log, if it did.
        self.fits = True
        self._counts = False
        #: Where what the replica has begins, as far as that is known.
        self.copy_begin = 0
        self.position = self.received = self.synced = 0
        self._times = LagTimes()
        # Held while an acknowledgement is taken: a replica that is seen to lack nothing counts.
        self._together = SignalSafeLock("what replicas confirmed")
        self._bytes_sent, self._expected = 0, ANSWERS_MOST
        self._rate, self._rate_limit = Rate(), RateLimit(settings.max_bytes_per_s)
        self._offsets = SentOffsets(source.groups, source.end) if link.carries_offsets else None
        #: Up to where the replica is sent the log before this end takes leave; None: it does not.
        self._last: int | None = None

    def drain(self, end: int) -> None:
        """Ends the connection once the replica has synced the log up to `end`, and was sent the
        offsets of now."""
        self._last = end
        if self._offsets is not None:
            self._offsets.end()
        self._woken.set()

    def wake(self) -> None:
        """The log may have grown."""
        self._woken.set()

    def snapshot(self) -> ConnectedReplica:
        """How far it is. Any thread may ask."""
        with self._together():
            now, lag_bytes = time.monotonic(), max(0, self._source.end() - self.synced)
            return ConnectedReplica(
                address=self._channel.peer,
                connected_s=now - self._began,
                asked=self.asked,
                sent=self.position,
                received=self.received,
                synced=self.synced,
                lag_bytes=lag_bytes,
                lag_ms=self._times.lag_ms(now),
                counts=self._counts,
                fits=self.fits,
                bytes_sent=self._bytes_sent,
                bytes_per_s=self._rate.at(now),
                compression=codec_name(self.link.codec),
            )

    async def run(self) -> None:
        """Returns when the replica has ended the connection.

        Raises:
            ReplicationError: the replica said what it may not, or nothing for too long, or asks for
                what the log does not have.
            OSError: the connection broke.
        """
        work = (self._receive(), self._send(), self._keep_time())
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(tasks)
        if self.asked is None and self._replies:  # why it is refused; no frame is under way
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(LAST_WORD_S):
                    await self._channel.send(list(self._replies))
        for task in done:
            task.result()

    # ---- in ----

    async def _receive(self) -> None:
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        while True:
            size = await self._channel.receive_into(buffer)
            if not size:
                return
            self._heard, began_s = time.monotonic(), time.thread_time()
            try:
                for event in self.link.receive(buffer[:size]):
                    self._take(event)
            finally:
                self._answer(self.link.replies())
            self._expected -= 1
            if size == len(buffer) or self._expected < 0:
                await self._throttle.pause(began_s)

    async def _keep_time(self) -> None:
        """Ends a silence, and has a heartbeat sent when one is due: no single wait has a timer."""
        silence_s = seconds("silence_limit", self._settings.silence_limit)
        heartbeat_s = seconds("heartbeat_every", self._settings.heartbeat_every)
        while True:
            limit_s, heard = silence_s, self._heard
            if self.asked is None:  # single bytes do not keep a place that others may need
                limit_s, heard = min(silence_s, FIRST_WORD_S), self._began
            now = time.monotonic()
            if now >= heard + limit_s:
                what = "for" if self.asked is not None else "that asks for the log in"
                raise ReplicationError(f"it said nothing {what} {limit_s:g} s")
            if now >= self._said + heartbeat_s or (self._offsets and self._offsets.changed):
                self._woken.set()
            due = min(heard + limit_s, max(self._said, now) + heartbeat_s)
            await asyncio.sleep(
                min(due - now, limit_s / TIMES_A_LIMIT, heartbeat_s, OFFSETS_EVERY_S)
            )

    def _answer(self, replies: Sequence[Buffer]) -> None:
        if replies:
            self._replies.extend(replies)
            if len(self._replies) > REPLIES_MAX:
                raise ReplicationError("it asks for more answers than it reads")
            self._woken.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, Acknowledged):
            self._take_acknowledged(event)
        elif isinstance(event, Asked):
            self._take_asked(event)
        elif isinstance(event, Ended):
            raise ConnectionError(event.why)
        elif isinstance(event, Fenced):
            self._fenced(event.epoch)
            raise ReplicationError(f"it knows a later epoch of this history, {event.epoch}")

    def _take_asked(self, event: Asked) -> None:
        offset, self.copy_begin = event.offset, event.begin
        begin, end = self._source.begin(), self._source.end()
        if offset > end:
            raise ReplicationError(
                f"it asks for the log from {offset} on, which ends at {end}: it has what this "
                "master lost, or is a copy of another store"
            )
        if offset == 0:  # it has nothing: from the oldest on, not from the last file (K-75)
            offset = begin
        if offset < begin:
            raise ReplicationError(
                f"it asks for the log from {offset} on, which begins at {begin}: copy the store, "
                "or begin a new replica"
            )
        try:
            self._admit()
        except ReplicationError as error:
            self.link.no_place(str(error))
            raise
        self.position = offset
        self.fits = self.link.compares or self._source.begins(offset)
        self.asked = offset
        self._woken.set()

    def _take_acknowledged(self, event: Acknowledged) -> None:
        if event.received > self.position or event.synced > event.received:
            # K-76: a replica that has what it was never sent is no copy of this log.
            raise ReplicationError(
                f"it acknowledges {event.received} ({event.synced} synced), and was sent the log "
                f"up to {self.position}"
            )
        with self._together():
            self.received, self.synced = event.received, event.synced
            self._times.acknowledged(event.synced)
            if self.fits:
                self._acknowledged(self, event.synced)
                self._counts = True
        if self._last is not None:
            self._woken.set()

    # ---- out ----

    async def _send(self) -> None:
        heartbeat_s = seconds("heartbeat_every", self._settings.heartbeat_every)
        await self._channel.send(self.link.start())
        while True:
            self._woken.clear()
            if self._replies:
                await self._channel.send([self._replies.popleft()])
                continue
            serving = self.asked is not None and self.link.ready
            if serving and self._offsets is not None and self._offsets.due(self.position):
                await self._send_offsets(self._offsets)
                continue
            if serving and self._has_all():
                return await self._send_last_word()
            if serving and await self._send_piece():
                continue
            if serving and time.monotonic() >= self._said + heartbeat_s:
                self._said = time.monotonic()
                await self._channel.send(self.link.heartbeat(self.position))
                continue
            self._idle()
            if serving and self._source.end() > self.position:
                continue  # the end moved before the log was asked to wake this task
            await self._woken.wait()

    async def _send_offsets(self, offsets: SentOffsets) -> None:
        """Sends the offsets of this store's groups that the replica was not sent yet."""
        frames = self.link.offsets(await offsets.take())
        while (one := await in_thread(next, frames, None)) is not None:
            await self._channel.send([one])
        self._said = time.monotonic()

    def _has_all(self) -> bool:
        """Whether this end takes leave, and the replica has what it is to have before."""
        if self._last is None or self.synced < self._last:
            return False
        return self._offsets is None or self._offsets.over

    async def _send_last_word(self) -> None:
        """Returns at once where the protocol has no such word, else once cancelled: the replica, which
        ends the connection, has stored what came before."""
        self.link.no_place("the master closes")
        if replies := self.link.replies():
            await self._channel.send(replies)
            await asyncio.get_running_loop().create_future()

    async def _send_piece(self) -> bool:
        """Sends the next bytes of the log. False: there are none."""
        end = self._source.end()
        if self.position >= end:
            return False
        self._times.note_end(end)
        piece = self._source.piece(
            self.position, self._rate_limit.most(self.link.data_most), not self.link.compares
        )
        if piece is None:
            raise ReplicationError(
                f"the log has no bytes at {self.position} any more: it begins at "
                f"{self._source.begin()}"
            )
        size = len(piece)
        self.position += size  # it may acknowledge before the last byte has left
        self._expected = min(self._expected + ANSWERS, ANSWERS_MOST)
        if self.link.codec:  # neither other replicas nor their acknowledgements wait for it
            frames = await in_thread(self.link.data, self.position - size, piece)
        else:
            frames = self.link.data(self.position - size, piece)
        await self._channel.send(frames)
        del piece, frames  # they keep a mapping
        self._said = now = time.monotonic()
        self._bytes_sent += size
        self._rate.add(now, size)
        await self._rate_limit.keep(now, size)
        return True
