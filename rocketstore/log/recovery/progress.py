"""What the next recovery finds on disk: the progress of one that was killed, and a cut that was ordered.

The progress keeps an attempt from starting over. It holds what was found below the durable offset,
and how the first attempt judged the last writer. The file exists from the first step that was saved
until queues and index have caught up. If it is missing, or contradicts our checkpoint, recovery
begins where it began before.

An ordered cut says that the log is to end at a record, and what is after it is sound. A copy of a log
may have records that the log it copies has lost. Recovery itself never cuts at a whole record
(decision 0031), so the order is a file of its own. It is on the disk before anything is cut, and goes
once the cut is; each open in between begins the cut again.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any, Final

from rocketstore.log.damage import Damage
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import (
    read_json,
    read_json_file,
    remove_state_file,
    write_own_json,
)
from rocketstore.values.bounded_json import LIMITS

__all__ = [
    "RecoveryProgress",
    "drop_ordered_cut",
    "drop_progress",
    "load_progress",
    "order_cut",
    "ordered_cut",
    "save_progress",
]

logger = logging.getLogger(__name__)

VERSION: Final = 1
CUT_VERSION: Final = 1
#: Most damaged ranges, a count; a recovery of a log with more begins again.
DAMAGE_MAX: Final = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryProgress:
    """Offsets are physical. `mode` and `clean`: how the first attempt judged the last writer; later
    attempts cannot know it any more."""

    mode: str
    clean: bool
    #: Where the first attempt began, and up to where all is checked and durable.
    start: int
    end: int
    #: Where queues that no checkpoint counts begin to be filled.
    dispatch_start: int
    damage: tuple[Damage, ...] = ()
    first_time_fall: int = -1

    def up_to(self, end: int) -> RecoveryProgress:
        """The progress for an attempt that goes on at `end` and scans again from there."""
        damage = tuple(one for one in self.damage if one.end <= end)
        fall = self.first_time_fall if self.first_time_fall < end else -1
        return dataclasses.replace(self, end=end, damage=damage, first_time_fall=fall)


def load_progress(layout: StoreLayout) -> RecoveryProgress | None:
    """What an earlier recovery left; None without a file, or if it cannot be read."""
    found = read_json(layout.recovery)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        return None
    try:
        return _parse(found)
    except (TypeError, ValueError, KeyError) as error:
        logger.warning("%s is no progress of a recovery: %r", layout.recovery, error)
        return None


def save_progress(layout: StoreLayout, progress: RecoveryProgress) -> None:
    """Replaces the file; durable when this returns, as it has to be before our checkpoint moves."""
    document = {"version": VERSION, **dataclasses.asdict(progress)}
    write_own_json(layout, layout.recovery, document)


def drop_progress(layout: StoreLayout) -> None:
    """Removes the file: a later recovery has nothing to go on with."""
    remove_state_file(layout.recovery)


def _parse(found: dict[str, Any]) -> RecoveryProgress:
    if found["mode"] not in ("unclean", "foreign-clean", "foreign-unclean"):
        raise ValueError(f"mode {found['mode']!r}")
    start, end = _offset(found["start"]), _offset(found["end"])
    fall = found["first_time_fall"]
    return RecoveryProgress(
        mode=found["mode"],
        clean=found["clean"] is True,
        start=start,
        end=end,
        dispatch_start=_offset(found["dispatch_start"]),
        damage=_damage(found["damage"], start, end),
        first_time_fall=-1 if fall == -1 else _offset(fall),
    )


def _damage(found: object, start: int, end: int) -> tuple[Damage, ...]:
    """Ranges within [start, end), in order and apart, as a walk finds them."""
    if not isinstance(found, list) or len(found) > DAMAGE_MAX:
        raise ValueError(f"damage is no list of at most {DAMAGE_MAX} ranges")
    damage = []
    for one in found:
        low, high, topics = _offset(one["start"]), _offset(one["end"]), one["topics"]
        if not start <= low < high <= end:
            raise ValueError(f"damage [{low}, {high}) overlaps or lies outside [{start}, {end})")
        if not isinstance(topics, list):
            raise ValueError(f"topics {topics!r}")
        start = high
        damage.append(Damage(low, high, str(one["reason"]), tuple(map(str, topics))))
    return tuple(damage)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no offset")
    return value


# ---- a cut that was ordered ----


def order_cut(layout: StoreLayout, at: int) -> None:
    """Has the next open cut the log at the physical offset `at`. Durable when this returns. The
    caller holds the store's lock, and appends nothing any more."""
    write_own_json(layout, layout.cut, {"version": CUT_VERSION, "at": at})


def ordered_cut(layout: StoreLayout) -> int | None:
    """Where the log is to be cut; None without an order, or with one that cannot be read."""
    try:
        found: Any = read_json_file(layout.cut, LIMITS[layout.cut.name])
        at = found["at"] if found["version"] == CUT_VERSION else None
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < 2**63:
            raise ValueError(f"{at!r} is no offset")
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        logger.warning("%s orders no cut: %r", layout.cut, error)
        return None
    return at


def drop_ordered_cut(layout: StoreLayout) -> None:
    """The cut is done, and on the disk."""
    remove_state_file(layout.cut)
