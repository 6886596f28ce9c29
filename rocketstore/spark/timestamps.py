"""Times of records as datetimes. A record may hold any number of 64 bits; a datetime has a year of
four digits."""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

__all__ = ["DAY_MS", "END_MS", "EPOCH", "FIRST_MS", "milliseconds", "moment"]

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY_MS: Final = 86_400_000
#: Milliseconds [first, end) since 1970 that have a datetime: years 1 … 9999 without their first and
#: last day, which Spark's rows cannot show in every time zone.
FIRST_MS: Final = -719_161 * DAY_MS
END_MS: Final = 2_932_896 * DAY_MS


def moment(time_ms: int) -> datetime.datetime | None:
    """None where no moment has this number."""
    if not FIRST_MS <= time_ms < END_MS:
        return None
    return EPOCH + datetime.timedelta(milliseconds=time_ms)


class Milliseconds(NamedTuple):
    """A moment as ISO 8601 and as milliseconds since 1970. `zoned`: whether its text named a time
    zone."""

    text: str
    time_ms: int
    zoned: bool


def milliseconds(text: str) -> Milliseconds | None:
    """The moment that ISO 8601 names, in UTC where it names no time zone; None for other texts."""
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    zoned = found.tzinfo is not None
    if not zoned:
        found = found.replace(tzinfo=datetime.UTC)
    time_ms = (found - EPOCH) // datetime.timedelta(milliseconds=1)
    return Milliseconds(found.isoformat(), time_ms, zoned)
