"""Epochs: which master wrote which part of a log, and how far two logs are the same.

A term begins with each promotion, an epoch with each open of a master within its term. The id of an
epoch is random. So two logs that both know an epoch have the same bytes below its start; above it
they are the same as far as both have come before another epoch began.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketstore.errors import ReplicationError

__all__ = [
    "EPOCHS_MAX",
    "NUMBER_MAX",
    "OFFSET_MAX",
    "RISE_MOST",
    "Epoch",
    "believable",
    "check_epochs",
    "common_end",
    "promoted_twice",
    "term_of",
    "with_promotion",
    "with_run",
]

#: Epochs that are kept, a count; the oldest go, and a replica that knows only these is refused.
EPOCHS_MAX: Final = 1024
NUMBER_MAX: Final = 2**32 - 1
#: How far a term may rise at once by what others say, count: a promotion adds one.
RISE_MOST: Final = 1 << 16
OFFSET_MAX: Final = 2**63 - 1
ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Epoch:
    """What open number `run` of the master of `term` wrote: from the physical offset `start` on."""

    term: int
    run: int
    start: int
    id: bytes


def check_epochs(epochs: Sequence[Epoch]) -> None:
    """ValueError for what no history is."""
    if len(epochs) > EPOCHS_MAX:
        raise ValueError(f"{len(epochs)} epochs, of {EPOCHS_MAX} at most")
    last, start = (0, NUMBER_MAX), 0
    for one in epochs:
        if max(one.term, one.run) > NUMBER_MAX or not last < (one.term, one.run):
            raise ValueError(f"run {one.run} of term {one.term} comes after {last}")
        if not start <= one.start <= OFFSET_MAX:
            raise ValueError(f"an epoch begins at {one.start}, the one before at {start}")
        if len(one.id) != ID_BYTES:
            raise ValueError(f"an epoch has an id of {len(one.id)} bytes")
        last, start = (one.term, one.run), one.start


def term_of(epochs: Sequence[Epoch]) -> int:
    """The term of a history; 0 for one that no master has begun."""
    return epochs[-1].term if epochs else 0


def believable(term: int, known: int) -> bool:
    """Whether a term that others name can be true for a store that knows of `known` at most, 0 for
    none. A lie must not use up the terms: no promotion would come after it."""
    return term <= (known + RISE_MOST if known else NUMBER_MAX - RISE_MOST)


def with_run(epochs: Sequence[Epoch], *, begin: int, end: int) -> tuple[Epoch, ...]:
    """The history once its master has opened the log [begin, end) again. The first epoch of all is
    of what the log holds already.

    Raises:
        ReplicationError: no run is after the last one.
    """
    if not epochs:
        return with_promotion((), begin=begin, end=end)
    if epochs[-1].run >= NUMBER_MAX:
        raise ReplicationError(
            f"no open comes after run {NUMBER_MAX} of term {epochs[-1].term}: begin a new term "
            "with 'rocketstore promote'"
        )
    return _with(epochs, end, epochs[-1].term, epochs[-1].run + 1, end)


def with_promotion(
    epochs: Sequence[Epoch], *, begin: int, end: int, above: int = 0
) -> tuple[Epoch, ...]:
    """The history once a store with the log [begin, end) was promoted. `above`: a term that the new
    one is after, besides those of the history.

    Raises:
        ReplicationError: no term is after it.
    """
    last = max(term_of(epochs), above)
    if last >= NUMBER_MAX:
        raise ReplicationError(
            f"no term comes after {last}: remove rocketstore/replication.json, open the store with "
            "replication=Master(…), which begins a new history, and make its copies again in empty "
            "directories"
        )
    return _with(epochs, end, last + 1, 0, end if epochs else begin)


def common_end(
    mine: Sequence[Epoch], my_end: int, theirs: Sequence[Epoch], their_end: int
) -> int | None:
    """Up to where two logs are the same: the end of the last epoch that both know, in the log where
    it ends first. None where they know none in common."""
    known = {one: at for at, one in enumerate(theirs)}
    for at in range(len(mine) - 1, -1, -1):
        there = known.get(mine[at])
        if there is not None:
            return min(_end_of(mine, at, my_end), _end_of(theirs, there, their_end))
    return None


def promoted_twice(mine: Sequence[Epoch], theirs: Sequence[Epoch]) -> bool:
    """Whether two histories are in one term that may have begun with two promotions: neither of the
    two is right, and no machine can choose. Of one promotion both know an epoch, unless one of them
    has lost bytes from before it, which nothing distinguishes from the other case."""
    term = term_of(mine)
    if not term or term != term_of(theirs):
        return False
    known = {one for one in theirs if one.term == term}
    return not any(one in known for one in mine)


def _with(epochs: Sequence[Epoch], end: int, term: int, run: int, start: int) -> tuple[Epoch, ...]:
    """An epoch without a byte goes, but for the first of a term: it distinguishes promotions."""
    kept = [one for one in epochs if one.start < end or (one.run == 0 and one.start == end)]
    return (*kept, Epoch(term, run, start, secrets.token_bytes(ID_BYTES)))[-EPOCHS_MAX:]


def _end_of(epochs: Sequence[Epoch], at: int, end: int) -> int:
    return min(end, epochs[at + 1].start) if at + 1 < len(epochs) else end
