"""Times of records as moments: a record may say any number of 64 bits, a moment has a year of four digits."""

from __future__ import annotations

import datetime
from typing import Final

__all__ = ["END_MS", "FIRST_MS", "milliseconds", "moment"]

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY_MS: Final = 86_400_000
#: Milliseconds [first, end) since 1970 that have a moment: years 1 … 9999 but for their first and last day, which
#: Spark's rows cannot show in every time zone.
FIRST_MS: Final = -719_161 * DAY_MS
END_MS: Final = 2_932_896 * DAY_MS


def moment(time_ms: int) -> datetime.datetime | None:
    """None where no moment has this number."""
    if not FIRST_MS <= time_ms < END_MS:
        return None
    return EPOCH + datetime.timedelta(milliseconds=time_ms)


def milliseconds(text: str) -> tuple[str, int] | None:
    """The moment that ISO 8601 names, with its zone, UTC where it names none, and its milliseconds since 1970."""
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    return found.isoformat(), (found - EPOCH) // datetime.timedelta(milliseconds=1)
