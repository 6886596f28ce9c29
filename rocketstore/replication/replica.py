"""The replica: follows the master of one open store, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rocketstore._native.sync.futex import EventFd
from rocketstore.errors import (
    DivergedError,
    ReplicationError,
    RocketStoreError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.replication.compared_log import CopyLog
from rocketstore.replication.courses import (
    ClassicCourse,
    CopiedLog,
    Course,
    MustOpenAgainError,
)
from rocketstore.replication.protocol.classic_replica import ClassicReplicaLink
from rocketstore.replication.protocol.handshake import FinalError
from rocketstore.replication.protocol.link import Data, Heartbeat
from rocketstore.replication.protocol.session import ReplicaSession
from rocketstore.replication.transport import LoopThread, connected
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.threads import start_thread

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.replication.protocol.link import Buffer, ReplicaLink
    from rocketstore.replication.settings import Replica
    from rocketstore.replication.transport import Channel

__all__ = ["MustOpenAgainError", "ReplicaService", "first_contact"]

logger = logging.getLogger(__name__)

#: What one read takes, bytes.
RECEIVE_BYTES: Final = 1 << 20
#: So many attempts in a row that fail in the same way at the same place are the last.
SAME_FAILURES_MOST: Final = 3
#: Kinds of trouble that are known as told, count.
TOLD_MOST: Final = 8
#: What another attempt does not change.
FINAL: Final = (
    DivergedError,
    FinalError,
    MustOpenAgainError,
    StoreClosedError,
    StoreFailedError,
)
#: Longest wait for the answer to one question, where a master keeps silent, seconds.
ANSWER_S: Final = 15.0
#: Seconds over which `bytes_per_s` is measured.
RATE_S: Final = 2.0


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
        self._course: Course | None = None
        self._failures = (0, "")
        self._told: deque[str] = deque(maxlen=TOLD_MOST)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._flushed = EventFd(self._bell)
        self._log.progress.hang(self._flushed)
        self._thread = LoopThread("rocketstore-replica", self._serve)

    def start(self) -> None:
        """Raises OSError where the system has no thread left."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the connection. Idempotent."""
        self._thread.stop()
        if self._bell >= 0 and not self._thread.alive:
            self._log.progress.take_down(self._flushed)
            bell, self._bell = self._bell, -1
            os.close(bell)

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
        """For how long this copy has not had all that the master had; 0: it has."""
        if self.master_end is None:
            return None
        since = self._lacks_since
        return 0.0 if since is None else (time.monotonic() - since) * 1000

    @property
    def caught_up(self) -> bool:
        """Whether the disk has all that the master had when it last said so."""
        return self.connected and self._course is not None and self._course.caught_up

    @property
    def bytes_per_s(self) -> float:
        """Of the log, over the last seconds."""
        return self._rate[2] if time.monotonic() - self._rate[0] < 2 * RATE_S else 0.0

    # ---- in the loop ----

    async def _serve(self) -> None:
        pause_s = self.settings.reconnect_every.total_seconds()
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

    def _note(self, error: Exception) -> bool:
        """Logs each kind of trouble once. True: it was the last attempt."""
        if str(error) not in self._told:  # one may take turns with another
            self._told.append(str(error))
            logger.warning("%s: %s: %s", self._engine.path, self.settings.master, error)
        self.last_error = without_frames(error)
        if not isinstance(error, ReplicationError):
            return False
        failure = f"{self._copy.end}: {error}"
        count, before = self._failures
        self._failures = (count + 1 if failure == before else 1, failure)
        return self._failures[0] >= SAME_FAILURES_MOST

    async def follow(self, *, until_accepted: bool = False) -> None:
        """One connection, from its first byte to its last, or until the master accepts this
        copy."""
        settings = self.settings
        with contextlib.closing(await connected(settings.master, settings.tls)) as channel:
            self.connections += 1
            link, course = _link_and_course(self._engine, settings, self._copy)
            self._course = course
            connection = _Connection(channel, link, course, self, until_accepted)
            asyncio.get_running_loop().add_reader(self._bell, self._rang, connection)
            tasks = [
                asyncio.create_task(connection.receive()),
                asyncio.create_task(connection.report()),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asyncio.get_running_loop().remove_reader(self._bell)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                task.result()

    def _rang(self, connection: _Connection) -> None:
        """The disk has more."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 8)
        connection.moved.set()

    def listen(self) -> None:
        """The bell rings at the next flush."""
        self._flushed.arm()

    def came(self, size: int, course: Course) -> None:
        """So many bytes came, or the master has nothing new."""
        if course.master_end or course.begun:
            self.master_end = max(course.master_end, self._copy.end)
        self.connected = course.begun  # with a lag that is known
        self.bytes_received += size
        now = time.monotonic()
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

    async def last_file(self) -> int | None:
        """Where the last file of a master of RocketMQ begins; None: its log is empty. Asked in a
        connection of its own."""
        settings, link = self.settings, ClassicReplicaLink()
        buffer = memoryview(bytearray(1 << 16))
        with contextlib.closing(await connected(settings.master, settings.tls)) as channel:
            await channel.send(link.ask(0))
            async with asyncio.timeout(ANSWER_S):
                while True:
                    size = await channel.receive_into(buffer)
                    if not size:
                        raise ConnectionError("the master ended the connection")
                    for event in link.receive(buffer[:size]):
                        return event.offset if isinstance(event, Data) else None


class _Connection:
    """Everything happens in the loop."""

    def __init__(
        self,
        channel: Channel,
        link: ReplicaLink,
        course: Course,
        service: ReplicaService,
        until_accepted: bool,
    ) -> None:
        self._channel = channel
        self._until_accepted = until_accepted
        self._link = link
        self._course = course
        self._service = service
        self._sending = asyncio.Lock()
        #: Set when there may be something to report.
        self.moved = asyncio.Event()
        self._asked = asyncio.Event()

    async def receive(self) -> None:
        """Takes what the master says until it says no more.

        Raises:
            ReplicationError: it said what it may not, or this copy cannot go on with it.
            OSError: the connection broke, or the master was silent for too long.
        """
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        silence_s = self._service.settings.silence_limit.total_seconds()
        await self._send(self._link.start())
        await self._ask()
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    size = await self._channel.receive_into(buffer)
            except TimeoutError:
                raise ConnectionError(f"the master said nothing for {silence_s:g} s") from None
            if not size:
                raise ConnectionError("the master ended the connection")
            try:
                for event in self._link.receive(buffer[:size]):
                    if self._until_accepted and isinstance(event, Heartbeat):
                        return
                    if await self._course.take(event):
                        came = len(event.data) if isinstance(event, Data) else 0
                        self._service.came(came, self._course)
            finally:
                await self._send(self._link.replies())
            await self._ask()
            self._course.log.sync_soon(now=size < len(buffer))
            self.moved.set()
            course = self._course
            if isinstance(course, ClassicCourse) and course.in_vain:
                error = course.why_in_vain(await self._service.last_file())
                if error is not None:
                    raise error

    async def _ask(self) -> None:
        if self._link.ready and not self._asked.is_set():
            await self._send(self._link.ask(self._course.asks))
            self._asked.set()

    async def report(self) -> None:
        """Says how far this copy is: at once, when its disk has more, and as a heartbeat."""
        every_s = self._service.settings.heartbeat_every.total_seconds()
        await self._asked.wait()
        said, at = (-1, -1), time.monotonic()
        while True:
            self._service.listen()
            self.moved.clear()
            self._service.look()
            here = self._standing()
            now = time.monotonic()
            if (self._course.begun and here[1] > said[1]) or now - at >= every_s:
                await self._send(self._link.acknowledge(*here))
                said, at = here, now
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(at + every_s - now, 0)):
                    await self.moved.wait()

    def _standing(self) -> tuple[int, int]:
        """What was received and synced, as far as it is proved to be the master's."""
        log = self._course.log
        if self._course.begun:
            return log.end, log.synced
        proved = min(log.end, self._course.asks)
        return proved, proved

    async def _send(self, buffers: Sequence[Buffer]) -> None:
        if buffers:
            async with self._sending:
                await self._channel.send(buffers)


def _link_and_course(
    engine: WritingEngine, settings: Replica, log: CopiedLog
) -> tuple[ReplicaLink, Course]:
    if settings.protocol == "rocketmq":
        return ClassicReplicaLink(), ClassicCourse(log, settings.begin)
    last_file = settings.begin == "last file"
    session = ReplicaSession(CopyLog(engine), settings.key, last_file=last_file)
    return session, Course(log, lambda: session.master_end)


def first_contact(engine: WritingEngine, settings: Replica) -> bool:
    """Talks to the master once before the store is used. True: the store has to be opened again,
    since its log is cut by that open. A master that is not there changes nothing."""
    found: list[bool] = []

    async def talk() -> None:
        service = ReplicaService(engine, settings)
        try:
            async with asyncio.timeout(ANSWER_S):
                await service.follow(until_accepted=True)
        finally:
            service.stop()

    def run() -> None:
        try:
            asyncio.run(talk())
        except MustOpenAgainError:
            found.append(True)
        except (RocketStoreError, OSError) as error:
            logger.info("%s: %s: %s", engine.path, settings.master, error)  # it comes again

    # The caller may be in a loop of its own.
    thread = threading.Thread(target=run, name="rocketstore-first-contact", daemon=True)
    start_thread(thread)
    thread.join()
    return bool(found)
