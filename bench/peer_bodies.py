"""The bodies that bench/peers.py stores: of one size, or of many.

`mixed` is no trace of a real system: it is a log-normal distribution of our own choice (median 300 B, sigma
1.6, cut at 64 KiB), shaped as messages often are: most of them small, a few large, half of the bytes in 6 % of
them. Its 1000 sizes are the quantiles of the distribution, in an order that a fixed seed gives, so
that every batch of 1000 has the same bytes in every run.
"""

from __future__ import annotations

import math
import os
import random
import statistics
from dataclasses import dataclass

__all__ = ["MIXED", "SETS", "BodySet"]

MEDIAN_BYTES = 300
SIGMA = 1.6
MOST_BYTES = 64 << 10
SEED = 20_240_607
#: Of a set with one size.
BODIES = 256
MIXED_BODIES = 1000


@dataclass(frozen=True)
class BodySet:
    """`sizes`: bytes of each body, in the order in which they are stored, again and again."""

    name: str
    sizes: tuple[int, ...]

    @property
    def mean_bytes(self) -> float:
        return statistics.fmean(self.sizes)

    def made(self) -> list[bytes]:
        """Random bodies, so that packages which compress gain nothing."""
        return [os.urandom(size) for size in self.sizes]


def mixed_sizes() -> tuple[int, ...]:
    normal = statistics.NormalDist()
    sizes = [
        min(MOST_BYTES, round(MEDIAN_BYTES * math.exp(SIGMA * normal.inv_cdf(part))))
        for part in ((number + 0.5) / MIXED_BODIES for number in range(MIXED_BODIES))
    ]
    random.Random(SEED).shuffle(sizes)
    return tuple(sizes)


MIXED = BodySet("mixed", mixed_sizes())
SETS = (BodySet("100 B", (100,) * BODIES), BodySet("1024 B", (1024,) * BODIES), MIXED)
