"""The shape of an index file that takes no disk: the look for it ends after bounded work."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

#: Bytes that a hundred entries of nothing would make millions of shapes of.
SIZE = (1 << 30) + 40
DEDUCE = """
import resource, sys
from rocketstore._native.format import index_file
from rocketstore._native.os.mapped_file import MappedFile
file = MappedFile.open(sys.argv[1], 0, int(sys.argv[2]), "read")
used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 10, int(used) + 11))
sys.exit(index_file.deduce(file) is not None)
"""


def test_a_file_of_holes_is_given_up_after_some_entries(tmp_path: Path) -> None:
    """Each of 50 million shapes fitted for 63 entries, which took a minute an open; the limit of the
    processor's time ends such a process."""
    path = tmp_path / "20260101000000000"
    with path.open("wb") as stream:
        os.truncate(stream.fileno(), SIZE)
        stream.write(struct.pack(">qqqqiiI", 1, 1, 0, 0, 1, 100, 63))
    program = [sys.executable, "-c", DEDUCE, str(path), str(SIZE)]
    assert subprocess.run(program, check=False, timeout=300).returncode == 0
