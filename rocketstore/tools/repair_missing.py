"""Files of zeros where segments in the middle of a log are lost for good: a repair mends them as any damage."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from rocketstore.log.log_directories import list_log
from rocketstore.log.new_file import NewFile
from rocketstore.log.segment_listing import usual_size

if TYPE_CHECKING:
    from rocketstore.store import Store

logger = logging.getLogger(__name__)

__all__ = ["make_missing"]


def make_missing(store: Store) -> None:
    """Every file that is missing between two others, with its blocks and on the disk. DiskFullError: no room; those
    that were made stay."""
    layout, _, _ = store._log_bounds()
    found = list_log(layout)
    size = usual_size(found)
    if not size:
        return
    for (before, _, _), (after, _, _) in itertools.pairwise(found):
        for start in range(before + size, after, size):
            logger.warning("%s: segment %d is made of zeros", layout.commit_log, start)
            file = NewFile.make(layout.commit_log, layout.tmp, start, size, sparse=False)
            file.publish().close()
