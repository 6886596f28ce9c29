"""Functions that callers hand in."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Listener", "Progress"]

#: (topic, queue_id, next_queue_offset, tags_code, store_timestamp_ms) of a message that arrived.
Listener = Callable[[str, int, int, int, int], None]
#: (what, done bytes, total bytes) while a long step goes on.
Progress = Callable[[str, int, int], object]
