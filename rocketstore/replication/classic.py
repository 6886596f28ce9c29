"""The frames of RocketMQ's HA service (docs/format.md 13.1): no identity, no version, no checksum.

A slave sends 8 bytes, its largest physical offset; a master sends 12 bytes and then bytes of its log.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["FRAME_DATA_MOST", "HEADER", "REPORT", "frame_header", "report"]

#: Slave to master: its largest physical offset. The first one asks, later ones acknowledge.
REPORT: Final = struct.Struct(">q")
#: Master to slave: physical offset of the first byte, and the number of bytes; 0: a heartbeat.
HEADER: Final = struct.Struct(">qi")
#: Bytes of one frame of a Java master (`haTransferBatchSize`). The buffer of a Java slave takes
#: frames of up to 4 MiB with their header.
FRAME_DATA_MOST: Final = 32_768
JAVA_BUFFER_BYTES: Final = 4 << 20


def report(offset: int) -> bytes:
    """What a slave sends: it has everything below `offset`."""
    return REPORT.pack(offset)


def frame_header(offset: int, size: int) -> bytes:
    """What comes before `size` bytes that begin at the physical offset `offset`."""
    return HEADER.pack(offset, size)
