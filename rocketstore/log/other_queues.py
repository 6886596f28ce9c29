"""What a broker may keep instead of plain consume queues: batch queues (format 6.6).

They are not written here. A topic has plain queues or batch queues, and a RocketMQ that finds both for one
topic does not load the store.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstore.log.layout import StoreLayout

__all__ = ["batch_topics"]


def batch_topics(layout: StoreLayout) -> list[str]:
    """Topics whose queues are batch queues."""
    return _directories(os.path.join(layout.root, "batchconsumequeue"))


def _directories(path: str) -> list[str]:
    try:
        entries = list(os.scandir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
