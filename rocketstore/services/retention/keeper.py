"""The keeper of one open store: collects the facts, carries a plan out, and applies the rule of the
store from a thread of its own."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.engine import Engine
from rocketstore.engine.open_options import SYSTEM_CLOCK
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import BackpressureError, ConfigError, RocketStoreError, StoreClosedError
from rocketstore.log.worker import Worker
from rocketstore.services.retention.disk import RemovedFiles, disk_use
from rocketstore.services.retention.events import EventLog, RetentionEvent
from rocketstore.services.retention.holds import Hold, holds_of
from rocketstore.services.retention.latest import LatestMessages
from rocketstore.services.retention.plan import (
    DiskUse,
    Facts,
    Outcome,
    RetentionPlan,
    Segment,
    cut_at,
    decide,
    outcome,
)
from rocketstore.services.retention.rule import Retention
from rocketstore.values.arguments import number_of_seconds, seconds
from rocketstore.values.clock import Clock, ManualClock
from rocketstore.values.kept_errors import without_frames

__all__ = ["AgeClock", "Keeper", "RemovedFiles", "disk_use"]

logger = logging.getLogger(__name__)

#: Messages that are put again at a time.
STEP: Final = 256
#: Pause after these, seconds, in which a delivery or a cancel has its turn.
TURN_S: Final = 0.001
#: Shortest time until what was not on the disk yet is looked at again, seconds.
SOON_S: Final = 0.025
#: Longest time between two tries after an error, seconds, where `check_every` is shorter.
RETRY_MOST_S: Final = 60.0


class Keeper:
    """Retention of one open store, of any mode; a guest of one that is open for writing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: The rule that the store was opened with.
        self.rule: Retention | None = None
        self.events = EventLog(engine.layout)
        #: Why the last round did not end.
        self.last_error: Exception | None = None
        self._clock = engine.write.clock if isinstance(engine, WritingEngine) else SYSTEM_CLOCK
        self._ages: AgeClock | None = None
        self._worker: RetentionWorker | None = None
        self._unfollow: Callable[[], object] = tuple
        # Held by the thread that decides and trims.
        self._turn = SignalSafeLock("retention")
        self._cleaning = False
        self._over = False
        self._warned: set[str] = set()  # causes of holds
        self._latest = LatestMessages(engine, (), lambda: self._over)
        self._why_kept = ""
        self._first_times: dict[int, int] = {}
        self._removed = RemovedFiles()

    # ---- the store's own rule ----

    def start(self, engine: WritingEngine, rule: Retention) -> None:
        """Applies a rule from now on, in a thread."""
        size = engine.reader.source.segment_size
        if rule.max_bytes is not None and size > 1 and rule.max_bytes < size:
            raise ConfigError(
                "max_bytes", rule.max_bytes, f"at least one segment, which has {size} bytes here"
            )
        age_ms = (
            None if rule.max_age is None else int(number_of_seconds("max_age", rule.max_age) * 1000)
        )
        last_ms = engine.commit_log.log.snapshot()[2]
        self.rule = rule
        self._ages = AgeClock(self._clock, last_ms if last_ms > 0 else None, age_ms)
        worker = self._worker = RetentionWorker(self, engine, rule)
        worker.start()
        self._unfollow = self._clock.follow(lambda now_ms: worker.wake())

    def stop(self) -> None:
        """Ends the thread after the round that runs."""
        self._over = True
        self._unfollow()
        if self._worker is not None:
            self._worker.stop()

    def round(self, engine: WritingEngine, rule: Retention) -> bool:
        """One round. Whether more goes once it is on the disk and in its queue. It keeps an error."""
        try:
            # What would go if nothing held it: in most rounds nothing does, and groups and
            # archives are not asked.
            with self._turn():
                facts = self._facts(rule, own=True, holds=False)
                self._cleaning = facts.cleaning
                found = outcome(rule, facts)
                waits = found.waits
                if found.new_begin_offset > found.begin_offset:
                    facts = self._freed(engine, rule, own=True)
                    found = outcome(rule, facts)
                    waits = found.waits
                    if found.held_by:
                        self._warn(_decided(rule, facts), facts)
                if found.new_begin_offset > found.begin_offset:
                    end = found.new_begin_offset
                    waits = self._carry_out(engine, rule, found) < end or waits
        except StoreClosedError:
            raise
        except Exception as error:
            if repr(error) != repr(self.last_error):
                logger.warning("%s: retention tries again: %s", self._engine.path, error)
            self.last_error = without_frames(error)
            raise
        self.last_error = None
        return waits

    # ---- any rule ----

    def plan(self, rule: Retention, *, own: bool) -> RetentionPlan:
        """What `run` would do."""
        with self._turn():
            plan = _decided(rule, self._facts(rule, own=own))
            why = self._latest_of(rule).too_many(plan.new_begin_offset) if plan.count else ""
            return cut_at(plan, plan.begin_offset, why) if why else plan

    def run(self, engine: WritingEngine, rule: Retention, *, own: bool) -> RetentionPlan:
        """Removes what goes by a rule, `own`: that of the store."""
        with self._turn() as nested:
            if nested:
                raise BackpressureError("this thread is in the middle of a run of retention")
            facts = self._facts(rule, own=own)
            self._cleaning = facts.cleaning if own else self._cleaning
            plan, begin = _decided(rule, facts), facts.begin
            if plan.count:
                freed = outcome(rule, self._freed(engine, rule, own=own))
                begin = self._carry_out(engine, rule, freed)
            late = begin < plan.new_begin_offset
            return cut_at(plan, begin, self._why_kept) if late else plan

    # ---- how ----

    def _freed(self, engine: WritingEngine, rule: Retention, *, own: bool) -> Facts:
        """The facts, once what can be put again does not hold what goes. What goes without that
        goes first: a full disk has room for it then."""
        facts = self._facts(rule, own=own)
        for hold, below in _movable(rule, facts):
            if hold.free is None or hold.from_offset >= below:
                continue
            found = outcome(rule, facts)
            if found.new_begin_offset > found.begin_offset and not found.emergency:
                self._carry_out(engine, rule, found)
            left = sys.maxsize
            try:
                while not self._over and (now := hold.free(below, STEP)) and now < left:
                    left = now
                    time.sleep(TURN_S)
            except (OSError, RocketStoreError) as error:
                if not found.emergency or isinstance(error, StoreClosedError):
                    raise
                logger.warning("%s: %s cannot be put again: %s", engine.path, hold.cause, error)
            facts = self._facts(rule, own=own)
        return facts

    def _warn(self, found: RetentionPlan, facts: Facts) -> None:
        """Says once of each cause that it holds more than the rule leaves of the log."""
        end = max([facts.limit, *(segment.start_offset for segment in facts.segments)])
        kept = end - found.new_begin_offset
        holding = {held.cause for held in found.held_by if 2 * held.bytes > kept}
        for held in found.held_by:
            if held.cause in holding - self._warned:
                logger.warning("%s: retention cannot remove the log, %s", self._engine.path, held)
        self._warned = holding

    def _facts(self, rule: Retention, *, own: bool, holds: bool = True) -> Facts:
        """What decides now. The clock of the store's own rule doubts jumps; a rule that is given
        for one call is measured by the clock as it is."""
        engine, wall = self._engine, self._clock.now_ms()
        now = self._ages.now_ms() if own and self._ages is not None else wall
        # The bounds first: what comes while the rest is looked at lies above.
        positions = engine.positions
        limit = min(positions.dispatched, positions.flushed)
        begin = engine.begin_offset
        disk = self._disk(rule)
        return Facts(
            now_ms=now,
            hour=datetime.fromtimestamp(wall / 1000).astimezone().hour,
            segments=self._segments(begin, now),
            begin=begin,
            limit=limit,
            holds=holds_of(engine, rule, begin, limit) if holds else (),
            disk=disk,
            cleaning=_is_cleaning(rule, disk, began=own and self._cleaning),
        )

    def _segments(self, begin: int, now_ms: int) -> list[Segment]:
        """The files of the log. What one begins with bounds the age of those before it; a store
        time that is to come says nothing (D-28)."""
        reader = self._engine.reader
        files = [file for file in reader.source.segments() if file.end_offset > begin]
        found: list[Segment] = []
        newest: int | None = None
        times: dict[int, int] = {}
        for file in reversed(files):
            found.append(Segment(file.start_offset, file.end_offset, newest))
            first = self._first_times.get(file.start_offset) or reader.first_store_time(file)
            if first is not None:
                times[file.start_offset] = first
                newest = first if first <= now_ms else newest
        self._first_times = times
        return found[::-1]

    def _disk(self, rule: Retention) -> DiskUse | None:
        if rule.disk_watermarks is None and rule.emergency_watermark is None:
            return None
        directory = self._engine.layout.logs[0]
        disk = disk_use(directory)
        marks = (*(rule.disk_watermarks or ())[:1], rule.emergency_watermark or 1.0)
        if disk.fraction < min(marks):
            return disk
        held, processes = self._removed.held(self._engine.reader.source.segments())
        if held:
            logger.info(
                "%s: %d bytes of removed segments are still mapped, by processes %s",
                *(self._engine.path, held, ", ".join(map(str, processes))),
            )
        return disk_use(directory, held)

    def _latest_of(self, rule: Retention) -> LatestMessages:
        if self._latest.topics != rule.keep_latest_of:
            self._latest = LatestMessages(self._engine, rule.keep_latest_of, lambda: self._over)
        return self._latest

    def _carry_out(self, engine: WritingEngine, rule: Retention, plan: Outcome) -> int:
        """Puts again what the rule keeps, and trims; the begin of the log then. An emergency is
        noted first."""
        latest, end, why = self._latest_of(rule), plan.new_begin_offset, ""
        try:
            why = latest.too_many(end) or latest.put_again(engine, end)
        except (RocketStoreError, OSError) as error:
            if not plan.emergency or isinstance(error, StoreClosedError):
                raise
            why = f"the latest messages of its keys cannot be put again: {error}"
        self._why_kept = why
        if why and not plan.emergency:
            return plan.begin_offset
        plan = replace(plan, given_up=(*plan.given_up, why)) if why else plan
        if plan.emergency:
            self.events.add(
                RetentionEvent(
                    self._clock.now_ms(),
                    plan.begin_offset,
                    plan.new_begin_offset,
                    plan.disk_used or 0.0,
                    plan.given_up,
                )
            )
        going = [
            file
            for file in engine.reader.source.segments()
            if file.end_offset <= plan.new_begin_offset
        ]
        files = self._removed.look(going) if plan.disk_used is not None else []
        try:
            return engine.trim(plan.new_begin_offset, over_holds=plan.emergency)
        finally:
            self._removed.add(files)


