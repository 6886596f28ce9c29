"""The replica: follows the master of one open store, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from rocketstore._native.sync.futex import EventFd
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    DivergedError,
    ReplicationError,
    RocketStoreError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.replication.protocol.compression import CodecName, codec_name
from rocketstore.replication.protocol.handshake import FinalError
from rocketstore.replication.protocol.link import (
    Buffer,
    Data,
    Ended,
    Heartbeat,
    Offsets,
    ReplicaLink,
)
from rocketstore.replication.replica.copied_log import CopiedLog, MustOpenAgainError
from rocketstore.replication.replica.received_offsets import ReceivedOffsets
from rocketstore.replication.replica.receiver import (
    ANSWER_S,
    ClassicLogReceiver,
    LogReceiver,
    last_file_of,
    link_and_receiver,
)
from rocketstore.replication.role.state import load_state, note_stopped
from rocketstore.replication.settings import Replica
from rocketstore.replication.transport.channels import Channel, connected
from rocketstore.replication.transport.limits import Throttle, WarningLimit
from rocketstore.replication.transport.loop import LoopThread, end_tasks
from rocketstore.values.arguments import seconds
from rocketstore.values.kept_errors import without_frames

__all__ = ["MustOpenAgainError", "ReplicaService", "first_contact"]

logger = logging.getLogger(__name__)

#: What one read takes, bytes.
RECEIVE_BYTES: Final = 1 << 20
#: A read of more, less than half of it bytes of the log, is one of a master that floods, bytes.
LITTLE_BYTES: Final = 1 << 10
#: Events of one read after which other work of the loop runs, count.
YIELD_EVENTS: Final = 64
#: Attempts in a row that fail in the same way at the same place, count; then no other follows.
SAME_FAILURES_MOST: Final = 3
#: Errors that another attempt does not change.
FINAL: Final = (DivergedError, FinalError, MustOpenAgainError, StoreClosedError, StoreFailedError)
#: What the error adds where the master ends a connection without an ERROR frame.
HINT: Final = " before it said who it is: do both have the same tls= and protocol=?"
#: Longest time until the master has proved its key, seconds.
PROOF_S: Final = 10.0
#: Longest time at the end of a connection for offsets that came by it, seconds.
LAST_OFFSETS_S: Final = 0.8
#: Seconds over which `bytes_per_s` is measured.
RATE_S: Final = 2.0
#: Age from which the master's last frame is old, in `heartbeat_every`: one is due in each.
OLD_AFTER: Final = 1.5


class ReplicaService:
    """What one open store does to be a copy. A guest of the engine: it ends with the store."""

    def __init__(self, engine: WritingEngine, settings: Replica) -> None:
        self.settings = settings
        #: What stopped the copy for good; None while it goes on.
        self.error: BaseException | None = None
        #: Why the last connection ended.
        self.last_error: Exception | None = None
        #: Whether the master sends what is appended.
        self.connected = False
        #: How many connections there have been, and bytes of the log that came.
        self.connections = self.bytes_received = 0
        #: Where the master's log ended when it last said so; None before.
        self.master_end: int | None = None
        self._engine = engine
        self._log = engine.commit_log.log
        self._log.copy_only()
        self._copy = CopiedLog(engine)
        self._rate = (time.monotonic(), 0, 0.0)
        self._lacks_since: float | None = None
        self._heard = time.monotonic()
        state = load_state(engine.layout)
        #: Why this copy stopped, as it is kept on the disk until it goes on; empty: it goes on.
        self.kept_stop = "" if state is None else state.stopped
        self._receiver: LogReceiver | None = None
        self._link: ReplicaLink | None = None
        self._failures = (0, "")
        self._warnings = WarningLimit()
        #: Whether what the peer says may stop the copy for good.
        self._believed = False
        self._event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._flushed = EventFd(self._event_fd)
        self._log.progress.hang(self._flushed)
        self._thread = LoopThread("rocketstore-replica", self._serve)

    def start(self) -> None:
        """Raises OSError where the system has no thread left."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the connection. Idempotent."""
        self._thread.stop()
        if self._event_fd >= 0 and not self._thread.alive:
            self._log.progress.take_down(self._flushed)
            event_fd, self._event_fd = self._event_fd, -1
            os.close(event_fd)

    @property
    def stopped(self) -> BaseException | None:
        """What ended the service, if `stop` did not."""
        return self.error or self._thread.error

    @property
    def lag_bytes(self) -> int | None:
        """How far the end of the master's log was ahead of what is on this disk, when it last said
        so; None before."""
        return None if self.master_end is None else max(0, self.master_end - self._copy.synced)

    @property
    def lag_ms(self) -> float | None:
        """For how long this copy has not had all that the master had, or has not heard of it; 0: it
        has, and heard so lately."""
        if self.master_end is None:
            return None
        since, now = self._lacks_since, time.monotonic()
        if since is None and self._heard_lately(now):
            return 0.0
        return (now - (self._heard if since is None else since)) * 1000

    @property
    def caught_up(self) -> bool:
        """Whether the disk has all that the master had when it last said so, a short time ago."""
        receiver = self._receiver
        heard = self._heard_lately(time.monotonic())
        return self.connected and heard and receiver is not None and receiver.caught_up

    def _heard_lately(self, now: float) -> bool:
        return now - self._heard < OLD_AFTER * seconds(
            "heartbeat_every", self.settings.heartbeat_every
        )

    @property
    def compression(self) -> CodecName | None:
        """How the master compresses what it sends, while it is connected."""
        return None if self._link is None else codec_name(self._link.codec)

    @property
    def bytes_per_s(self) -> float:
        """Of the log, over the last seconds."""
        return self._rate[2] if time.monotonic() - self._rate[0] < 2 * RATE_S else 0.0

    # ---- in the loop ----

    async def _serve(self) -> None:
        pause_s = seconds("reconnect_every", self.settings.reconnect_every)
        while True:
            try:
                await self.follow()
            except FINAL as error:
                return self._end(error)
            except (RocketStoreError, OSError) as error:
                if self._note(error):
                    return self._end(error)
            finally:
                self.connected = False
            await asyncio.sleep(pause_s)

    def _end(self, error: BaseException) -> None:
        self.error = without_frames(error)
        logger.error("%s: the copy does not go on: %s", self._engine.path, error)
        if not isinstance(error, MustOpenAgainError | StoreClosedError):
            self._keep_stop(str(error))

    def _keep_stop(self, why: str) -> None:
        """Stores the reason for readers of the files. Where that fails, the status still has it."""
        if why != self.kept_stop:
            self.kept_stop = why
            with contextlib.suppress(OSError, ReplicationError):
                note_stopped(self._engine.layout, why)

    def _note(self, error: Exception) -> bool:
        """Logs each kind of trouble once. True: it was the last attempt."""
        if not str(error):  # such as that of a TLS that the peer broke off
            error = ConnectionError(f"the connection broke: {type(error).__name__}")
        line = self._warnings.line(str(error), str(error))
        if line is not None:
            logger.warning("%s: %s: %s", self._engine.path, self.settings.master, line)
        self.last_error = without_frames(error)
        if not isinstance(error, ReplicationError):
            if isinstance(error, RocketStoreError):  # of this store, such as a full disk
                self._keep_stop(str(error))
            return False
        if not self._believed:
            return False
        failure = f"{self._copy.end}: {error}"
        count, before = self._failures
        self._failures = (count + 1 if failure == before else 1, failure)
        return self._failures[0] >= SAME_FAILURES_MOST

    async def follow(self, *, until_accepted: bool = False) -> None:
        """One connection, from its first byte to its last, or until the master accepts this
        copy."""
        settings = self.settings
        self._believed = False
        with contextlib.closing(await connected(settings.master, settings.tls)) as channel:
            self.connections += 1
            link, receiver = link_and_receiver(settings, self._copy, until_accepted)
            self._receiver, self._link = receiver, link
            connection = _Connection(channel, link, receiver, self, until_accepted)
            asyncio.get_running_loop().add_reader(self._event_fd, self._on_flush, connection)
            work = [connection.receive()]
            if not until_accepted:
                work += [connection.report(), connection.offsets.keep()]
            tasks = [asyncio.create_task(one) for one in work]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._believed = settings.key is None or link.ready
                try:
                    if not until_accepted:
                        await connection.keep_last(*tasks)
                finally:
                    asyncio.get_running_loop().remove_reader(self._event_fd)
                    await end_tasks(tasks)
            for task in done:
                task.result()

    def _on_flush(self, connection: _Connection) -> None:
        """The disk has more."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._event_fd, 8)
        connection.moved.set()
        connection.offsets.look()

    def listen(self) -> None:
        """The next flush moves the eventfd."""
        self._flushed.arm()

    def ignore(self) -> None:
        """No flush moves the eventfd."""
        self._flushed.disarm()

    def came(self, size: int, receiver: LogReceiver) -> None:
        """`size` bytes came, or the master has nothing new."""
        if receiver.master_end or receiver.begun:
            self.master_end = max(receiver.master_end, self._copy.end)
        self.connected = receiver.begun  # with a lag that is known
        if receiver.begun:
            self._keep_stop("")
        self.bytes_received += size
        now = self._heard = time.monotonic()
        began, before, _ = self._rate
        if now - began >= RATE_S:
            rate = (self.bytes_received - before) / (now - began)
            self._rate = (now, self.bytes_received, rate)
        self.look()

    def look(self) -> None:
        """Notes since when the disk lacks something."""
        if not self.lag_bytes:
            self._lacks_since = None
        elif self._lacks_since is None:
            self._lacks_since = time.monotonic()


class _Connection:
    """Everything happens in the loop."""

    def __init__(
        self,
        channel: Channel,
        link: ReplicaLink,
        receiver: LogReceiver,
        service: ReplicaService,
        until_accepted: bool,
    ) -> None:
        self._channel = channel
        self._until_accepted = until_accepted
        self._link = link
        self._receiver = receiver
        self._service = service
        self._sending, self._throttle = asyncio.Lock(), Throttle()
        self.offsets = ReceivedOffsets(service._engine, service._note, service.listen)
        #: Set when there may be something to report.
        self.moved = asyncio.Event()
        self._asked = asyncio.Event()
        self._every_s = seconds("heartbeat_every", service.settings.heartbeat_every)
        self._said, self._said_at = -1, time.monotonic()

    async def receive(self) -> None:
        """Takes what the master says until it says no more.

        Raises:
            ReplicationError: it said what it may not, or this copy cannot go on with it.
            OSError: the connection broke, or the master was silent for too long.
        """
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        silence_s = seconds("silence_limit", self._service.settings.silence_limit)
        until_s = time.monotonic() + min(silence_s, PROOF_S)
        await self._send(self._link.start())
        await self._ask()
        while True:
            left_s = silence_s if self._link.ready else until_s - time.monotonic()
            try:
                async with asyncio.timeout(left_s):
                    await self._say()
                    size = await self._channel.receive_into(buffer)
            except TimeoutError:
                what = f"nothing for {silence_s:g} s" if self._link.ready else "not who it is"
                raise ConnectionError(f"the master said {what}") from None
            if not size:
                hint = "" if self._link.ready else HINT
                raise ConnectionError(f"the master ended the connection{hint}")
            began_s, log_bytes = time.thread_time(), self._service.bytes_received
            try:
                for count, event in enumerate(self._link.receive(buffer[:size])):
                    if count % YIELD_EVENTS == YIELD_EVENTS - 1:
                        await asyncio.sleep(0)
                    if self._until_accepted and isinstance(event, Heartbeat):
                        return
                    if isinstance(event, Offsets):
                        self.offsets.take(event)
                    elif isinstance(event, Ended):
                        raise ConnectionError(event.why)
                    elif await self._receiver.take(event):
                        came = len(event.data) if isinstance(event, Data) else 0
                        self._service.came(came, self._receiver)
            finally:
                await self._send(self._link.replies())
            await self._ask()
            self._sync(last=size < len(buffer))
            if 2 * (self._service.bytes_received - log_bytes) < size > LITTLE_BYTES:
                await self._throttle.pause(began_s)
            receiver = self._receiver
            if isinstance(receiver, ClassicLogReceiver) and receiver.in_vain:
                error = receiver.why_in_vain(await last_file_of(self._service.settings))
                if error is not None:
                    raise error

    async def _ask(self) -> None:
        if self._link.ready and not self._asked.is_set():
            await self._send(self._link.ask(self._receiver.asks))
            self._asked.set()

    def _sync(self, *, last: bool) -> None:
        """Of what was received. `last`: nothing else waits to be received."""
        log, service = self._receiver.log, self._service
        service.ignore()
        if last and log.sync_here():
            service.look()
            self.offsets.look()
            return
        service.listen()
        log.sync_soon(now=last)
        self.moved.set()

    async def report(self) -> None:
        """Says how far this copy is when a flush of another thread has ended, and as a
        heartbeat."""
        await self._asked.wait()
        while True:
            self._service.listen()
            self.moved.clear()
            self._service.look()
            await self._say()
            left_s = self._said_at + self._every_s - time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(left_s, 0)):
                    await self.moved.wait()

    async def _say(self) -> None:
        """How far this copy is, where its disk has more than it said, or a heartbeat is due."""
        if self._until_accepted or not self._asked.is_set():
            return
        async with self._sending:  # so that what is said later says no less
            here, now = self._progress(), time.monotonic()
            more = self._receiver.begun and here[1] > self._said
            if more or now >= self._said_at + self._every_s:
                self._said, self._said_at = here[1], now
                await self._channel.send(self._link.acknowledge(*here))

    def _progress(self) -> tuple[int, int]:
        """What was received and synced, as far as it is proved to be the master's."""
        log = self._receiver.log
        if self._receiver.begun:
            return log.end, log.synced
        return self._receiver.proved, self._receiver.proved

    async def keep_last(self, *work: asyncio.Task[None]) -> None:
        """Stores the offsets that came, or after some time not: the master may be gone for good."""
        *others, keeping = work
        await end_tasks(others)
        self._receiver.log.sync_soon(now=True)
        self.offsets.end()
        await asyncio.wait([keeping], timeout=LAST_OFFSETS_S)

    async def _send(self, buffers: Sequence[Buffer]) -> None:
        if buffers:
            async with self._sending:
                await self._channel.send(buffers)


def first_contact(engine: WritingEngine, settings: Replica) -> bool:
    """Talks to the master once before the store is used. True: the store has to be opened again,
    since its log is cut by that open. A master that is not there changes nothing."""
    found: list[bool] = []

    async def talk() -> None:
        service = ReplicaService(engine, settings)
        try:
            async with asyncio.timeout(ANSWER_S):
                await service.follow(until_accepted=True)
        except MustOpenAgainError:
            found.append(True)
        except (RocketStoreError, OSError) as error:
            logger.info("%s: %s: %s", engine.path, settings.master, error)  # it comes again
        finally:
            service.stop()

    # The caller may be in a loop of its own.
    contact = LoopThread("rocketstore-first-contact", talk)
    try:
        contact.start()
        contact.wait()
    finally:  # the caller was interrupted, and closes the store
        contact.stop()
    return bool(found)
