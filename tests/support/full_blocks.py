"""Blocks that a file system does not give."""

from __future__ import annotations

import errno
import os


class Blocks:
    """Stands in for `allocate_blocks`. `full`: none are given."""

    full = False

    def allocate(self, fd: int, begin: int, end: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
