"""The master: accepts replicas and sends them the log of one open store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final

from rocketstore._native.sync.futex import EventFd
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ReplicationError, StoreClosedError
from rocketstore.replication.master.log_source import MasterLog, log_source_of
from rocketstore.replication.master.quorum import Quorum
from rocketstore.replication.master.sender import ConnectedReplica, ReplicaSender
from rocketstore.replication.protocol.classic import ClassicMasterLink
from rocketstore.replication.protocol.link import MasterLink
from rocketstore.replication.protocol.session import MasterSession
from rocketstore.replication.role.fence import fence_of
from rocketstore.replication.role.lease import keep_lease
from rocketstore.replication.role.startup import take_master_role
from rocketstore.replication.role.state import load_state
from rocketstore.replication.settings import Master
from rocketstore.replication.transport.channels import accept, accepted, listener
from rocketstore.replication.transport.limits import (
    PENDING_MOST,
    PendingConnections,
    Throttle,
    WarningLimit,
)
from rocketstore.replication.transport.loop import LoopThread, end_tasks
from rocketstore.values.arguments import seconds
from rocketstore.values.kept_errors import without_frames

__all__ = ["MasterService", "begin_master"]

logger = logging.getLogger(__name__)

#: After an accept that failed, as when descriptors ran out, seconds.
ACCEPT_AGAIN_S: Final = 0.2
#: Longest time at the end of a store for what replicas lack, seconds.
DRAIN_S: Final = 0.8


class MasterService:
    """What one open store does for its replicas. A guest of the engine: it ends with the store."""

    def __init__(self, engine: WritingEngine, settings: Master) -> None:
        """Raises ConfigError, OSError: there is no listening at this address."""
        self.settings = settings
        #: Why the last connection that went wrong ended.
        self.last_error: ReplicationError | None = None
        #: Called in the loop when a peer knows a later epoch of this history than this store.
        self.on_later_epoch: Callable[[int], None] | None = None
        #: How many connections there have been, and asked for the log while there were
        #: `max_replicas`.
        self.connections = self.refused = 0
        self._bytes_sent = 0  # by connections that have ended
        self._engine = engine
        self._log = engine.commit_log.log
        copies = self._log.group.keep_copies()
        copies.timeout_ms = int(seconds("replica_timeout", settings.replica_timeout) * 1000)
        copies.max_lag_bytes = settings.max_lag_bytes
        self._quorum = Quorum(self._log.group.confirm)
        self._counted: dict[Hashable, ReplicaSender] = {}
        self._source = log_source_of(engine)
        state = load_state(engine.layout) or take_master_role(engine)
        self._compared = MasterLog(engine, state)
        # Replaced as a whole: any thread looks.
        self._senders: Mapping[asyncio.Task[None], ReplicaSender] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending, self._throttle = PendingConnections(), Throttle()
        self._warnings = (WarningLimit(), WarningLimit())  # of unknown peers, of replicas
        self._listener = listener(settings.listen, settings.max_replicas + PENDING_MOST)
        self.address = _text(self._listener.getsockname())
        self._event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._moved = EventFd(self._event_fd)
        self._log.dispatch_signal.hang(self._moved)
        self._thread = LoopThread(name="rocketstore-master", main=self._serve)
        engine.guests.hold("a replica", self._needs_from)

    def start(self) -> None:
        """Raises OSError where the system has no thread left."""
        self._thread.start()

    def stop(self) -> None:
        """Ends all connections; replicas that are near have what they lack before, or after some
        time not. Idempotent."""
        try:
            self._thread.stop()
        finally:
            self.fence(StoreClosedError("the store was closed while a put waited for replicas"))
        if self._event_fd >= 0:
            self._log.dispatch_signal.take_down(self._moved)
            event_fd, self._event_fd = self._event_fd, -1
            os.close(event_fd)
            self._listener.close()

    @property
    def replicas(self) -> tuple[ConnectedReplica, ...]:
        """The replicas that are connected."""
        return tuple(sender.snapshot() for sender in self._senders.values())

    @property
    def bytes_sent(self) -> int:
        """Bytes of the log that went to replicas."""
        return self._bytes_sent + sum(one.bytes_sent for one in self.replicas)

    @property
    def error(self) -> BaseException | None:
        """What ended the service, if `stop` did not."""
        return self._thread.error

    def fence(self, error: BaseException) -> None:
        """Puts that wait for replicas hear `error`, as do those that come to wait."""
        self._log.group.end_copies(error)

    def _needs_from(self) -> int | None:
        """Retention keeps what a replica is sent next, unless its lag is so large that no put waits
        for it: a replica that hangs does not fill the disk of its master."""
        return min((sender.position for sender in self._near().values()), default=None)

    def _near(self) -> dict[asyncio.Task[None], ReplicaSender]:
        """The replicas that are sent the log, and for which a put may wait."""
        end, most = self._source.end(), self.settings.max_lag_bytes
        return {
            task: sender
            for task, sender in self._senders.items()
            if sender.asked is not None and end - sender.position < most
        }

    # ---- in the loop ----

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._event_fd, self._log_moved)
        try:
            while True:
                try:
                    sock, address = await accept(self._listener)
                except OSError as error:
                    line = self._warnings[False].line(str(error), str(error))
                    if line is not None:
                        logger.warning("%s: no replica was accepted: %s", self._engine.path, line)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                self.connections += 1
                task = asyncio.create_task(self._attend(sock, _text(address)))
                self._tasks.add(task)
                task.add_done_callback(self._gone)
                # Not in the task: one that is cancelled before its first line has no `finally`.
                task.add_done_callback(lambda _, sock=sock: sock.close())  # type: ignore[misc]
                self._pending.add(task, address[0])
                await asyncio.sleep(self._pending.pause_s())
        finally:
            try:
                await self._drain()
            finally:
                loop.remove_reader(self._event_fd)
                await end_tasks(self._tasks)

    async def _drain(self) -> None:
        """Sends each replica that is near the rest of the log, and the offsets of groups. An operator
        can then promote any of these replicas, and nothing is lost."""
        end = self._engine.positions.wrote
        self._log.request_flush(end)  # it may be visible only then
        near = self._near()
        for sender in near.values():
            sender.drain(end)
        if near:
            await asyncio.wait(near, timeout=DRAIN_S)

    def _link(self) -> MasterLink:
        """What a connection speaks."""
        if self.settings.protocol == "rocketmq":
            return ClassicMasterLink()
        return MasterSession(
            self._compared, self.settings.key, compression=self.settings.compression
        )

    def _log_moved(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._event_fd, 8)
        for sender in self._senders.values():
            sender.wake()

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        self._tasks.discard(task)

    def _admit(self, task: asyncio.Task[None]) -> None:
        """A peer that has proved what it must asks for the log."""
        most = self.settings.max_replicas
        if len(self._tasks) - len(self._pending) >= most:
            self.refused += 1
            raise ReplicationError(f"refused, max_replicas = {most} are connected")
        self._pending.discard(task)

    async def _attend(self, sock: socket.socket, peer: str) -> None:
        """One connection, from its first byte to its last."""
        task = asyncio.current_task()
        assert task is not None
        sender: ReplicaSender | None = None
        try:
            with contextlib.closing(await accepted(sock, peer, self.settings.tls)) as channel:
                sender = ReplicaSender(
                    channel,
                    self._link(),
                    self._source,
                    self.settings,
                    self._acknowledged,
                    self._moved.arm,
                    self._hear_of_epoch,
                    partial(self._admit, task),
                    throttle=self._throttle,
                )
                self._senders = {**self._senders, task: sender}
                try:
                    await sender.run()
                finally:
                    self._left(sender)
                    self._senders = {
                        other: one for other, one in self._senders.items() if one is not sender
                    }
                    self._bytes_sent += sender.snapshot().bytes_sent
        except ReplicationError as error:
            self._note(ReplicationError(f"replica {peer}: {error}"), sender)
        except OSError as error:
            if sender is not None and sender.asked is not None:
                logger.info("%s: replica %s: %s", self._engine.path, peer, error)
            elif sender is None and (reason := _refusal(error)):
                self._note(ReplicationError(f"replica {peer}: no TLS: {reason}"), None)
        except Exception as error:  # of the store, or a fault of ours: nobody awaits this task
            self._note(ReplicationError(f"replica {peer}: {error!r}"), sender)

    def _note(self, error: ReplicationError, sender: ReplicaSender | None) -> None:
        """Each kind of trouble is logged once: the replica comes again and again."""
        self.last_error = without_frames(error)
        proved = self.settings.proves and sender is not None and sender.link.ready
        text = str(error)
        line = self._warnings[proved].line(text.partition(": ")[2], text)
        if line is not None:
            logger.warning("%s: disconnected: %s", self._engine.path, line)

    def _acknowledged(self, sender: ReplicaSender, synced: int) -> None:
        # Of one machine that came again its older connection may still be there.
        replica = sender.link.replica_id or sender
        self._quorum.acknowledged(replica, synced, sender.copy_begin)
        self._counted[replica] = sender

    def _left(self, sender: ReplicaSender) -> None:
        replica = sender.link.replica_id or sender
        if self._counted.get(replica) is sender:
            del self._counted[replica]
            self._quorum.left(replica)

    def _hear_of_epoch(self, epoch: int) -> None:
        if self.on_later_epoch is not None:
            self.on_later_epoch(epoch)


def _refusal(error: OSError) -> str:
    """Why this end or the peer refused a handshake of TLS, in OpenSSL's words; "": the connection
    broke."""
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return ""
    return (error.reason or str(error)).replace("_", " ").lower()


def _text(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def begin_master(engine: WritingEngine, settings: Master) -> MasterService:
    """Lets replicas connect to an open store from here on, until it closes.

    Raises:
        ConfigError: a setting that there is not.
        OSError: there is no listening at this address.
        StoreClosedError: the store takes no messages.
    """
    service = engine.guests.get(MasterService, lambda: MasterService(engine, settings))
    fence = fence_of(engine)
    fence.on_fence, service.on_later_epoch = service.fence, fence.hear
    if settings.lease is not None:
        keep_lease(engine, settings.lease)
    service.start()
    return service
