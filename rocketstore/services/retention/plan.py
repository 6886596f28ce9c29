"""A plan: which segments go, and why each of the others stays. Pure: it is made from `Facts`.

A segment has messages of all topics, so a plan knows no topic (decision 0036).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from rocketstore.log.layout.paths import segment_name
from rocketstore.values.plural import counted
from rocketstore.values.public import public
from rocketstore.values.timestamps import duration_of

if TYPE_CHECKING:
    from rocketstore.services.retention.holds import Hold
    from rocketstore.services.retention.rule import Retention

__all__ = [
    "DiskUse",
    "Facts",
    "HeldLog",
    "Outcome",
    "RetentionPlan",
    "Segment",
    "SegmentPlan",
    "cut_at",
    "decide",
    "outcome",
]

#: Segments that end at this offset or below it may go, and why.
Wanted = tuple[int, str]
#: Reasons that a text shows for one segment.
SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the log. `newest_ms`: no message in it was stored later, as far as the first
    message of a later segment shows; None: nothing shows it."""

    start_offset: int
    end_offset: int
    newest_ms: int | None

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes of the file system of the log. `held`: of segments that were removed, whose bytes come
    back once a process lets go of them."""

    total: int
    used: int
    held: int = 0

    @property
    def fraction(self) -> float:
        return self.used / self.total if self.total else 0.0

    def surplus(self, fraction: float) -> int:
        """How many bytes must go until no more than a fraction is used; 0 or less: none."""
        return self.used - self.held - int(self.total * fraction)


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides, at one moment. `limit`: only what lies below is flushed and in its queue.
    `cleaning`: the high disk watermark was reached, and the low one not yet since."""

    now_ms: int
    hour: int
    segments: Sequence[Segment]
    begin: int
    limit: int
    holds: Sequence[Hold]
    disk: DiskUse | None = None
    cleaning: bool = False


@public
@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """What happens to one segment, a file of the log from `start_offset` to `end_offset`, and why.

    `newest_ms`: none of its messages was stored later than this; None: it is not known."""

    start_offset: int
    end_offset: int
    newest_ms: int | None
    goes: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        shown = "; ".join(self.reasons[:SHOWN_MAX])
        more = len(self.reasons) - SHOWN_MAX
        return f"{segment_name(self.start_offset)} {'goes' if self.goes else 'stays'}: {shown}" + (
            f"; {counted(more, 'more reason')}" if more > 0 else ""
        )


@public
@dataclass(frozen=True, slots=True)
class HeldLog:
    """What keeps `bytes` of the log, whole segments from `from_offset` on, that the rule wants to
    remove. `cause` is "timers", "delayed messages", "a replica", "archives", or "group" and its
    name; `what` says more."""

    cause: str
    what: str
    from_offset: int
    bytes: int

    def __str__(self) -> str:
        return f"held: {self.bytes} bytes, {self.what} (from {self.from_offset})"


@public
@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Which segments go, oldest first, and why each of the others stays.

    `begin_offset` is where the log begins, `new_begin_offset` where it begins without those that
    go. `emergency`: some go only because the disk is used up to the emergency watermark;
    `given_up`: what held these, and was not respected. `waits`: more would go, and are not on the
    disk or in their queue yet. `disk_used`: the used fraction of the file system, if the rule
    asks. `held_by`: what keeps segments that the rule wants to remove, the most bytes first."""

    segments: tuple[SegmentPlan, ...]
    begin_offset: int
    new_begin_offset: int
    disk_used: float | None = None
    emergency: bool = False
    given_up: tuple[str, ...] = ()
    waits: bool = False
    held_by: tuple[HeldLog, ...] = ()

    @property
    def count(self) -> int:
        """How many segments go."""
        return sum(segment.goes for segment in self.segments)

    @property
    def bytes(self) -> int:
        """Bytes of the segments that go."""
        return sum(s.end_offset - s.start_offset for s in self.segments if s.goes)

    def __str__(self) -> str:
        head = f"{counted(self.count, 'segment')} of {len(self.segments)} go, {self.bytes} bytes; "
        lines = [f"{head}the log begins at {self.new_begin_offset} then"]
        lines += [f"given up: {what}" for what in self.given_up]
        return "\n".join([*lines, *map(str, self.segments), *map(str, self.held_by)])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan comes to, without a word on each segment. `wanted`: which rules ask, up to
    where."""

    begin_offset: int
    new_begin_offset: int
    disk_used: float | None
    emergency: bool
    given_up: tuple[str, ...]
    waits: bool
    wanted: tuple[Wanted, ...]
    held_by: tuple[HeldLog, ...]