class RetentionWorker(Worker):
    """Applies the rule of a store: at each new segment, and after each `check_every`. Sooner where
    something will be on the disk in a moment; later after an error, up to a minute. It never fails
    the store."""

    def __init__(self, keeper: Keeper, engine: WritingEngine, rule: Retention) -> None:
        super().__init__("rocketstore-retention", self._ended, signal=engine.write.new_segments)
        self._keeper, self._engine, self._rule = keeper, engine, rule
        self._repeats = 0  # rounds in a row that waited, or failed

    def step(self) -> float | None:
        every = seconds("check_every", self._rule.check_every)
        try:
            if not self._keeper.round(self._engine, self._rule):
                self._repeats = 0
                return every
            pause_s, most_s = SOON_S, every
        except StoreClosedError:
            return None
        except Exception:
            pause_s, most_s = every, max(every, RETRY_MOST_S)
        self._repeats = min(self._repeats + 1, 16)
        return float(min(pause_s * 2**self._repeats, most_s))

    def _ended(self, error: BaseException) -> None:
        logger.error("%s: retention has ended: %r", self._engine.path, error)


def _decided(rule: Retention, facts: Facts) -> RetentionPlan:
    """The plan, in which nothing holds that `_freed` puts again."""
    going = {hold for hold, _ in _movable(rule, facts)}
    return decide(rule, replace(facts, holds=[hold for hold in facts.holds if hold not in going]))


