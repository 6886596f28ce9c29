"""Rebuilds the consume queues and the key index of a store from its log, several parts at a
time."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar, Unpack

from rocketstore._native.format.scanner import VERIFY_RECORD_CRC, scan_segment
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.api.open import open_store
from rocketstore.config import StoreConfig
from rocketstore.config.typed_options import StoreOptions
from rocketstore.engine.open_options import Options
from rocketstore.engine.rebuild import Derived, rebuild_engine
from rocketstore.errors import HINTS, CorruptRecordError, MissingSegmentsError, StoreLockedError
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.log_dirs import list_log
from rocketstore.log.recovery.report import LostMessages, OffsetSetBack, UnplacedMessages
from rocketstore.tools._rebuild.carried_over import keep_handed_out
from rocketstore.tools._rebuild.parts import (
    BuiltPart,
    LogPart,
    Step,
    build_index,
    build_part,
    build_whole,
    join_parts,
    odd_seam,
)
from rocketstore.tools.parallel import map_on_all_cores
from rocketstore.values.arguments import Progress, whole_number
from rocketstore.values.plural import counted
from rocketstore.values.threads import Pool

__all__ = ["RebuildReport", "rebuild"]

WORKERS_MAX: Final = 256
#: Seconds between two looks for a signal. One that comes just before a wait, or in another thread,
#: does not end the wait: its handler runs after it.
SIGNALS_EVERY_S: Final = 0.2

Made = TypeVar("Made")

#: Makes all parts, in any order and anywhere; gives what each made, in the order of the parts.
RunParts = Callable[[Sequence[LogPart]], Sequence[BuiltPart]]


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What `rebuild` made of the log in [begin, end). `odd`: why the queues were made in one go, if
    they were: records whose queue offsets do not follow each other. The recovery before it may have
    cut messages that the old queues knew: `lost_messages`."""

    path: str
    begin: int
    end: int
    parts: int
    queues: int
    units: int
    index_files: int
    seconds: float
    odd: str = ""
    #: As in `RecoveryReport`, of the recovery before.
    lost_messages: tuple[LostMessages, ...] = ()
    offsets_set_back: tuple[OffsetSetBack, ...] = ()
    notes: tuple[str, ...] = ()
    #: As in `RecoveryReport`: messages that the new queues cannot have.
    unplaced_messages: tuple[UnplacedMessages, ...] = ()

    def __str__(self) -> str:
        how = f"in one go ({self.odd})" if self.odd else f"in {counted(self.parts, 'part')}"
        made = (
            f"{counted(self.units, 'unit')} in {counted(self.queues, 'queue')} and "
            f"{counted(self.index_files, 'index file')}"
        )
        size = self.end - self.begin
        if not self.parts and self.end > self.begin:
            made, how = "queues and index would be made", "nothing was changed"
        lines = [*map(str, self.lost_messages), *map(str, self.offsets_set_back), *self.notes]
        lines += [f"no place in its queue: {one}" for one in self.unplaced_messages]
        last = f"{self.path}: {made} out of {size} bytes of log, {how}, in {self.seconds:.1f} s"
        return "\n".join([*lines, last])


