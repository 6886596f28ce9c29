"""`rocketstore/holds.json`: names by which programs keep the log, each from a physical offset on
(format.md 20.20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketstore.errors import ConfigError, OffsetOutOfRangeError, ReadFailedError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json_file, write_own_json
from rocketstore.values.bounded_json import LIMITS

__all__ = ["HOLDS_MAX", "NAME_MAX", "change_hold", "load_holds", "lower_holds", "save_holds"]

VERSION: Final = 1
#: Names of one store, count; and characters of one. `LIMITS` has room for them.
HOLDS_MAX: Final = 1000
NAME_MAX: Final = 255


def load_holds(layout: StoreLayout) -> dict[str, int]:
    """Physical offset by name.

    Raises:
        ReadFailedError: the file is no use. What it held is not known, so nothing may go.
        OSError: it cannot be read.
    """
    try:
        found = read_json_file(layout.holds, LIMITS["holds.json"])
        holds = found["holds"] if isinstance(found, dict) and found["version"] == VERSION else None
        if isinstance(holds, dict) and all(type(at) is int and at >= 0 for at in holds.values()):
            return holds
        why = "it names no holds"
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError) as error:
        why = repr(error)
    raise ReadFailedError(
        f"{layout.holds} cannot be read: {why}; nothing is removed from the log until it is "
        "restored, or deleted, with all holds"
    )


def save_holds(layout: StoreLayout, holds: Mapping[str, int]) -> None:
    """Durable when this returns. OSError where it cannot be written."""
    write_own_json(layout, layout.holds, {"version": VERSION, "holds": dict(holds)})


def change_hold(
    layout: StoreLayout, name: str, offset: int | None, bounds: tuple[int, int]
) -> bool:
    """Gives a name this offset of a log with these bounds; None: the name goes. Whether the name
    was there. The caller excludes trims.

    Raises:
        OffsetOutOfRangeError: the log does not have the offset.
        ConfigError: too many names.
        ReadFailedError, OSError: as `load_holds` and `save_holds`.
    """
    holds = load_holds(layout)
    before = holds.pop(name, None)
    if offset is not None:
        if not bounds[0] <= offset <= bounds[1]:
            status = "OFFSET_TOO_SMALL" if offset < bounds[0] else "OFFSET_OVERFLOW_BADLY"
            raise OffsetOutOfRangeError(offset, *bounds, status)
        if len(holds) >= HOLDS_MAX:
            raise ConfigError("name", name, f"a store has {HOLDS_MAX} holds at most")
        holds[name] = offset
    if before != offset:
        save_holds(layout, holds)
    return before is not None


def lower_holds(layout: StoreLayout, end_offset: int) -> bool:
    """The log ends here now: no hold lies above, where others will put. Whether one did. OSError."""
    try:
        holds = load_holds(layout)
    except ReadFailedError:
        return False  # it keeps all of the log
    if max(holds.values(), default=0) <= end_offset:
        return False
    save_holds(layout, {name: min(at, end_offset) for name, at in holds.items()})
    return True