def _movable(rule: Retention, facts: Facts) -> Iterator[tuple[Hold, int]]:
    """Holds of what can be put again where that is worth it, and up to where in the log nothing else
    holds what goes."""
    reach = _reach(rule, facts, [hold for hold in facts.holds if hold.free is None])
    goal = _reach(rule, facts, ())
    for hold in facts.holds:
        below = reach if hold.from_offset < reach else goal
        if hold.free and hold.from_offset < below and hold.free(below, 0) is not None:
            yield hold, reach


def _reach(rule: Retention, facts: Facts, holds: Sequence[Hold]) -> int:
    """Where the log would begin with these holds alone."""
    return outcome(rule, replace(facts, holds=holds)).new_begin_offset


def _is_cleaning(rule: Retention, disk: DiskUse | None, *, began: bool) -> bool:
    """Between the watermarks it goes on as it began."""
    if rule.disk_watermarks is None or disk is None:
        return False
    low, high = rule.disk_watermarks
    return disk.fraction >= high or (began and disk.fraction > low)


#: Smallest step ahead that is not believed at once, ms: as `log.commitlog.clock_monitor`.
STEP_MS: Final = 10_000
#: How long the clock must stay there, ms.
BELIEVED_AFTER_MS: Final = 3_600_000


def steady_ms() -> int:
    """A time that nobody sets."""
    return time.monotonic_ns() // 1_000_000


