"""`Retention`: what may leave the front of a log, and what keeps it there.

One rule is for all topics. `check_retention` refuses rules per topic; decision 0036 says why.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Final, Literal, NoReturn

from rocketstore.config.units import duration_within
from rocketstore.errors import ConfigError
from rocketstore.values.public import public
from rocketstore.values.reserved_names import is_system_topic
from rocketstore.values.timestamps import Duration

__all__ = ["Retention", "check_retention"]

#: Bounds of `check_every`.
AGE_LEAST: Final = datetime.timedelta.resolution
CHECK_LEAST: Final = datetime.timedelta(milliseconds=10)
CHECK_MOST: Final = datetime.timedelta(days=1)
HOURS: Final = frozenset(range(24))
GROUPS: Final = 'names of consumer groups, such as ["billing"], or "all", or None'
TOPICS: Final = 'names of topics, such as ["config"]'


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which whole segments leave the front of the log, for `rocketstore.open(retention=…)`.

    A segment goes when `max_age`, `max_bytes` or `disk_watermarks` asks for it, and nothing holds
    it. The last segment stays, and so does what is not on the disk yet, or not in its queue.

    Args:
        max_age: A segment goes once its newest message was stored longer ago than this: a
            timedelta, or a number of seconds. What counts is the store
            time of the messages, and a clock that jumps ahead is believed after an hour only.
        max_bytes: Segments go, oldest first, until the files of the log have no more bytes than
            this; the file that is being written counts as a whole.
        disk_watermarks: (low, high), fractions of the file system of the log. Once it is used up
            to `high`, segments go until it is used up to `low` only.
        hours: Local hours in which `max_age` removes something, such as {2, 3, 4}. None: all.
            `max_bytes` and `disk_watermarks` act at any hour.
        keep_unconsumed_by: Names of consumer groups, or "all" for every group that has stored
            offsets: what one of them has not consumed stays. A group that is named and has stored
            no offset yet holds all of the log; a topic without an offset of the group holds none.
        keep_unshipped: Whether a segment stays until `ship` has copied it to an archive.
        keep_latest_of: Names of topics. Before a segment goes, the latest message of each key in it
            is put again at the end of the log: queue, key, properties, body and born time are the
            same, queue offset and store time are new. A tombstone, which has an empty body, and
            messages without a key are not. Segments of which more than half would be put again
            stay, and so they do where a message cannot be put, as on a full disk.
        emergency_watermark: A fraction above `high`. Once the file system is used up to it,
            segments go although `max_age`, groups, archives or services hold them, until it is
            used less. Each time a warning is logged, and `Store.retention.events` says what was
            given up. None: holds are never broken, and puts fail once the disk is full.
        check_every: The rule is applied this often, and whenever a new segment begins.

    Raises:
        ConfigError: A value that has no meaning, or no rule at all; the error says which.
    """

    max_age: Duration | None = None
    max_bytes: int | None = None
    disk_watermarks: tuple[float, float] | None = None
    hours: Collection[int] | None = None
    keep_unconsumed_by: Collection[str] | Literal["all"] | None = None
    keep_unshipped: bool = False
    keep_latest_of: Collection[str] = ()
    emergency_watermark: float | None = None
    check_every: Duration = datetime.timedelta(seconds=10)

    def __post_init__(self) -> None:
        if self.max_age is not None:
            duration_within("max_age", self.max_age, AGE_LEAST, datetime.timedelta.max)
        duration_within("check_every", self.check_every, CHECK_LEAST, CHECK_MOST)
        _check_bytes(self.max_bytes)
        self._put("disk_watermarks", _watermarks(self.disk_watermarks))
        self._put("hours", _hours(self.hours))
        if self.keep_unconsumed_by != "all":
            groups = _names("keep_unconsumed_by", self.keep_unconsumed_by, GROUPS)
            self._put("keep_unconsumed_by", groups)
        if self.keep_latest_of != ():
            topics = _names("keep_latest_of", self.keep_latest_of, TOPICS)
            self._put("keep_latest_of", topics or ())
        if system := list(filter(is_system_topic, self.keep_latest_of)):
            _refuse("keep_latest_of", system, "no topics of RocketMQ itself")
        if not isinstance(self.keep_unshipped, bool):
            _refuse("keep_unshipped", self.keep_unshipped, "must be True or False")
        _check_emergency(self)
        self._check_use()

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_use(self) -> None:
        """A rule that never removes anything, or a part that has no effect, is a mistake."""
        removes = (self.max_age, self.max_bytes, self.disk_watermarks, self.emergency_watermark)
        if all(value is None for value in removes):
            _refuse(
                "max_age", None, "nothing would ever go: give max_age, max_bytes or disk_watermarks"
            )
        if self.hours is not None and self.max_age is None:
            _refuse(
                "hours", sorted(self.hours), "they say when max_age removes something: give max_age"
            )


