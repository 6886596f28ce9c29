"""Units of a part of the log in a directory of their own, by the store's own dispatcher; and of all
parts together. A part can be made in any process that sees the files."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketstore._native.format import queue_file
from rocketstore._native.os import syscalls
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore.errors import CorruptRecordError, DiskFullError, ReadFailedError, StoreFailedError
from rocketstore.log.dispatch.dispatcher import Dispatcher
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.dispatch.loop_help import LoopHelper
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.ownership import make_like
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.units import UnitRefusedError

__all__ = [
    "BuiltPart",
    "LogPart",
    "Step",
    "build_index",
    "build_part",
    "build_whole",
    "join_parts",
    "odd_seam",
]

#: Bytes of log between two reports of how far it is.
STEP_BYTES: Final = 64 << 20
UNIT: Final = queue_file.UNIT_SIZE
#: Unit of `st_blocks`, bytes.
BLOCK_BYTES: Final = 512

#: Called with the bytes of log that were done since the last call.
Step = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LogPart:
    """Records of [begin, end), which are starts of segments or the ends of the log. Units go below
    `directory`, which is the new place of all queues and laid out like a store."""

    store: str
    directory: str
    begin: int
    end: int
    queue_file_size: int
    delay_level_ms: tuple[int, ...]
    #: Sum of the sizes of all files of the log, which bounds the gaps of all parts together.
    log_bytes: int


@dataclass(frozen=True, slots=True)
class BuiltPart:
    """(topic, queue id, first unit, end) of each queue of a part; their files are in `directory`.
    `odd`: why it has to be made together with what lies before it; nothing else counts then."""

    part: LogPart
    directory: str = ""
    queues: tuple[tuple[str, int, int, int], ...] = ()
    odd: str = ""
    #: Units of the gaps that were filled, a count.
    gap_units: int = 0


class _OddError(Exception):
    """A record whose units depend on records before the part."""


class _DamageError(Exception):
    """The record at `offset` cannot be believed. The dispatcher would wait for its repair."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason


class _WholeDispatcher(Dispatcher):
    def skip_damage(self, offset: int) -> tuple[bool, int]:
        there = self._find(offset) is not None
        raise _DamageError(offset, self._loop.status if there else "its segment is missing")


class _PartHelper(LoopHelper):
    """Stops where the store would look at units before this part."""

    def pass_over(self, offset: int, error: UnitRefusedError) -> int:
        raise _OddError(f"record {offset}: {error}")

    def overwrite(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int, tags: int
    ) -> None:
        where = f"{queue.topic}/{queue.queue_id}"
        raise _OddError(f"record {physical_offset}: {where} has a unit {queue_offset} already")

    def put_unit(
        self, name: str, queue_id: int, queue_offset: int, unit: tuple[int, int, int]
    ) -> None:
        try:
            super().put_unit(name, queue_id, queue_offset, unit)
        except UnitRefusedError as error:
            raise _OddError(f"record {unit[0]}: {error}") from error


class _IndexHelper(LoopHelper):
    """Keys only: no queue gets a unit."""

    def new_queue(self) -> None:
        raw, queue_id, *_ = self._loop.current()
        self._loop.ignore_queue(raw, queue_id)


def build_part(part: LogPart, on_step: Step | None = None) -> BuiltPart:
    """Writes and syncs the units of a part.

    Raises:
        CorruptRecordError: a record that cannot be believed.
        StoreFailedError: no room, a file that cannot be written.
    """
    try:
        return _build(part, _PartHelper, None, on_step)
    except _OddError as error:
        return BuiltPart(part, odd=str(error))


def build_index(part: LogPart, index: IndexStore, on_step: Step | None = None) -> int:
    """Writes and syncs the keys of a part, which its units do not change; gives the number of files
    that an open has to find. Raises CorruptRecordError, StoreFailedError."""
    _build(part, _IndexHelper, index, on_step)
    return index.needed_count(part.begin, part.end)


def build_whole(part: LogPart, on_step: Step | None = None) -> BuiltPart:
    """Units of a whole log, whatever its records say: just as the store does it. Raises
    CorruptRecordError, StoreFailedError."""
    return _build(part, LoopHelper, None, on_step)


def _build(
    part: LogPart, helper_type: type[LoopHelper], index: IndexStore | None, on_step: Step | None
) -> BuiltPart:
    log = _open_log(part.store)
    place = _make_place(part)
    queues = ConsumeQueueStore(place, "write", part.queue_file_size, lambda: part.begin)
    positions = Positions()
    dispatcher = _WholeDispatcher(
        positions,
        log.find,
        queues,
        index,
        EventCount(),
        delay_level_ms=part.delay_level_ms,
        multi_dispatch=True,
        helper_type=helper_type,
    )
    gaps = GapBudget(part.log_bytes)
    dispatcher.bound_gaps(gaps)
    try:
        with queues.preallocating():
            _dispatch(part, dispatcher, positions, on_step)
        if not dispatcher.sync_queues():
            raise StoreFailedError(f"{part.directory}: queue files could not be synced")
        if index is not None and not index.sync():
            raise StoreFailedError(f"{part.directory}: {index.degraded}")
        found = [(q.topic, q.queue_id, _first_unit(q), q.max_offset) for q in queues.all()]
        made = tuple(row for row in found if row[2] < row[3])
        return BuiltPart(part, str(place.root), made, gap_units=gaps.taken)
    except _DamageError as error:
        raise CorruptRecordError(
            error.offset,
            f"{error.reason}; `rocketstore verify` names all damage, "
            "`rocketstore repair` repairs it",
        ) from None
    finally:
        queues.close()
        log.close()


