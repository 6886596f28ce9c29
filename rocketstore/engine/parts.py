"""The parts of a store that this process has recovered: `ReadParts` in any mode, `WriteParts` for
writing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketstore.config.store_config import RECORD_RESERVE_BYTES

if TYPE_CHECKING:
    from rocketstore._native.os.ring_buffer import RingBuffer
    from rocketstore._native.sync.futex import EventCount
    from rocketstore._native.sync.positions import Positions
    from rocketstore._native.sync.queue_positions import QueueState
    from rocketstore.config import StoreConfig
    from rocketstore.consuming.consumer_offsets import ConsumerOffsets
    from rocketstore.engine.open_options import Options
    from rocketstore.engine.tickets import Completions
    from rocketstore.log.commitlog.checkpointer import Checkpointer
    from rocketstore.log.commitlog.commit_log import CommitLog
    from rocketstore.log.commitlog.committer import Committer
    from rocketstore.log.commitlog.flusher import Flusher
    from rocketstore.log.commitlog.running_flags import RunningFlags
    from rocketstore.log.dispatch.dispatcher import Dispatcher
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.layout.lock import StoreLock
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.layout.positions_page import PositionsPage
    from rocketstore.log.layout.store_json import StoreState
    from rocketstore.log.mapped_files.locked_segments import LockedSegments
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.mapped_files.populator import Populator
    from rocketstore.log.mapped_files.preallocator import Preallocator
    from rocketstore.log.mapped_files.second_names import SecondNames
    from rocketstore.log.mapped_files.segment_blocks import SegmentBlocks
    from rocketstore.log.mapped_files.write_buffer_pool import WriteBufferPool
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
    from rocketstore.log.queues.put_states import PutStates
    from rocketstore.log.queues.queue_preallocator import QueuePreallocator
    from rocketstore.log.read.batch_queue import BatchQueues
    from rocketstore.log.recovery.report import RecoveryReport
    from rocketstore.log.worker import Worker
    from rocketstore.values.clock import Clock

__all__ = ["ReadParts", "WriteParts", "largest_body", "ring_bytes"]

#: Room in the ring beyond two records, bytes: the header of a blank, rounded up.
RING_ROOM_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class ReadParts:
    """What serves reads: recovered, dispatched, no worker running yet."""

    path: str
    layout: StoreLayout
    config: StoreConfig
    options: Options
    log: MappedFileQueue
    #: Whether some files of `log` differ in length from the others.
    odd_sizes: bool
    positions: Positions
    queues: ConsumeQueueStore
    index: IndexStore | None
    dispatcher: Dispatcher
    arrival: EventCount
    flags: RunningFlags
    offsets: ConsumerOffsets
    report: RecoveryReport
    state: StoreState | None
    batches: BatchQueues
    verify: int


@dataclass(slots=True)
class WriteParts:
    """What only a store that is open for writing has."""

    lock: StoreLock
    page: PositionsPage
    positions: Positions
    commit_log: CommitLog
    preallocator: Preallocator
    queue_files: QueuePreallocator
    populator: Populator | None
    flusher: Flusher
    committer: Committer | None
    checkpointer: Checkpointer
    put_states: PutStates
    completions: Completions
    record_crc: bool
    ring: RingBuffer | None
    pool: WriteBufferPool | None
    live: SecondNames
    locked: LockedSegments
    #: Moves whenever the log takes a segment into use.
    new_segments: EventCount
    blocks: SegmentBlocks
    queues: ConsumeQueueStore
    index: IndexStore | None
    clock: Clock
    expects_put: bool = False

    def expect_put(self, queues: Sequence[QueueState]) -> None:
        """Preallocates files for `queues` in the background: a put is expected soon. Unused files
        are removed at the close. A store that takes no puts preallocates nothing."""
        if not self.commit_log.flags.writeable:
            return
        new = [queue for queue in queues if not queue.next_offset and not queue.expects_put]
        if new:
            for queue in new:
                queue.expects_put = True
            self.queues.expect(len(new))
        if self.expects_put:
            return
        self.expects_put = True
        log = self.commit_log.queue
        if not log.files:
            self.preallocator.request(log.start_for(self.positions.wrote))
        elif self.populator is not None:
            self.populator.expect_put()

    def workers(self) -> list[Worker]:
        """The workers that a close stops first, in the order in which it stops them."""
        every = (
            self.preallocator, self.queue_files, self.populator, self.committer, self.flusher
        )  # fmt: skip
        return [worker for worker in every if worker is not None]


def ring_bytes(config: StoreConfig) -> int:
    """Size of the ring of a "disk" store, bytes: a blank as long as the largest record fits next to
    that record."""
    return 2 * config.record_limit_bytes + RING_ROOM_BYTES


def largest_body(ring_size: int) -> int:
    """Largest `max_message_size_bytes` for which a ring of `ring_size` bytes is enough."""
    return (ring_size - RING_ROOM_BYTES) // 2 - RECORD_RESERVE_BYTES