def outcome(rule: Retention, facts: Facts) -> Outcome:
    """What goes. The threads of a store that puts wait for each line of Python that runs here."""
    wanted = _wanted(rule, facts)
    goal = max((end for end, _ in wanted), default=facts.begin)
    held = min((hold.from_offset for hold in facts.holds), default=goal)
    sealed = [s for s in facts.segments[:-1] if s.end_offset <= facts.limit]
    plain = _last_end(sealed, min(goal, held), facts.begin)
    end, given_up, reach = plain, tuple[str, ...](), min(goal, held)
    urgent = _emergency_end(rule, facts)
    if urgent is not None:
        reach = max(reach, urgent[0])
        end = max(end, _last_end(sealed, urgent[0], facts.begin))
    if urgent is not None and end > plain:
        wanted.append(urgent)
        given_up = tuple(str(hold) for hold in facts.holds if hold.from_offset < end)
    waits = _last_end(facts.segments[:-1], reach, facts.begin) > end
    used = None if facts.disk is None else facts.disk.fraction
    held_by = tuple(_held_by(facts, max(end, _last_end(facts.segments[:-1], goal, end)), end))
    return Outcome(facts.begin, end, used, end > plain, given_up, waits, tuple(wanted), held_by)


def _held_by(facts: Facts, goal: int, end: int) -> Iterator[HeldLog]:
    """What keeps segments from `end` up to `goal`."""
    for hold in sorted(facts.holds, key=lambda hold: hold.from_offset):
        begins = [s.start_offset for s in facts.segments if s.end_offset > hold.from_offset]
        if begins and (size := goal - max(begins[0], end)) > 0:
            yield HeldLog(hold.cause or hold.what, hold.what, hold.from_offset, size)


def decide(rule: Retention, facts: Facts) -> RetentionPlan:
    """The plan for the facts."""
    made = outcome(rule, facts)
    end, wanted = made.new_begin_offset, made.wanted
    segments = tuple(
        SegmentPlan(
            s.start_offset,
            s.end_offset,
            s.newest_ms,
            goes=s.end_offset <= end,
            reasons=tuple(
                _why_it_goes(wanted, s)
                if s.end_offset <= end
                else _why_it_stays(rule, facts, wanted, s)
            ),
        )
        for s in facts.segments
    )
    return RetentionPlan(
        *(segments, facts.begin, end, made.disk_used, made.emergency, made.given_up, made.waits),
        made.held_by,
    )


def cut_at(plan: RetentionPlan, begin: int, why: str = "") -> RetentionPlan:
    """The same plan, but segments that end above `begin` stay; by default they are late."""
    late = why or "not yet on the disk, or not yet in its queue"
    segments = tuple(
        replace(s, goes=False, reasons=(late,)) if s.goes and s.end_offset > begin else s
        for s in plan.segments
    )
    return replace(plan, segments=segments, new_begin_offset=begin, waits=True)


