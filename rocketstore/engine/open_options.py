"""What `rocketstore.open` was asked for, beside the path and the mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketstore.config import StoreConfig

__all__ = ["Listener", "Options", "Progress"]

#: (topic, queue_id, next_queue_offset, tags_code, store_timestamp_ms) of a message that arrived.
Listener = Callable[[str, int, int, int, int], None]
#: (what, done bytes, total bytes) while recovery goes on.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of one open."""

    config: StoreConfig
    force: bool = False
    on_arrival: Listener | None = None
    on_recovery: Progress | None = None
    untrusted: bool = False
