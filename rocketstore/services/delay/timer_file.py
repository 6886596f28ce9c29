"""`rocketstore/timers/state`: which messages of the timer topic wait, as of one moment.

It is derived: without it, or where it is damaged or of another log, a start reads the timer
topic. It is replaced as a whole after everything that it speaks of is on disk:

- `next`: messages of the timer topic below this queue offset are in it.
- `log`: a `LogPlace`; copies that it does not know lie in the log after it.
- `runs`: files of entries; `recent`: entries of no run yet; `gone`: queue offsets of entries that
  wait no more; `undelivered`: of those that could not be delivered; `copied`: of those that come again,
  whose copy is there and the next one not yet; `topics`: those that entries have a number of.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Collection
from typing import Any, Final

from rocketstore._native.os import syscalls
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.log.layout.log_place import LogPlace, place_at, place_in
from rocketstore.log.layout.ownership import make_like
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_state_file, unlink_if_there, write_state_file
from rocketstore.services.delay.offsets import Stored
from rocketstore.services.delay.timer_table import Entry, Run, TimerTable, run_path
from rocketstore.values.bounded_json import LIMITS, parse_json

__all__ = ["StoredTimers", "load", "make_directory", "save", "tidy"]

logger = logging.getLogger(__name__)

VERSION: Final = 2


class StoredTimers(Stored["TimerTable"]):
    """`rocketstore/timers/state`."""

    def __init__(
        self, engine: WritingEngine, begin: int | None, undelivered: Callable[[], Collection[int]]
    ) -> None:
        super().__init__(engine)
        self._undelivered = undelivered
        self._begin = begin

    @property
    def begin(self) -> int | None:
        return self._begin

    def write(self, what: TimerTable, end: int) -> None:
        layout = self._engine.layout
        make_directory(layout)
        what.settle(layout)
        what.undelivered = tuple(self._undelivered())
        segments = self._engine.reader.source.segments()
        save(layout, what, place_at(segments, end))
        self._begin = end


def make_directory(layout: StoreLayout) -> None:
    """The directory of the files. OSError where it cannot be made."""
    if not layout.timers.is_dir():
        make_like(layout.timers, layout.own.stat())
        syscalls.sync_directory(str(layout.own))


def load(layout: StoreLayout, table: TimerTable, end: Callable[[], int]) -> LogPlace | None:
    """Fills an empty table; gives the place of its log. None, and a table that is still empty, where
    no file is of any use: a line in the log says why. `end()`: where the timer topic ends now, which
    has a message for each entry."""
    path = layout.timer_state
    try:
        if layout.timers.is_symlink():
            raise ValueError("its directory is a link")
        document = _checked(read_state_file(path, LIMITS["timers"].size))
        next_offset, place = document["next"], place_in(document["log"])
        _numbers([next_offset], end() + 1)
        gone, undelivered, copied = (
            _numbers(document[name], next_offset) for name in ("gone", "undelivered", "copied")
        )
        most = (1 << 63, 1 << 63, 1 << 32, 1 << 32)
        recent = [Entry(*_numbers(row, *most)) for row in document["recent"]]
        topics = [str(topic) for topic in document["topics"]]
        _numbers([entry.at for entry in recent], next_offset)
        rows = [_numbers(row, *(1 << 63,) * 4) for row in document["runs"]]
        entries = sum(count for _, count, _, _ in rows) + len(recent)
        _numbers([number for number, _, _, _ in rows], 1 << 63)
        if place is None or entries > next_offset:
            raise ValueError(f"{entries} entries of {next_offset} messages, place {place}")
        runs = [Run(run_path(layout, row[0]), *row) for row in rows]
        for run in runs:
            run.check(next_offset)
    except FileNotFoundError:
        if path.exists():
            logger.warning("%s: a run is missing; timers are read from their topic", path)
        return None
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        logger.warning("%s is of no use, timers are read from their topic: %r", path, error)
        return None
    table.fill(next_offset, runs, recent, gone, undelivered)
    table.copied = set(copied)
    table.topics = {topic: number for number, topic in enumerate(topics, 1)}
    return place


def _checked(text: bytes) -> dict[str, Any]:
    """The document. ValueError, KeyError: there is none, or one of another version."""
    crc, _, rest = text.partition(b"\n")
    if int(crc, 16) != zlib.crc32(rest):
        raise ValueError("its checksum is wrong")
    document: Any = parse_json(rest, LIMITS["timers"])
    if document["version"] != VERSION:
        raise ValueError(f"its version is {document['version']}")
    return dict(document)


def _numbers(found: object, *most: int) -> list[int]:
    """Numbers from 0 on, each below its own of `most`, or all below the only one, and each once.
    ValueError for what is no list of them."""
    numbers: list[Any] = list(found) if isinstance(found, list) else [None]
    bounds = most
    if len(most) == 1:
        bounds = most * len(set(numbers))
    if not all(type(n) is int and 0 <= n < top for n, top in zip(numbers, bounds, strict=True)):
        raise ValueError(f"{found!r:.80} is beyond {most}")
    return numbers


def save(layout: StoreLayout, table: TimerTable, place: LogPlace) -> None:
    """Replaces the file, then removes runs that it does not name. `place`: copies that the table
    does not know will lie after it. OSError where it cannot be written."""
    document = {
        "version": VERSION,
        "next": table.next,
        "log": place,
        "runs": [(run.number, run.count, run.crc, run.next) for run in table.runs],
        "recent": table.recent,
        "gone": sorted(table.gone),
        "undelivered": sorted(table.undelivered),
        "copied": sorted(table.copied),
        "topics": list(table.topics),
    }
    text = json.dumps(document, separators=(",", ":")).encode()
    write_state_file(layout, layout.timer_state, b"%08x\n" % zlib.crc32(text) + text)
    for number in table.take_old():
        unlink_if_there(str(run_path(layout, number)))


def tidy(layout: StoreLayout, table: TimerTable) -> None:
    """Removes runs that the table does not have; a stop left them."""
    named = {run_path(layout, run.number).name for run in table.runs}
    if layout.timers.is_dir() and not layout.timers.is_symlink():
        for path in layout.timers.iterdir():
            if path.name.isdigit() and path.name not in named:
                unlink_if_there(str(path))
