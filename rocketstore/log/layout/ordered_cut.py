"""A cut that was ordered: the log is to end at a record, and what is after it is sound.

A copy of a log may have records that the log it copies has lost. Recovery itself never cuts at a
whole record (decision 0031), so the order is a file of its own. It is on the disk before anything
is cut, and goes once the cut is; each open in between begins the cut again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from rocketstore.log.layout.atomic_files import remove_state_file
from rocketstore.log.layout.json_files import read_json_file, write_own_json
from rocketstore.values.bounded_json import LIMITS

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["drop_ordered_cut", "order_cut", "ordered_cut"]

logger = logging.getLogger(__name__)

VERSION: Final = 1


def order_cut(layout: StoreLayout, at: int) -> None:
    """Has the next open cut the log at the physical offset `at`. Durable when this returns. The
    caller holds the store's lock, and appends nothing any more."""
    write_own_json(layout, layout.cut, {"version": VERSION, "at": at})


def ordered_cut(layout: StoreLayout) -> int | None:
    """Where the log is to be cut; None without an order, or with one that cannot be read."""
    try:
        found: Any = read_json_file(layout.cut, LIMITS[layout.cut.name])
        at = found["at"] if found["version"] == VERSION else None
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
