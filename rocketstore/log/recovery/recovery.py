"""Recovers a log after a stop of any kind; loses and destroys nothing
(docs/durability.md#recovery).

The start is the durable offset of our checkpoint where that still speaks of these bytes, else what
RocketMQ's rule gives (format.md 14.2, 14.3). From there every record is checked. The first bytes
that are no record are a torn tail, which is cut, or damage, which stays. Changes on disk come in an
order in which a crash at any point leaves a store that the next recovery brings to the same end.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketstore._native.format.scanner import scan_segment
from rocketstore.errors import HINTS, MissingSegmentsError
from rocketstore.log.commitlog.checkpoint import (
    NOT_INDEXED,
    CheckpointFile,
    OwnCheckpoint,
    Verdict,
    judge_checkpoint,
)
from rocketstore.log.damage import Damage, ValidRun
from rocketstore.log.layout.log_dirs import NAME_THEM, gap_text, linked_segments
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.recovery.marks import Marks
from rocketstore.log.recovery.progress import (
    RecoveryProgress,
    drop_ordered_cut,
    drop_progress,
    save_progress,
)
from rocketstore.log.recovery.repair import LogRepair
from rocketstore.log.recovery.report import RecoveryReport
from rocketstore.log.recovery.rocketmq_start import rocketmq_start, shows_another
from rocketstore.log.recovery.walk import EVERYWHERE, LogWalk, Rules
from rocketstore.values.arguments import Progress

__all__ = [
    "Damage",
    "Marks",
    "RecoveryReport",
    "ValidRun",
    "recover",
]

logger = logging.getLogger(__name__)

NO_VERDICT = Verdict(False, False, False, "")


def recover(
    log: MappedFileQueue,
    layout: StoreLayout,
    marks: Marks,
    *,
    checkpoint: CheckpointFile | None,
    max_unflushed_bytes: int,
    max_record_bytes: int,
    check_crc: bool = True,
    force: bool = False,
    on_progress: Progress | None = None,
    on_foreign: Callable[[int, int], None] | None = None,
    boot_id: bytes = bytes(16),
    run_id: bytes = bytes(16),
) -> RecoveryReport:
    """Finds the end of a loaded log and makes it safe to append there.

    With the access "write" the disk is changed, and `checkpoint` is where our checkpoint goes;
    with "private" or "read" nothing is, and no bytes make it raise. `on_foreign(start, end)` is
    called before a checkpoint is stored, with the range that another program may have written.

    Raises:
        MissingSegmentsError: segments are missing, only for "write" and without `force` (D-25).
        DiskFullError: no room for the copies that have to be kept.
        OSError: reading, writing or syncing failed.
    """
    began = time.monotonic()
    attempt = _Recovery(log, layout, marks, log.access == "write", force, on_progress)
    attempt.judge()
    attempt.choose_start()
    before = marks.own.generation if marks.own is not None else 0
    window = max(max_unflushed_bytes, attempt.own.max_unflushed if attempt.own is not None else 0)
    base = dataclasses.replace(
        attempt.own or OwnCheckpoint(generation=before),
        max_unflushed=window,
        boot_id=boot_id,
        run_id=run_id,
    )
    synced = marks.synced if attempt.mode == "unclean" else 0
    repair = LogRepair(log, layout, checkpoint, base, on_foreign, attempt.keep_progress, synced)
    repair.padded = attempt.mode == "foreign-clean"
    if attempt.cut_at is not None:
        repair.why_cut = "behind an ordered cut"
    report = attempt.run(repair, window=window + max_record_bytes, check_crc=check_crc, began=began)
    if attempt.writes and marks.cut_at is not None:
        drop_ordered_cut(layout)  # all of the cut is on the disk
    (logger.warning if report.lost or report.cut else logger.info)("%s: %s", layout.root, report)
    return report


@dataclass(slots=True)
class _Recovery:
    """The decisions of one recovery, in the order in which they are taken."""

    log: MappedFileQueue
    layout: StoreLayout
    marks: Marks
    writes: bool
    force: bool
    on_progress: Progress | None = None
    verdict: Verdict = NO_VERDICT
    own: OwnCheckpoint | None = None  # only while it speaks of these bytes
    resumed: RecoveryProgress | None = None  # up to our durable offset
    cut_at: int | None = None  # an order that fits this log
    mode: str = ""
    another: bool = False  # something shows that another program has written
    start: int = 0
    dispatch_start: int = 0
    index_start: int = 0
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    # ---- which program wrote last ----

    def judge(self) -> None:
        """D-02, D-03, D-25: does our checkpoint speak of this log, and is all of it there?"""
        log, marks = self.log, self.marks
        self._judge_links()
        if marks.own is not None:
            self.verdict = judge_checkpoint(marks.own, log)
        if marks.ours and self.verdict.missing:
            self._missing(self.verdict.why)
        if text := _end_that_is_missing(log, marks, self.verdict):
            self._missing(text)
        self._judge_gaps()
        if marks.ours and self.verdict.speaks:
            self.own = marks.own
        elif marks.own is not None and not (marks.ours and self.verdict.missing):
            unused = "our checkpoint is not used"  # what is missing is reported already
            why = f"{unused}: {self.verdict.why}"
            self.notes.append(why if marks.ours else f"rocketstore did not write last: {unused}")
        own = self.own
        stopped = own is not None and own.clean and own.cut < 0 and marks.pointed <= own.flushed
        if self.own is not None:
            self.mode = "clean" if marks.clean and stopped and self._ends_cleanly() else "unclean"
        elif not log.files:
            self.mode = "clean" if marks.clean else "unclean"
        else:
            self.mode = "foreign-clean" if marks.clean else "foreign-unclean"
            self.another = shows_another(log.files, marks)
            if log.begin_offset > 0:
                begin = f"the log begins at {log.begin_offset}, what lay in front counts as trimmed"
                self.notes.append(f"{begin}; {NAME_THEM}")
        _take_order(self)
        self._resume()

    def _judge_links(self) -> None:
        """What a link leads to is there: `force` does not give it up."""
        for text in linked_segments(self.layout):
            if self.writes:
                raise MissingSegmentsError(text)
            logger.error("%s", text)
            self.missing.append(text)

    def _judge_gaps(self) -> None:
        log, marks = self.log, self.marks
        given_up = marks.own.minimum if marks.own and marks.ours and self.verdict.speaks else 0
        for start, end in log.gaps:
            if end > given_up:  # D-27: unlinks come to the disk in any order
                self._missing(gap_text(start, end))
        for shape in log.wrong_sizes:
            if not shape.last and shape.missing_bytes:
                wrong = (
                    f"{shape.path} has {shape.found_bytes} bytes instead of {shape.wanted_bytes}"
                )
                self._missing(wrong)

    def _resume(self) -> None:
        """Continues where an earlier attempt stopped. A cut that it began is finished by our own
        rules: the records below it were judged before."""
        own, progress = self.own, self.marks.progress
        if own is None or progress is None or self.mode != "unclean" or self.cut_at is not None:
            return
        end = min(own.flushed, progress.end)
        if end < progress.start:
            return
        resumed = progress.up_to(end)
        rules = Rules(durable=own.flushed, window=0, clean=False, foreign=self.marks.foreign)
        if not LogWalk(self.log.files, rules).are_damaged(resumed.damage):
            self.notes.append("an earlier recovery calls sound records damaged: it does not count")
            return
        self.resumed = resumed
        if own.cut < 0:
            self.mode = progress.mode
            noted = any(low < own.flushed <= high for low, high in self.marks.foreign)
            self.another = noted and self.mode.startswith("foreign")
        self.notes.append(f"an earlier recovery came to {end}: this one went on from there")

    def _missing(self, what: str) -> None:
        """D-25: an unmounted disk must not become an empty store."""
        text = f"segments of the commit log are missing: {what}"
        if self.writes and not self.force:
            raise MissingSegmentsError(
                f"{self.layout.commit_log}: {text}; mount or restore them ({NAME_THEM}), "
                f"{HINTS['force']}"
            )
        told = f"{text}; {NAME_THEM}"
        if told not in self.missing:
            logger.error("%s: %s", self.layout.logs[0], told)
            self.missing.append(told)

    def _ends_cleanly(self) -> bool:
        """Whether no record begins at the end that a clean stop noted, or in a later file: an older
        copy that was written over a store leaves those of its newer files."""
        assert self.own is not None
        for file in self.log.files:
            position = max(0, self.own.flushed - file.start_offset)
            if position < file.size and any(file.read(position, min(8, file.size - position))):
                return False
        return True

    # ---- where to begin ----

    def choose_start(self) -> None:
        """The start of the scan, and of dispatch. The scan begins no later than dispatch, which has
        to know of damage (K-55)."""
        begin = self.log.begin_offset
        if self.own is not None:
            own, resumed, wish = self.own, self.resumed, self.marks.dispatch_from
            if resumed is not None and wish is not None:
                wish = resumed.dispatch_start
            self.dispatch_start = self.clamp(min(own.dispatched, own.flushed), wish)
            indexed = min(own.indexed, own.flushed) if self.marks.indexed else own.flushed
            self.index_start = self.clamp(indexed, self.marks.index_from)
            wanted = min(own.flushed, self.dispatch_start, self.index_start)
            if resumed is not None and resumed.start <= wanted:
                wanted = max(wanted, resumed.end)
            self.start = max(begin, own.minimum, wanted)
        elif self.log.files:
            self.start = rocketmq_start(self.log.files, self.marks)
            self.dispatch_start = self.clamp(self.start, self.marks.dispatch_from)
            self.index_start = self.clamp(self.start, self.marks.index_from)
            self.start = min(self.start, self.dispatch_start, self.index_start)
        elif self.force or not self.writes:
            self.start = self.dispatch_start = self.index_start = self._restart()
        _start_by_order(self)

    def clamp(self, offset: int, wish: int | None) -> int:
        begin = max(self.log.begin_offset, self.own.minimum if self.own is not None else 0)
        return max(begin, offset if wish is None else min(offset, wish))

    def _restart(self) -> int:
        """Where a lost log begins again, so that no offset is used twice."""
        own = self.marks.own
        claimed = max(own.flushed if own is not None else 0, self.marks.derived_end or 0)
        size = self.log.file_size or 0
        return -(-claimed // size) * size if size else 0

    # ---- scan and repair ----

    def run(
        self, repair: LogRepair, *, window: int, check_crc: bool, began: float
    ) -> RecoveryReport:
        own, resumed = self.own, self.resumed
        foreign = self.mode.startswith("foreign")
        if self.writes:
            if resumed is None:
                drop_progress(self.layout)
            if foreign and resumed is None:
                repair.discard(self.marks.own, another=self.another)
            repair.prepare(own.flushed if own is not None else self.start, self.start)
        rules = Rules(
            durable=own.flushed if own is not None and not foreign else -1,
            window=window,
            shown=self.marks.shown,
            stopped_at=_stopped_at(self),
            clean=resumed.clean if resumed is not None else self.marks.clean,
            check_crc=check_crc,
            foreign=EVERYWHERE if self.another else self.marks.foreign,
            contradicted=own is not None and self.marks.pointed > own.flushed,
        )
        limit = self._limit(rules)
        walk = LogWalk(self.log.files, dataclasses.replace(rules, limit=limit))
        if own is not None and self.cut_at is None:
            walk.last_record_start = own.last_record_start
            walk.last_store_timestamp_ms = own.last_store_timestamp_ms
        known_from = None
        if resumed is not None and self.start >= resumed.end:
            known_from, walk.damage = resumed.start, list(resumed.damage)
            walk.first_time_fall = resumed.first_time_fall
        advances = self.mode != "clean" and self.writes and limit is None
        walk.on_valid = self._watcher(repair if advances else None)
        walk.run(self.start, known_from)
        _warn_of_times(self, walk)
        if self.writes:
            if self.mode != "clean":
                repair.settle(walk, rewrite=self.mode != "foreign-clean")
            repair.finish(
                walk,
                whole_tail=self.mode != "clean",
                foreign=self.foreign_range(walk.end),
                starts=self._starts(walk.end),
            )
        else:
            repair.plan(walk, whole_tail=self.mode != "clean")
        return _report(self, walk, repair, began)

    def _limit(self, rules: Rules) -> int | None:
        """Where the log ends if that is known before the walk: a cut that was begun is finished
        where it was decided, and a clean log ends where it says. No cut was ever decided at a whole
        record: such a cut is not believed (decision 0031)."""
        own = self.own
        if self.cut_at is not None:
            return self.cut_at
        if own is None or (own.cut < 0 and self.mode != "clean"):
            return None
        if own.cut < 0:
            return own.flushed
        if not LogWalk(self.log.files, rules).is_whole(own.cut):
            return own.cut
        self.notes.append(f"a cut at {own.cut} is not finished: a whole record begins there")
        return None

    def _watcher(self, repair: LogRepair | None) -> Callable[[LogWalk, int], None]:
        total = max(1, self.log.end_offset - self.start)

        def watch(walk: LogWalk, offset: int) -> None:
            if repair is not None:
                repair.advance(
                    walk,
                    offset,
                    rewrite=self.mode != "foreign-clean",
                    foreign=self.foreign_range(offset),
                    starts=self._starts(offset),
                )
            if self.on_progress is not None:
                self.on_progress("log", offset - self.start, total)

        return watch

    def keep_progress(self, walk: LogWalk, offset: int) -> None:
        """Stores what the next attempt needs to continue at `offset`."""
        progress = RecoveryProgress(
            mode=self.mode,
            clean=self.resumed.clean if self.resumed is not None else self.marks.clean,
            start=walk.start,
            end=offset,
            dispatch_start=self.dispatch_start,
            damage=tuple(walk.damage),
            first_time_fall=walk.first_time_fall,
        )
        save_progress(self.layout, progress)

    def _starts(self, end: int) -> tuple[int, int]:
        """How far queues and index are, for our checkpoint; never beyond the log (D-17)."""
        index = min(self.index_start, end) if self.marks.indexed else NOT_INDEXED
        return min(self.dispatch_start, end), index

    def foreign_range(self, end: int) -> tuple[int, int] | None:
        """The range that another program may have written: from our durable offset if its bytes are
        unchanged. None where nothing shows one: damage makes our checkpoint useless, too."""
        if not self.another:
            return None
        own = self.marks.own
        begin = own.flushed if own is not None and self.verdict.stands else self.log.begin_offset
        return (min(begin, end), end)


def _stopped_at(attempt: _Recovery) -> int:
    """Where the last stop, a clean one of ours, noted the end of the log; -1 without one."""
    noted, marks = attempt.marks.own, attempt.marks
    ours = marks.ours and marks.clean and not attempt.another
    return noted.flushed if ours and noted is not None and noted.clean else -1


def _warn_of_times(attempt: _Recovery, walk: LogWalk) -> None:
    if attempt.mode.startswith("foreign") and walk.first_time_fall >= 0:
        attempt.notes.append(
            f"store times fall at {walk.first_time_fall}: what follows may be stale records "
            "of a log that was cut there before (kept, as RocketMQ keeps them)"
        )


def _take_order(attempt: _Recovery) -> None:
    """An ordered cut is made as after a crash: all that follows it goes."""
    log = attempt.log
    kept_from = attempt.clamp(log.begin_offset, None)
    attempt.cut_at = _cut_that_fits(log, attempt.marks.cut_at, kept_from, attempt.notes)
    if attempt.cut_at is not None and attempt.mode == "clean":
        attempt.mode = "unclean"


def _start_by_order(attempt: _Recovery) -> None:
    """A walk from the begin of a file on knows the record that ends where the log is cut."""
    at, log = attempt.cut_at, attempt.log
    if at is not None and not log.files:
        attempt.start = attempt.dispatch_start = attempt.index_start = at
    elif at is not None:
        attempt.start = min(attempt.start, attempt.clamp(log.start_for(at - 1), None))


def _cut_that_fits(
    log: MappedFileQueue, at: int | None, begin: int, notes: list[str]
) -> int | None:
    """Where an order has this log cut, which begins at `begin`: where a record or a file begins or
    ends. None without such an order. A log without files begins there."""
    if at is None or at == begin or not log.files:
        return at
    file = log.find(at - 1) if at > begin else None
    if file is not None:
        if at == file.end_offset:
            return at
        walk = LogWalk(log.files, Rules(durable=-1, window=0, clean=False, foreign=EVERYWHERE))
        start = max(file.start_offset, begin) - file.start_offset
        result = scan_segment(file, start, at - file.start_offset, verify=0)
        if walk.is_whole(at) or file.start_offset + result.end_position == at:
            return at
    notes.append(f"the log is not cut at {at}, as ordered: no record ends there")
    return None


def _end_that_is_missing(log: MappedFileQueue, marks: Marks, verdict: Verdict) -> str:
    """What the queues know of the end of a log that is not there, unless the checkpoint says
    so. After a crash as well: a file has its name before it has a record, a record before its
    unit."""
    derived, durable = marks.derived_end or 0, marks.own.flushed if marks.own else 0
    if marks.ours and verdict.missing and durable > log.end_offset:
        return ""
    given_up = marks.own.minimum if marks.own and marks.ours and verdict.speaks else 0
    if log.files and derived > log.end_offset:
        return f"the log ends at {log.end_offset}, but the queues point up to {derived}"
    if not log.files and derived > given_up:
        return f"there is no log, but the queues point up to {derived}"
    return ""


def _report(attempt: _Recovery, walk: LogWalk, repair: LogRepair, began: float) -> RecoveryReport:
    begin = attempt.log.begin_offset if attempt.log.files else walk.end
    if attempt.own is not None:
        begin = max(begin, attempt.own.minimum)
    if attempt.on_progress is not None:
        attempt.on_progress("log", walk.end - attempt.start, max(1, walk.end - attempt.start))
    return RecoveryReport(
        mode=attempt.mode,
        begin=begin,
        start=attempt.start,
        end=walk.end,
        scanned_bytes=walk.bytes,
        scanned_records=walk.records,
        seconds=time.monotonic() - began,
        was_durable=attempt.marks.own.flushed if attempt.marks.own is not None else 0,
        cut=repair.cut_range,
        quarantine=tuple(dict.fromkeys(repair.quarantine)),
        valid_runs=tuple(walk.valid_runs),
        damage=tuple(walk.damage),
        foreign=attempt.foreign_range(walk.end),
        record_crc_mismatches=walk.record_crc_mismatches,
        last_record_start=walk.last_record_start,
        last_store_timestamp_ms=walk.last_store_timestamp_ms,
        dispatch_start=min(attempt.dispatch_start, walk.end),
        index_start=min(attempt.index_start, walk.end),
        missing=tuple(attempt.missing),
        notes=(*attempt.notes, *walk.notes, *repair.notes),
        checkpoint=repair.stored,
    )