def check_retention(retention: object, mode: str) -> Retention:
    """The argument `retention` of an open.

    Raises:
        ConfigError: it is no `Retention`, or the store is opened for reading.
    """
    if isinstance(retention, Mapping):
        _refuse(
            "retention",
            retention,
            "one Retention for the whole store: a log keeps all topics in one order, and whole "
            "segments go. To keep one topic longer, ship the segments to an archive "
            "(keep_unshipped=True) and scan it there, or give the topic a store of its own",
        )
    if not isinstance(retention, Retention):
        _refuse("retention", retention, "a rocketstore.Retention, or None")
    if mode == "r":
        _refuse("retention", retention, "with mode 'rw' or 'r+': a reader removes nothing")
    return retention


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise ConfigError(name, value, allowed)


def _check_bytes(most: object) -> None:
    if most is None:
        return
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        _refuse("max_bytes", most, "a whole number of bytes above 0, or None")


def _watermarks(found: object) -> tuple[float, float] | None:
    if found is None:
        return None
    allowed = "(low, high) with 0 < low < high <= 1, fractions: 75 % is 0.75"
    if not isinstance(found, tuple | list) or len(found) != 2:
        _refuse("disk_watermarks", found, allowed)
    low, high = _fraction(found[0]), _fraction(found[1])
    if low is None or high is None or not low < high:
        _refuse("disk_watermarks", found, allowed)
    return low, high


def _fraction(value: object) -> float | None:
    """A number above 0 and up to 1; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    number = float(value)
    return number if math.isfinite(number) and 0 < number <= 1 else None


def _hours(found: object) -> frozenset[int] | None:
    if found is None:
        return None
    hours = list(found) if isinstance(found, Collection) and not isinstance(found, str) else []
    if not hours or any(type(hour) is not int or hour not in HOURS for hour in hours):
        _refuse("hours", found, "whole local hours from 0 to 23, such as {2, 3, 4}, or None")
    return frozenset(hours)


def _names(option: str, found: object, allowed: str) -> tuple[str, ...] | None:
    if found is None:
        return None
    if isinstance(found, str):
        one = "one group" if allowed is GROUPS else "one topic"
        _refuse(option, found, f"{allowed}; {one} is [{found!r}]")
    if not isinstance(found, Collection) or isinstance(found, bytes | Mapping) or not found:
        _refuse(option, found, allowed)
    if not all(isinstance(name, str) and name for name in found):
        _refuse(option, found, allowed)
    return tuple(sorted(set(found)))


def _check_emergency(rule: Retention) -> None:
    found = rule.emergency_watermark
    if found is None:
        return
    number = _fraction(found)
    if number is None:
        _refuse("emergency_watermark", found, "a fraction above 0 and up to 1, such as 0.95")
    if rule.disk_watermarks is not None and not found > rule.disk_watermarks[1]:
        high = rule.disk_watermarks[1]
        _refuse("emergency_watermark", found, f"above the high disk watermark, {high}")