def rebuild(
    path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    run_parts: RunParts | None = None,
    allow_stale_crc: bool = False,
    **options: Unpack[StoreOptions],
) -> RebuildReport:
    """Makes queues and index again, byte for byte as the store itself does when it finds none, and
    puts them in the place of the old ones. The log is not changed, but for its end if the store was
    not stopped cleanly: that is recovered before.

    The store is locked meanwhile. Stopped half-way, it has its old queues and index, or none of a
    kind, which the next open for writing makes. Queues whose last message was trimmed away stay as
    they are, and units of what `repair` gave up: no queue offset is handed out again.

    Args:
        workers: parts of the log that are made at a time, 1 … 256; parts are whole segments, and
            the index is one more, since its entries follow each other. This process makes no more
            than 64 at a time; `run_parts` may. None: one for each processor.
        dry_run: only says what the recovery before would cut and set back; no lock, no change.
        progress: called with (what, bytes done, bytes in all) from the threads that do it, one at a
            time.
        run_parts: makes the parts elsewhere, where the store is seen under the same path.
        allow_stale_crc: go on where the checksum of a whole record does not hold, as in `verify`.
        options: further settings of `rocketstore.open`; `index_slots` and `index_entries` where
            they are not RocketMQ's, `index_enabled=False` leaves the index as it is.

    Raises:
        ConfigError: an option that means nothing; batch queues; queues or index on another disk.
        StoreLockedError: a process has the store open for writing.
        DiskFullError: no room; it says how much is needed, and queues and index are the old ones.
        CorruptRecordError, StoreFailedError: damage, or without `allow_stale_crc` a record whose
            checksum does not hold; queues and index are the old ones.
            So they are after a KeyboardInterrupt while they are made, or whatever else a signal
            handler raises, which stops all parts. A store that rocketstore had stopped cleanly
            still counts as that. SIGTERM without a handler kills: the next open recovers.
        MissingSegmentsError, OSError: as `rocketstore.open`.
    """
    if workers is None:
        count = min(os.cpu_count() or 1, WORKERS_MAX)
    else:
        count = whole_number("workers", workers, 1, WORKERS_MAX)
    if dry_run:
        return _look(path, options)
    started = time.monotonic()
    run = run_parts or (lambda parts: job.run_here(parts))
    job = _Job(count, progress, run, allow_stale_crc)
    engine = rebuild_engine(os.fspath(path), Options(StoreConfig(**options)), job.make)
    engine.close()
    recovery = engine.recovery
    unplaced: tuple[UnplacedMessages, ...] = ()
    if job.report.odd:
        with open_store(path, "r", check_queues=True, **options) as store:
            unplaced = store.recovery.unplaced_messages
    return replace(
        job.report,
        path=os.fspath(path),
        seconds=time.monotonic() - started,
        lost_messages=recovery.lost_messages,
        offsets_set_back=recovery.offsets_set_back,
        notes=recovery.notes,
        unplaced_messages=unplaced,
    )


def _look(path: str | os.PathLike[str], options: StoreOptions) -> RebuildReport:
    """What would be done, or the error that would refuse it."""
    named = os.fspath(path)
    with open_store(path, "r", force=True, **options) as store:
        found = store.recovery
    if found.mode == "following":
        raise StoreLockedError(named, "the process that has it open for writing")
    if found.missing:
        raise MissingSegmentsError(f"{named}: {'; '.join(found.missing)}")
    if found.damage:
        raise CorruptRecordError(found.damage[0].start, found.damage[0].reason)
    return RebuildReport(
        named, found.begin, found.end, 0, 0, 0, 0, 0.0,
        lost_messages=found.lost_messages,
        offsets_set_back=found.offsets_set_back,
        notes=found.notes,
    )  # fmt: skip


class _StoppedError(Exception):
    """Another part has failed, or the caller has stopped the rebuild. No caller sees it."""


