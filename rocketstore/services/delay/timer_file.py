"""`rocketstore/timers/state`: which messages of the timer topic wait, as of one moment.

It is derived: without it, or where it is damaged or tells of another log, a start reads the timer
topic. It is replaced as a whole after everything that it speaks of is on disk:

- `next`: messages of the timer topic below this queue offset are in it.
- `log`: a `LogPlace`; copies that it does not know lie in the log after it.
- `runs`: files of entries; `recent`: entries of no run yet; `gone`: queue offsets of entries that
  wait no more; `undelivered`: of those that could not be delivered; `copied`: of those that come again,
  whose copy is there and the next one not yet.
"""

from __future__ import annotations

import json
import logging
import zlib
from typing import TYPE_CHECKING, Any, Final

from rocketstore._native.os import syscalls
from rocketstore.log.layout.atomic_files import read_state_file, unlink_if_there, write_state_file
from rocketstore.log.layout.log_place import LogPlace
from rocketstore.log.layout.ownership import make_like
from rocketstore.services.delay.timer_runs import Entry, Run, run_path

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.services.delay.timer_table import TimerTable

__all__ = ["load", "make_directory", "save", "tidy"]

logger = logging.getLogger(__name__)

VERSION: Final = 1
MAX_BYTES: Final = 64 << 20


def make_directory(layout: StoreLayout) -> None:
    """The directory of the files. OSError where it cannot be made."""
    if not layout.timers.is_dir():
        make_like(layout.timers, layout.own.stat())
        syscalls.sync_directory(str(layout.own))


def load(layout: StoreLayout, table: TimerTable) -> LogPlace | None:
    """Fills an empty table; gives the place of its log. None, and a table that is still empty, where
    no file is of any use: a line in the log says why."""
    path = layout.timer_state
    try:
        if layout.timers.is_symlink():
            raise ValueError("its directory is a link")
        text = read_state_file(path, MAX_BYTES)
        document = _checked(text)
        runs = [Run(run_path(layout, row[0]), *row) for row in document["runs"]]
        for run in runs:
            run.check()
        recent = [Entry(*row) for row in document["recent"]]
        place, copied = LogPlace(*document["log"]), set(document["copied"])
    except FileNotFoundError:
        if path.exists():
            logger.warning("%s: a run is missing; timers are read from their topic", path)
        return None
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        logger.warning("%s is of no use, timers are read from their topic: %r", path, error)
        return None
    table.fill(document["next"], runs, recent, document["gone"], document["undelivered"])
    table.copied = copied
    return place


def _checked(text: bytes) -> dict[str, Any]:
    """The document. ValueError, KeyError: there is none, or one of another version."""
    crc, _, rest = text.partition(b"\n")
    if int(crc, 16) != zlib.crc32(rest):
        raise ValueError("its checksum is wrong")
    document: dict[str, Any] = json.loads(rest)
    if document["version"] != VERSION:
        raise ValueError(f"its version is {document['version']}")
    return document


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
