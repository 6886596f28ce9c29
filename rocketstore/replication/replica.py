"""The replica: follows the master of one open store, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketstore.errors import BackpressureError, DivergedError, ReplicationError
from rocketstore.log.layout.ordered_cut import order_cut
from rocketstore.replication.compared_log import CopyLog
from rocketstore.replication.frames import DATA_MOST
from rocketstore.replication.handshake import FinalError
from rocketstore.replication.incoming import Incoming
from rocketstore.replication.link import CutTo, Data, Event, Heartbeat
from rocketstore.replication.session import ReplicaSession
from rocketstore.replication.transport import LoopThread, connected
from rocketstore.values.threads import start_thread

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.replication.settings import Replica
    from rocketstore.replication.transport import Channel

__all__ = ["MustOpenAgainError", "ReplicaService", "first_contact"]

logger = logging.getLogger(__name__)

#: What one read takes, bytes: a whole frame of data.
RECEIVE_BYTES: Final = DATA_MOST + (64 << 10)
#: Between two looks at how far the disk is, while it is behind what was received, seconds.
SYNC_LOOK_S: Final = 0.002
#: Longest first talk with a master, before a store is used, seconds.
FIRST_CONTACT_S: Final = 10.0


class MustOpenAgainError(ReplicationError):
    """The log has to begin or to end at another offset than it does, which no open store can do.
    The order is on the disk; the next open carries it out."""


@dataclass(slots=True)
class _Counts:
    connections: int = 0
    bytes_received: int = 0


class ReplicaService:
    """What one open store does to be a copy. A guest of the engine: it ends with the store."""

    def __init__(self, engine: WritingEngine, settings: Replica) -> None:
        self.settings = settings
        #: What stopped the copy for good; None while it goes on.
        self.error: ReplicationError | None = None
        #: Why the last connection ended.
        self.last_error: Exception | None = None
        self.connected = False
        self._counts = _Counts()
        self._engine = engine
        self._session: ReplicaSession | None = None
        self._heard_at = time.monotonic()
        self._thread = LoopThread("rocketstore-replica", self._serve)

    def start(self) -> None:
        """Raises OSError where the system has no thread left."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the connection. Idempotent."""
        self._thread.stop()

    @property
    def connections(self) -> int:
        """How many there have been."""
        return self._counts.connections

    @property
    def bytes_received(self) -> int:
        """Bytes of the log that came."""
        return self._counts.bytes_received

    @property
    def master_end(self) -> int | None:
        """Where the master's log ended when it last said so; None before."""
        return None if self._session is None else self._session.master_end

    async def _serve(self) -> None:
        pause_s = self.settings.reconnect_every.total_seconds()
        while True:
            try:
                await self._follow()
            except (FinalError, DivergedError, MustOpenAgainError) as error:
                self.error = error
                logger.error("%s: the copy does not go on: %s", self._engine.path, error)
                return
            except (ReplicationError, OSError, BackpressureError) as error:
                if str(error) != str(self.last_error):
                    logger.warning("%s: %s: %s", self._engine.path, self.settings.master, error)
                self.last_error = error
            finally:
                self.connected = False
            await asyncio.sleep(pause_s)

    async def _follow(self) -> None:
        """One connection, from its first byte to its last."""
        settings = self.settings
        with contextlib.closing(await connected(settings.master, settings.tls)) as channel:
            self._counts.connections += 1
            self._session = session = _session(self._engine, settings)
            connection = _Connection(self._engine, channel, session, settings, self._came)
            tasks = [
                asyncio.create_task(connection.receive()),
                asyncio.create_task(connection.report()),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                task.result()

    def _came(self, size: int) -> None:
        self.connected = True
        self._counts.bytes_received += size


class _Connection:
    """Everything happens in the loop."""

    def __init__(
        self,
        engine: WritingEngine,
        channel: Channel,
        session: ReplicaSession,
        settings: Replica,
        on_data: Callable[[int], object],
    ) -> None:
        """`on_data(size)`: so many bytes came; 0: the master accepts this copy, or has nothing
        new."""
        self._on_data = on_data
        self._engine = engine
        self._log = engine.commit_log.log
        self._channel = channel
        self._session = session
        self._settings = settings
        self._sending = asyncio.Lock()
        self._came = asyncio.Event()
        self._incoming: Incoming | None = None
        self._asked = False

    async def receive(self) -> None:
        """Takes what the master says until it says no more.

        Raises:
            ReplicationError: it said what it may not, or nothing for too long.
            MustOpenAgainError: this log has to begin or end elsewhere.
            OSError: the connection broke.
        """
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        silence_s = self._settings.silence_limit.total_seconds()
        await self._channel.send(self._session.start())
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    size = await self._channel.receive_into(buffer)
            except TimeoutError:
                raise ConnectionError(f"the master said nothing for {silence_s:g} s") from None
            if not size:
                raise ConnectionError("the master ended the connection")
            try:
                for event in self._session.receive(buffer[:size]):
                    self._take(event)
            finally:
                await self._send(self._session.replies())
            if self._session.ready and not self._asked:
                self._asked = True
                await self._send(self._session.ask(0))

    async def report(self) -> None:
        """Says how far this copy is: at once, when its disk has more, and as a heartbeat."""
        every_s = self._settings.heartbeat_every.total_seconds()
        said, at = (-1, -1), 0.0
        while True:
            self._came.clear()
            if self._incoming is None:
                await self._came.wait()
                continue
            now = time.monotonic()
            here = (self._engine.positions.wrote, self._engine.positions.flushed)
            if here[1] != said[1] or now - at >= every_s:
                await self._send(self._session.acknowledge(*here))
                said, at = here, now
            wait_s = SYNC_LOOK_S if here[1] < here[0] else max(at + every_s - now, SYNC_LOOK_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._came.wait()

    async def _send(self, buffers: object) -> None:
        if buffers:
            async with self._sending:
                await self._channel.send(buffers)  # type: ignore[arg-type]

    def _take(self, event: Event) -> None:
        if isinstance(event, Heartbeat):
            if self._incoming is None:
                self._begin(event.offset)
            self._on_data(0)
        elif isinstance(event, CutTo):
            raise _ordered(self._engine, event.offset)
        elif isinstance(event, Data):
            assert self._incoming is not None
            for piece in self._incoming.take(event.data):
                self._log.append_raw(piece.offset, piece.data)
            self._log.request_flush(self._engine.positions.wrote)
            self._on_data(len(event.data))
        self._came.set()

    def _begin(self, offset: int) -> None:
        wrote = self._engine.positions.wrote
        if offset != wrote:
            raise _ordered(self._engine, offset)
        ring = self._engine.write.ring
        most = DATA_MOST if ring is None else ring.size // 2
        segment_bytes = self._engine.config.commit_log_file_size_bytes
        self._incoming = Incoming(offset, segment_bytes, most)


def _session(engine: WritingEngine, settings: Replica) -> ReplicaSession:
    last_file = settings.begin == "last file"
    return ReplicaSession(CopyLog(engine), settings.key, last_file=last_file)


def _ordered(engine: WritingEngine, offset: int) -> MustOpenAgainError:
    """Of a log that has to be cut at `offset`, or begins there. Nothing is appended any more."""
    wrote = engine.positions.wrote
    order_cut(engine.layout, offset)
    if wrote > offset:
        text = f"[{offset}, {wrote}) is not of the master's history, and is cut off"
    else:
        text = f"the copy begins at {offset}"
    return MustOpenAgainError(
        f"{engine.path}: {text} at the next open: close the store, and open it"
    )


def first_contact(engine: WritingEngine, settings: Replica) -> bool:
    """Talks to the master once before the store is used. True: the store has to be opened again,
    since its log is to begin or to end elsewhere. A master that is not there changes nothing."""

    found: list[bool] = []

    async def talk() -> None:
        accepted = asyncio.Event()
        async with asyncio.timeout(FIRST_CONTACT_S):
            with contextlib.closing(await connected(settings.master, settings.tls)) as channel:
                session = _session(engine, settings)
                connection = _Connection(
                    engine, channel, session, settings, lambda size: accepted.set()
                )
                receiving = asyncio.create_task(connection.receive())
                waiting = asyncio.create_task(accepted.wait())
                try:
                    await asyncio.wait((receiving, waiting), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (receiving, waiting):
                        task.cancel()
                    await asyncio.gather(receiving, waiting, return_exceptions=True)
                if not receiving.cancelled():
                    receiving.result()

    def run() -> None:
        try:
            asyncio.run(talk())
        except MustOpenAgainError:
            found.append(True)
        except (ReplicationError, OSError, BackpressureError) as error:
            logger.info("%s: %s: %s", engine.path, settings.master, error)  # it comes again

    # The caller may be in a loop of its own.
    thread = threading.Thread(target=run, name="rocketstore-first-contact", daemon=True)
    start_thread(thread)
    thread.join()
    return bool(found)