class _Job:
    """One rebuild. `report` is written by `make`."""

    def __init__(
        self,
        workers: int,
        progress: Progress | None,
        run_parts: RunParts,
        allow_stale_crc: bool,
    ) -> None:
        self._workers = workers
        self._allow_stale_crc = allow_stale_crc
        self._progress = progress
        self._run_parts = run_parts
        # Guards the next two, and one call of `progress` at a time.
        self._lock = SignalSafeLock("the progress of a rebuild", reentrant=False)
        self._done: dict[str, int] = {}
        self._total = 0
        self._told: Progress | None = None
        self._stopped = False  # set once, by the thread of the caller
        self._at_work: set[object] = set()
        self.report = RebuildReport("", 0, 0, 0, 0, 0, 0, 0.0)

    def make(self, derived: Derived) -> None:
        """Queues and index in the directories of `derived.root`. No thread works there when this
        returns."""
        try:
            self._make(derived)
        finally:
            # An interrupt may come while an executor starts a thread, for which it does not wait
            # then.
            while self._at_work:
                time.sleep(0.01)

    def _make(self, derived: Derived) -> None:
        self._total = derived.end - derived.begin
        self._told = derived.told
        if not derived.segments:
            return
        if not self._allow_stale_crc:
            _check_checksums(derived)
        whole = _part(derived, derived.segments)
        groups = _grouped(derived.segments, self._workers)
        with Pool(1) as background, self._stopping():
            indexed = background.submit(self._make_index, derived, whole)
            parts = [_part(derived, group) for group in groups]
            built = list(self._run_parts(parts))
            odd = odd_seam(built)
            files = _result(indexed)
        if odd:
            built = [build_whole(whole, self._step("queues in one go"))]
        join_parts(built, derived.root)
        keep_handed_out(derived)
        ends = {(row[0], row[1]): row[3] for one in built for row in one.queues}
        units = sum(row[3] - row[2] for one in built for row in one.queues)
        self.report = RebuildReport(
            "", derived.begin, derived.end, len(parts), len(ends), units, files, 0.0, odd
        )

    def _make_index(self, derived: Derived, whole: LogPart) -> int:
        with self._working():
            index = _index_of(derived)
            if index is None:
                return 0
            try:
                return build_index(whole, index, self._step("index"))
            finally:
                index.close()

    def run_here(self, parts: Sequence[LogPart]) -> list[BuiltPart]:
        """In threads: the loops of the dispatcher run without Python's lock."""
        with Pool(self._workers) as threads, self._stopping():
            building = [threads.submit(self._make_part, part) for part in parts]
            return [_result(part) for part in building]

    def _make_part(self, part: LogPart) -> BuiltPart:
        with self._working():
            return build_part(part, self._step("queues"))

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Is waited for, or does not begin: known before it looks whether that was stopped."""
        this = object()
        self._at_work.add(this)
        try:
            if self._stopped:
                raise _StoppedError
            yield
        finally:
            self._at_work.discard(this)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """An executor waits for what it has begun: after an error that ends at its next step."""
        try:
            yield
        except BaseException:
            self._stopped = True
            raise

    def _step(self, what: str) -> Step:
        def step(size: int) -> None:
            with self._lock():
                if self._stopped:
                    raise _StoppedError
                self._done[what] = self._done.get(what, 0) + size
                if self._told is not None:
                    self._told(what, min(self._done.values()), self._total)
                if self._progress is not None:
                    self._progress(what, self._done[what], self._total)

        return step


def _check_checksums(derived: Derived) -> None:
    """Raises where a record's own checksum does not hold: the old units are the last that know what
    it was, a tags code for example."""
    files = {start: (size, path) for start, size, path in list_log(derived.layout)}

    def look(part: tuple[int, int]) -> int:
        start = max(one for one in files if one <= part[0])
        size, path = files[start]
        with closing(MappedFile.open(path, start, size, "read")) as file:
            found = scan_segment(file, part[0] - start, part[1] - start, verify=VERIFY_RECORD_CRC)
        return start + found.end_position if found.status == "record crc" else -1

    for wrong in map_on_all_cores(look, derived.segments):
        if wrong >= 0:
            raise CorruptRecordError(wrong, f"record crc; {HINTS['stale_crc']}")


def _result(made: Future[Made]) -> Made:
    while not made.done():
        wait([made], SIGNALS_EVERY_S)
    return made.result()


def _grouped(segments: Sequence[tuple[int, int]], count: int) -> list[tuple[tuple[int, int], ...]]:
    """Runs of segments, about equally many."""
    groups = min(count, len(segments))
    bounds = [len(segments) * number // groups for number in range(groups + 1)]
    return [tuple(segments[low:high]) for low, high in itertools.pairwise(bounds)]


def _part(derived: Derived, segments: Sequence[tuple[int, int]]) -> LogPart:
    return LogPart(
        str(derived.layout.root),
        str(derived.root.root),
        segments[0][0],
        segments[-1][1],
        derived.config.consume_queue_file_size_bytes,
        tuple(derived.config.delay_level_ms),
        derived.log_bytes,
    )


def _index_of(derived: Derived) -> IndexStore | None:
    """The new index; None where the store has none."""
    config = derived.config
    if not config.index_enabled:
        return None
    return IndexStore(
        derived.root,
        "write",
        config.index_slots,
        config.index_entries,
        tags=bool(config.index_tags),
    )
