"""What a broker derives from the log and keeps next to the queues: timers, and a RocksDB.

After a cut of the log they speak of records that are gone. RocketMQ does not look: timers get stuck
or deliver another message (K-91), and its RocksDB skips the records that come in the place. It
makes both again where they are missing, so what speaks of lost records goes into quarantine.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rocketstore._native.os import syscalls
from rocketstore.log.layout.listing import list_segments, make_directory
from rocketstore.log.layout.paths import StoreLayout

__all__ = ["set_broker_state_aside"]

logger = logging.getLogger(__name__)

#: A unit of the timer log: its size, the physical offset and the size of its record (format 10.5).
TIMER_UNIT: Final = struct.Struct(">i24xqi12x")
#: Newest timer log files that are read; physical offsets rise from file to file.
TIMER_FILES: Final = 2
#: Units read at a time.
UNITS: Final = 1 << 14
#: Moved first to last: until the last one is gone, the next recovery looks again.
TIMER_NAMES: Final = ("config/timercheck", "config/timercheck.bak", "timerwheel", "timerlog")


def set_broker_state_aside(layout: StoreLayout, end: int, *, cut: bool) -> list[str]:
    """Moves timers that know records at or beyond `end` into quarantine; after a `cut` the RocksDB,
    too, if it holds anything. Returns what was done, in sentences."""
    notes = []
    if _timers_know(layout.root / "timerlog", end):
        snapshots = [path.name for path in layout.root.glob("timerwheel.*")]
        _move(layout, (*sorted(snapshots), *TIMER_NAMES))
        notes.append(
            "timers speak of records that are gone, moved into quarantine: RocketMQ makes them "
            "again from the log, and may deliver delayed messages once more"
        )
    if cut and _holds_anything(layout.rocksdb):
        _move(layout, (layout.rocksdb.name,))
        notes.append(
            "rocksdbstore was moved into quarantine: it may speak of records that are gone; "
            "RocketMQ makes it again"
        )
    for note in notes:
        logger.warning("%s: %s", layout.root, note)
    return notes


def _timers_know(directory: Path, end: int) -> bool:
    """Whether a unit of the timer log points to a record that ends after `end`."""
    for _, _, path in list_segments([directory], "timer log")[0][-TIMER_FILES:]:
        with open(path, "rb") as file:
            while data := file.read(UNITS * TIMER_UNIT.size):
                whole = data[: len(data) - len(data) % TIMER_UNIT.size]
                for size, physical_offset, record_size in TIMER_UNIT.iter_unpack(whole):
                    if size == TIMER_UNIT.size and physical_offset + record_size > end:
                        return True
                if not whole or not any(whole[-TIMER_UNIT.size :]):
                    break  # the rest of the file is not written
    return False


def _holds_anything(directory: Path) -> bool:
    """Whether a RocksDB has a table, or a log that is not empty. Without its options RocketMQ
    leaves it empty."""
    if directory.is_symlink() or not directory.is_dir():
        return False
    with os.scandir(directory) as entries:
        return any(
            entry.name.endswith(".sst")
            or (entry.name.endswith(".log") and entry.stat().st_size > 0)
            for entry in entries
        )


def _move(layout: StoreLayout, names: Iterable[str]) -> None:
    if not layout.quarantine.is_dir():
        make_directory(layout.quarantine)
    for name in names:
        path = layout.root / name
        if not os.path.lexists(path):
            continue
        number = 0
        while os.path.lexists(kept := layout.quarantine / f"{path.name}-{number}"):
            number += 1
        syscalls.rename(os.fspath(path), os.fspath(kept))
        syscalls.sync_directory(os.fspath(layout.quarantine))
        syscalls.sync_directory(os.fspath(path.parent))
