"""Records that are messages: prepared and rolled back ones stand in the log, and no consumer is given them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NEEDED", "delivered"]

#: Columns that a scan needs for it.
NEEDED: Final = ("sys_flag",)
#: Of the transaction types this bit is in prepared (4) and rolled back (12), not in committed (8).
NOT_DELIVERED: Final = 0x4


def delivered(columns: Mapping[str, Any]) -> Any:
    """Which rows of a chunk are messages: a boolean array, or None for all of them."""
    hidden = columns["sys_flag"] & NOT_DELIVERED
    return hidden == 0 if hidden.any() else None
