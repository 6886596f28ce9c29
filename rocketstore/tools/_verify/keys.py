"""Looks for records with keys, or tags, that the index has no entry of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy

from rocketstore._native.format.column_scanner import ColumnScanner
from rocketstore.log.read.column_reader import ColumnWalk, LogFiles, ScanReport
from rocketstore.values.plural import counted
from rocketstore.values.system_flags import ROLLED_BACK, TRANSACTION_TYPE

if TYPE_CHECKING:
    from array import array

    from numpy.typing import NDArray

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.tools._verify.facts import LogFacts
    from rocketstore.tools._verify.waiting import Waiting
    from rocketstore.tools.report import Findings

__all__ = ["check_keys"]

CHUNK_BYTES: Final = 8 << 20
COLUMNS: Final = ("physical_offset", "sys_flag", "store_timestamp_ms", "properties")
#: Properties whose value is a key, or keys with blanks between them.
NAMES: Final = (b"UNIQ_KEY", b"KEYS")
TAGS: Final = (b"TAGS",)


def check_keys(
    layout: StoreLayout, facts: LogFacts, findings: Findings, waiting: Waiting, *, in_use: bool
) -> None:
    """Each record with keys has an entry, but for those that `waiting` may lack; so has each with
    tags, in an index that has entries of tags. Relies on: the index was walked. `in_use`: the store
    keeps an index, by its checkpoints."""
    keys = _Missing(NAMES, facts.indexed)
    tags = _Missing(TAGS, facts.tagged) if facts.tagged else None
    files = LogFiles(layout)
    scanner = ColumnScanner(COLUMNS, room=1 << 16, verify=0)
    walk = ColumnWalk(
        files, scanner, facts.begin, facts.end, facts.end, whole=False,
        chunk_bytes=CHUNK_BYTES, on_damage="skip", report=ScanReport(),
    )  # fmt: skip
    try:
        for chunk in walk.chunks():
            for missing in filter(None, (keys, tags)):
                missing.add(_without(chunk.arrays, missing, waiting))
    finally:
        files.close()
    if tags is not None and tags.count:
        # A broker before 5.4 made none of them, if it was one for a while.
        text = f"the index has entries of tags, but none for {tags.text('tags')}: a broker of 5.4 "
        text += "or later does not find them by tag; `rebuild` makes all of them"
        findings.notice("derived", str(layout.index), text, code="tags")
    if not keys.count:
        return
    text = keys.text("keys")
    if len(keys.indexed) or in_use:
        text = f"the index has no entry of {text}: no query finds them by key"
        findings.add("derived", str(layout.index), 0, text, code="keys")
    else:
        text = f"no index, and {text}: no query of RocketMQ finds them by key"
        findings.notice("derived", str(layout.index), text, code="keys")


class _Missing:
    """Records with one of the properties `names` whose offset is none of those in the index."""

    def __init__(self, names: tuple[bytes, ...], indexed: array[int]) -> None:
        self.names = names
        self.indexed = numpy.unique(numpy.frombuffer(indexed, numpy.int64))
        self.count, self._first, self._last = 0, -1, -1

    def add(self, found: NDArray[numpy.int64]) -> None:
        if len(found):
            self.count += len(found)
            self._first = int(found[0]) if self._first < 0 else self._first
            self._last = int(found[-1])

    def text(self, what: str) -> str:
        where = f"{self._first} … {self._last} of the log"
        return f"{counted(self.count, 'record')} with {what} ({where})"


def _without(arrays: dict[str, Any], missing: _Missing, waiting: Waiting) -> NDArray[numpy.int64]:
    """Physical offsets of the records of a chunk that should have an entry and have none."""
    places = numpy.asarray(arrays["physical_offset"])
    keyed = _keyed(missing.names, *arrays["properties"])
    indexed = missing.indexed
    kinds = numpy.asarray(arrays["sys_flag"]) & TRANSACTION_TYPE
    keyed &= kinds != ROLLED_BACK
    keyed &= places < waiting.index_from
    if waiting.index_from_ms is not None:
        keyed &= numpy.asarray(arrays["store_timestamp_ms"]) < waiting.index_from_ms
    wanted = places[keyed]
    at_least = numpy.searchsorted(indexed, wanted)
    there = at_least < len(indexed)
    there[there] = indexed[at_least[there]] == wanted[there]
    return numpy.asarray(wanted[~there])


def _keyed(
    wanted: tuple[bytes, ...],
    rows: NDArray[numpy.int32],
    names: tuple[Any, ...],
    values: tuple[Any, ...],
) -> NDArray[numpy.bool_]:
    """Which rows have one of the properties `wanted`. `rows`: where the properties of each begin,
    and the end; names and values: where each begins, and the bytes of all."""
    found = numpy.zeros(len(rows) - 1, bool)
    starts, data = names[0].astype(numpy.int64), names[1]
    lengths = numpy.diff(starts)
    filled = numpy.diff(values[0]) > 0
    for name in wanted:
        there = numpy.flatnonzero((lengths == len(name)) & filled)
        if not len(there):
            continue
        letters = data[starts[there][:, None] + numpy.arange(len(name))]
        there = there[(letters == numpy.frombuffer(name, numpy.uint8)).all(axis=1)]
        first = values[1][values[0][there]]
        for pair in there[first == ord(" ")]:  # perhaps nothing but blanks
            if not values[1][values[0][pair] : values[0][pair + 1]].tobytes().strip(b" "):
                there = there[there != pair]
        found[numpy.searchsorted(rows, there, "right") - 1] = True
    return found