def _make_place(part: LogPart) -> StoreLayout:
    """A directory of its own for each attempt: a task may be run again while the first one still
    writes."""
    place = StoreLayout(Path(part.directory) / f"part-{part.begin:020d}-{uuid.uuid4().hex}")
    model = StoreLayout(Path(part.store)).consume_queue.stat()
    for path in (place.root, place.consume_queue, place.own, place.tmp):
        make_like(path, model)
    return place


def _open_log(store: str) -> MappedFileQueue:
    layout = StoreLayout(Path(store))
    log = MappedFileQueue(layout.commit_log, "read", file_size=None, name="commit log")
    log.load()
    return log


def _dispatch(
    part: LogPart, dispatcher: Dispatcher, positions: Positions, on_step: Step | None
) -> None:
    positions.visible = part.end
    positions.minimum = part.begin
    dispatcher.start_at(part.begin, part.begin)
    reached = part.begin
    while reached < part.end:
        after = dispatcher.catch_up(min(part.end, reached + STEP_BYTES))
        if after == reached and dispatcher.stuck is not None:
            offset, why = dispatcher.stuck
            if why.startswith((f"[Errno {errno.ENOSPC}]", f"[Errno {errno.EDQUOT}]")):
                raise _no_room(part)
            raise StoreFailedError(
                f"{part.store}: no unit can be made of the record at {offset}: {why}"
            )
        if after == reached:
            after = dispatcher.catch_up(part.end)  # a record that is longer than a step
            if after == reached:
                raise ReadFailedError(f"{part.store}: the log does not go on at {reached}")
        if on_step is not None:
            on_step(after - reached)
        reached = after
    dispatcher.settle()


def _no_room(part: LogPart) -> DiskFullError:
    """What the old queues and index take on the disk is about what the new ones need next to
    them."""
    layout = StoreLayout(Path(part.store))
    files = [*layout.consume_queue.glob("*/*/*"), *layout.index.glob("*")]
    needed = sum(path.lstat().st_blocks * BLOCK_BYTES for path in files)
    found = os.statvfs(layout.root)
    about = f"need about {needed:,} bytes, " if needed else "need room beside the log, "
    return DiskFullError(
        errno.ENOSPC,
        f"no room to make queues and index again: they {about}{found.f_bavail * found.f_frsize:,} "
        "are free; the old ones are unchanged: free some, and run it again",
        part.store,
    )


def _first_unit(queue: ConsumeQueue) -> int:
    """Queue offset of the first unit that is no pre-blank; the end of the queue when there is
    none."""
    for file in queue.files:
        first = file.start_offset // UNIT
        count = min(file.size // UNIT, queue.max_offset - first)
        if count <= 0:
            break
        found = queue_file.first_kept(file, 0, count, 0)
        if found < count:
            return first + found
    return queue.max_offset


# ---- together ----


def odd_seam(parts: Sequence[BuiltPart]) -> str:
    """Why units of parts cannot simply follow each other; empty when they can. `parts` are in the
    order of the log: in each queue one begins where the one before ended."""
    ends: dict[tuple[str, int], int] = {}
    for built in parts:
        if built.odd:
            return built.odd
        for topic, queue_id, first, end in built.queues:
            before = ends.get((topic, queue_id), first)
            if first != before:
                where = f"{topic}/{queue_id} goes on with {first} after {before - 1}"
                return f"after {built.part.begin} {where}"
            ends[topic, queue_id] = end
    gaps = sum(built.gap_units for built in parts)
    if parts and gaps > GapBudget(parts[0].part.log_bytes).left:
        return f"the queues lack {gaps} records, which is more than the log can have lost"
    return ""


def join_parts(parts: Sequence[BuiltPart], place: StoreLayout) -> None:
    """Moves the queues of all parts into the one directory of `place`; what two parts have in one
    file is copied. `parts` have no odd seam. Nothing is synced."""
    model = place.consume_queue.stat()
    for built in parts:
        source = StoreLayout(Path(built.directory))
        for topic, queue_id, first, end in built.queues:
            directory = place.queue_directory(topic, queue_id)
            made = source.queue_directory(topic, queue_id)
            if not directory.parent.exists():
                make_like(directory.parent, model)
            if not directory.exists():
                syscalls.rename(os.fspath(made), os.fspath(directory))
                continue
            for name in sorted(os.listdir(made)):
                _join_file(made / name, directory / name, first * UNIT, end * UNIT)


def _join_file(made: Path, there: Path, begin: int, end: int) -> None:
    """The bytes [begin, end) of a queue, as far as they lie in a file of this name."""
    if not there.exists():
        syscalls.rename(os.fspath(made), os.fspath(there))
        return
    start = int(made.name)
    source = syscalls.open(os.fspath(made), os.O_RDONLY)
    try:
        low, high = max(begin, start), min(end, start + os.fstat(source).st_size)
        target = syscalls.open(os.fspath(there), os.O_RDWR)
        try:
            syscalls.pwrite(target, syscalls.pread(source, high - low, low - start), low - start)
            syscalls.fdatasync(target)
        finally:
            syscalls.close(target)
    finally:
        syscalls.close(source)