def _wanted(rule: Retention, facts: Facts) -> list[Wanted]:
    found: list[Wanted] = []
    if rule.max_age is not None and (rule.hours is None or facts.hour in rule.hours):
        most = duration_of("max_age", rule.max_age)
        before = facts.now_ms - _ms(most)
        found += [(end, f"older than {most}") for end in _aged(facts.segments, before)]
    if rule.max_bytes is not None:
        surplus = sum(s.size for s in facts.segments) - rule.max_bytes
        text = f"the log has {surplus} bytes more than max_bytes"
        found += _freeing(facts.segments, surplus, text)
    if rule.disk_watermarks is not None and facts.disk is not None and facts.cleaning:
        low = rule.disk_watermarks[0]
        text = f"the disk is used to {facts.disk.fraction:.1%}, and shall be to {low:.1%}"
        found += _freeing(facts.segments, facts.disk.surplus(low), text)
    return found


def _freeing(segments: Sequence[Segment], surplus: int, why: str) -> list[Wanted]:
    """The fewest segments that have `surplus` bytes; all but the last where they have fewer."""
    if surplus <= 0:
        return []
    sizes = accumulate(s.size for s in segments[:-1])
    for segment, size in zip(segments, sizes, strict=False):
        if size >= surplus:
            return [(segment.end_offset, why)]
    return [(s.end_offset, why) for s in segments[-2:-1]]


def _emergency_end(rule: Retention, facts: Facts) -> Wanted | None:
    mark, disk = rule.emergency_watermark, facts.disk
    if mark is None or disk is None or disk.fraction < mark:
        return None
    # One byte more: used up to the mark is an emergency.
    text = f"emergency: the disk is used to {disk.fraction:.1%}, at least {mark:.1%}"
    found = _freeing(facts.segments, disk.surplus(mark) + 1, text)
    return found[0] if found else None


def _why_it_goes(wanted: Sequence[Wanted], segment: Segment) -> list[str]:
    return [why for end, why in wanted if segment.end_offset <= end]


def _why_it_stays(
    rule: Retention, facts: Facts, wanted: Sequence[Wanted], segment: Segment
) -> list[str]:
    if segment is facts.segments[-1]:
        return ["the last segment always stays"]
    found = []
    if segment.end_offset > facts.limit:
        found.append("not yet on the disk, or not yet in its queue")
    found += [str(hold) for hold in facts.holds if hold.from_offset < segment.end_offset]
    if not _why_it_goes(wanted, segment):
        found += _not_wanted(rule, facts, segment)
    return found


def _not_wanted(rule: Retention, facts: Facts, segment: Segment) -> list[str]:
    """Why no rule asks for a segment."""
    found = []
    if rule.max_age is not None:
        if rule.hours is not None and facts.hour not in rule.hours:
            found.append(f"max_age acts at the hours {sorted(rule.hours)}, it is {facts.hour}")
        elif segment.newest_ms is None:
            found.append("how old its messages are is not known")
        else:
            age = datetime.timedelta(milliseconds=max(0, facts.now_ms - segment.newest_ms))
            found.append(f"{age} old, max_age is {duration_of('max_age', rule.max_age)}")
    if rule.max_bytes is not None:
        found.append(f"the log has no more than {rule.max_bytes} bytes without those before it")
    if rule.disk_watermarks is not None and facts.disk is not None:
        low, high = rule.disk_watermarks
        used = f"the disk is used to {facts.disk.fraction:.1%}"
        found.append(
            f"{used}, cleaning goes to {low:.1%}" if facts.cleaning else f"{used}, below {high:.1%}"
        )
    if not found:
        found.append("no rule asks for it")
    return found


def _aged(segments: Sequence[Segment], before_ms: int) -> list[int]:
    """End of the last segment whose messages were all stored before a time. What is not known says
    nothing; the first one that is younger keeps all that follow."""
    end = None
    for segment in segments[:-1]:
        if segment.newest_ms is None:
            continue
        if segment.newest_ms >= before_ms:
            break
        end = segment.end_offset
    return [] if end is None else [end]


def _last_end(sealed: Sequence[Segment], limit: int, begin: int) -> int:
    return max((s.end_offset for s in sealed if s.end_offset <= limit), default=begin)


def _ms(span: datetime.timedelta) -> int:
    return span // datetime.timedelta(milliseconds=1)
