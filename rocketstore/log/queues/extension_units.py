"""Extension units, which a tags code may be the address of (format 6.5).

A broker with `enableConsumeQueueExt` writes them for each queue, and rocketstore reads them. A unit
holds the real tags code of a message and its store time. Only the broker knows its bit map.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.listing import list_files, usual_size
from rocketstore.log.layout.paths import segment_name

__all__ = ["LAST_ADDRESS", "ExtensionUnit", "ExtensionUnits", "is_address", "with_addresses"]

#: Greatest tags code that is an address; hashes and times are greater.
LAST_ADDRESS: Final = -(1 << 31) - 1
_FIRST_ADDRESS: Final = -(1 << 63)
#: Size of the unit, tags code, store time, size of the bit map, which follows.
_FIXED: Final = struct.Struct(">hqqh")
#: The tags code of a queue unit.
_TAGS_CODE: Final = struct.Struct(">12xq")


class ExtensionUnit(NamedTuple):
    """One extension unit: what RocketMQ knew of a message when it made its unit."""

    tags_code: int
    store_timestamp_ms: int
    bit_map: bytes


class ExtensionUnits:
    """The extension files of one queue, if it has any. Threads may share it."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """`directory`: of the files; it need not be there."""
        self._directory = directory
        self._lock = SignalSafeLock("the extension units")
        self._file_size = 0
        self._files: dict[int, MappedFile] = {}

    @staticmethod
    def of_queue(queue_directory: Path) -> ExtensionUnits:
        """The extension units of the queue with this directory."""
        above, topic, queue = os.fspath(queue_directory).rsplit(os.sep, 2)
        return ExtensionUnits(f"{os.path.dirname(above)}/consumequeue_ext/{topic}/{queue}")

    def unit(self, address: int) -> ExtensionUnit | None:
        """The unit at an address; None where there is none, or no whole one: then nothing is
        known."""
        offset = address - _FIRST_ADDRESS
        with self._lock():
            file = self._file_of(offset)
            if file is None:
                return None
            position = offset - file.start_offset
            if file.size - position < _FIXED.size:
                return None
            size, tags_code, store_ms, bits = _FIXED.unpack(file.read(position, _FIXED.size))
            if bits < 0 or size != _FIXED.size + bits or size > file.size - position:
                return None
            bit_map = file.read(position + _FIXED.size, bits)
        return ExtensionUnit(tags_code, store_ms, bit_map)

    def _file_of(self, offset: int) -> MappedFile | None:
        if not self._file_size:
            self._file_size = usual_size(list_files(self._directory)) or 0
            if not self._file_size:
                return None
        start = offset - offset % self._file_size
        if start not in self._files:
            path = os.path.join(self._directory, segment_name(start))
            try:
                file = MappedFile.open(path, start, self._file_size, "read")
            except (OSError, ValueError):  # gone with its queue's units, not there yet, or cut
                return None
            file.close_descriptor()
            self._files.setdefault(start, file)  # a signal's handler may have opened it, too
        return self._files[start]

    def close(self) -> None:
        """Lets the files go; the next look opens them again."""
        with self._lock():
            for file in self._files.values():
                file.close()
            self._files.clear()


def is_address(tags_code: int) -> bool:
    """Whether it says where the real tags code is."""
    return tags_code <= LAST_ADDRESS


def with_addresses(
    tags_codes: frozenset[int], units: bytes, extension: ExtensionUnits
) -> frozenset[int]:
    """The codes, and the addresses in `units` whose extension unit has one of the codes. An address
    with an unreadable unit is among them, so that the reader looks at its record."""
    found = set(tags_codes)
    for address in [code for (code,) in _TAGS_CODE.iter_unpack(units) if code <= LAST_ADDRESS]:
        unit = extension.unit(address)
        if unit is None or unit.tags_code in tags_codes:
            found.add(address)
    return frozenset(found) if len(found) > len(tags_codes) else tags_codes
