"""Which files of a log are missing, as its files and queues tell, where no checkpoint says it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore.log.consume_queue_store import ConsumeQueueStore
from rocketstore.log.layout import parse_segment_name
from rocketstore.log.log_directories import NAME_THEM, list_log

if TYPE_CHECKING:
    from rocketstore.log.layout import StoreLayout

__all__ = ["missing_segments", "queue_file_size"]


def missing_segments(layout: StoreLayout, default_queue_file_size: int) -> list[str]:
    """What is missing of a log that somebody else may be writing: one sentence for each range.

    The queues are looked at first: a unit follows its record, so the log reaches as far as they do.
    """
    size = queue_file_size(layout) or default_queue_file_size
    queues = ConsumeQueueStore(layout, "read", size, lambda: 0)
    queues.load()
    try:
        queues_end = queues.max_physical_end()
    finally:
        queues.close()
    found = []
    end = -1
    for start, length, _ in list_log(layout):
        if end >= 0 and start > end:
            found.append(f"between {end} and {start}")
        end = max(end, start + length)
    if queues_end > max(end, 0):
        where = "there is no log" if end < 0 else f"the log ends at {end}"
        found.append(f"{where}, but the queues point up to {queues_end}")
    return [f"segments of the commit log are missing: {text}; {NAME_THEM}" for text in found]


def queue_file_size(layout: StoreLayout) -> int | None:
    """Length of the first whole consume queue file that is found; None without one."""
    for topic in _directories(layout.consume_queue):
        for queue in _directories(topic):
            for name in sorted(os.listdir(queue)):
                size = (queue / name).stat().st_size if parse_segment_name(name) is not None else 0
                if size > 0 and size % 20 == 0:
                    return size
    return None


def _directories(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return [path / name for name in sorted(os.listdir(path)) if (path / name).is_dir()]
