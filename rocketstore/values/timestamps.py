"""Points in time at the public face: whole milliseconds since 1970 UTC, or aware datetimes; and spans:
seconds, or timedeltas."""

from __future__ import annotations

import datetime
import operator
from typing import SupportsIndex

from rocketstore.values.arguments import number_of_seconds

__all__ = ["Duration", "Timestamp", "duration_of", "moment_of", "timestamp_ms"]


#: What the public functions take as a point in time.
Timestamp = int | datetime.datetime
#: What they take as a span of time: a number of seconds, or a timedelta.
Duration = float | datetime.timedelta

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def moment_of(ms: int) -> datetime.datetime:
    """The time of milliseconds since 1970; the last one that there is for a later one."""
    try:
        return _EPOCH + ms * _MILLISECOND
    except OverflowError:
        return datetime.datetime.max.replace(tzinfo=datetime.UTC)


def duration_of(name: str, value: object) -> datetime.timedelta:
    """`value` as a timedelta; a number is one of seconds.

    Raises:
        TypeError: neither of the two. ValueError: NaN, or more than a timedelta can be.
    """
    if isinstance(value, datetime.timedelta):
        return value
    number = number_of_seconds(name, value)
    try:
        return datetime.timedelta(seconds=number)
    except OverflowError:
        raise ValueError(f"{name} = {value!r}: at most {datetime.timedelta.max}") from None


def timestamp_ms(name: str, value: object) -> int:
    """Milliseconds since 1970 of `value`; datetimes are rounded down to the millisecond.

    Raises:
        TypeError: neither a whole number nor a datetime.
        ValueError: a naive datetime, whose zone nobody knows, or a number outside 64 bits; their
            least one means none.
    """
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise ValueError(
                f"{name} = {value!r} has no time zone; "
                "use an aware datetime such as datetime.now(timezone.utc)"
            )
        return (value - _EPOCH) // _MILLISECOND
    # The look at a protocol takes its time.
    if type(value) is not int and (not isinstance(value, SupportsIndex) or isinstance(value, bool)):
        raise TypeError(
            f"{name} = {value!r}: expected milliseconds since 1970 as an int, or an aware datetime"
        )
    number = operator.index(value)
    if not -(2**63) < number < 2**63:
        raise ValueError(f"{name} = {number} does not fit 64 bits")
    return number
