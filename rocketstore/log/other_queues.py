"""What a broker may keep beside plain consume queues: batch queues and extension units (format 6.5, 6.6).

Neither is written here. Batch queues are not read either: a topic has plain queues or batch queues, and a
RocketMQ that finds both for one topic does not load the store.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy

from rocketstore.log.followed_queue import UNIT

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore.log.layout import StoreLayout

__all__ = ["LAST_ADDRESS", "batch_topics", "is_address", "with_addresses"]

#: Up to here a unit's tags code is the address of an extension unit; hashes and times are larger.
LAST_ADDRESS: Final = -(1 << 31) - 1


def batch_topics(layout: StoreLayout) -> list[str]:
    """Topics whose queues are batch queues."""
    return _directories(os.path.join(layout.root, "batchconsumequeue"))


def is_address(tags_code: int) -> bool:
    """Whether it says where the real tags code is."""
    return tags_code <= LAST_ADDRESS


def with_addresses(
    tags_codes: frozenset[int], file: MappedFile, position: int, count: int
) -> frozenset[int]:
    """Codes to look for in `count` units, those of extension units among them: what the real code of
    such a unit is stands elsewhere, so its record has to be looked at."""
    units = numpy.frombuffer(file.read(position, count * UNIT.itemsize), UNIT)
    codes = units["tags_code"]
    addresses = codes[codes <= LAST_ADDRESS]
    return tags_codes.union(addresses.tolist()) if len(addresses) else tags_codes


def _directories(path: str) -> list[str]:
    try:
        entries = list(os.scandir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