class AgeClock:
    """The time that ages of messages are measured against: never ahead of the clock of the store.
    One that is moved by hand is believed. One thread at a time asks.

    Store times follow the clock at the open and a monotonic clock from there on, so a clock that is
    stepped while a store is open changes none of them. Ages are measured in the same way: by a
    clock that goes on as it did when the store was opened. A step back is followed at once:
    everything gets younger, and nothing goes early. A step ahead is followed once the clock has
    stood there for an hour. So is a clock that is so far ahead of the newest message that the whole
    log would be too old: it may be that of a machine that has just started and has not asked for
    the time yet.
    """

    def __init__(self, clock: Clock, newest_ms: int | None, max_age_ms: int | None) -> None:
        """`newest_ms`: a store time near the end of the log; None: it is not known. `max_age_ms`:
        the age at which messages go; None: at no age."""
        self._clock = clock
        wall, steady = clock.now_ms(), steady_ms()
        # Wall clock less steady clock changes only when the former is set.
        self._trusted = wall - steady
        self._doubted: tuple[int, int] | None = None  # the difference, and since when
        if newest_ms is not None and max_age_ms is not None and newest_ms + max_age_ms < wall:
            self._trusted = newest_ms - steady

    def now_ms(self) -> int:
        """The time for ages, milliseconds since 1970."""
        wall, steady = self._clock.now_ms(), steady_ms()
        if isinstance(self._clock, ManualClock):
            return wall
        ahead = wall - steady
        if ahead <= self._trusted + STEP_MS:
            self._trusted, self._doubted = ahead, None
        elif self._doubted is None or abs(ahead - self._doubted[0]) > STEP_MS:
            self._doubted = ahead, steady
            logger.warning(
                "the clock is %d s ahead of where it was, or of the newest message: retention "
                "believes it if it stands there for %d s",
                (ahead - self._trusted) // 1000,
                BELIEVED_AFTER_MS // 1000,
            )
        elif steady - self._doubted[1] >= BELIEVED_AFTER_MS:
            self._trusted, self._doubted = ahead, None
        return self._trusted + steady

    @property
    def doubted(self) -> bool:
        """Whether the wall clock is ahead of `now_ms`."""
        return self._doubted is not None
