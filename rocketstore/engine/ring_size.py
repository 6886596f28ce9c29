"""How large the write buffer of a "disk" store has to be for its largest message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketstore.config.store_config import RECORD_RESERVE_BYTES

if TYPE_CHECKING:
    from rocketstore.config import StoreConfig

__all__ = ["largest_body", "ring_bytes"]

#: Of a blank beside two records, rounded up.
ROOM: Final = 64


def ring_bytes(config: StoreConfig) -> int:
    """A blank as long as the record behind it has to fit beside it."""
    return 2 * config.record_limit_bytes + ROOM


def largest_body(size: int) -> int:
    """Largest `max_message_size_bytes` for which a ring of `size` bytes is enough."""
    return (size - ROOM) // 2 - RECORD_RESERVE_BYTES
