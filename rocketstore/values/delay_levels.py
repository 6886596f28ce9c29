"""The delay levels of a store: level 1, 2, … as RocketMQ's text names them.

A put with a level above the highest waits as long as the highest says
(`log/queues/delayed_puts.py`).
"""

from __future__ import annotations

import functools
import re
from typing import Final

from rocketstore.errors import ConfigError

__all__ = ["DEFAULT_DELAY_LEVELS", "parse_delay_levels"]

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@functools.cache  # each open asks several times
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of level 1, 2, … from RocketMQ's text form."""
    units = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000}
    levels = []
    for word in text.split():
        if not re.fullmatch(r"[0-9]{1,9}[smhd]", word):
            raise ConfigError(
                "delay_levels", text, f'must be words as "30s", "5m", "2h", "1d", not {word!r}'
            )
        levels.append(int(word[:-1]) * units[word[-1]])
    if not 1 <= len(levels) <= 1000:
        raise ConfigError("delay_levels", text, "must name 1 … 1000 levels")
    return tuple(levels)
