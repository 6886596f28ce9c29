"""The files of one consume queue: mapped when they are needed, grown by the dispatcher.

A store may have far more queues than a process may have mappings. So a queue maps its files at the
first use, and `park` gives them back while it rests (`mapping_cache`). The files are sparse. Blocks
are reserved before the dispatcher writes through a mapping, so that a full disk is an exception and
no signal (D-19).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.disk_blocks import allocate_blocks
from rocketstore.log.mapped_files.mapped_file_queue import Access, MappedFileQueue
from rocketstore.log.mapped_files.mapped_files import descriptor_of
from rocketstore.log.mapped_files.new_file import NewFile
from rocketstore.log.queues.queue_preallocator import NextFiles
from rocketstore.log.queues.units import UNIT_SIZE, check_gap

__all__ = ["QueueFiles"]

logger = logging.getLogger(__name__)

#: Blocks reserved by one call, bytes: as many as the file has, within these bounds. A file that is
#: written fast seldom asks.
RESERVE_BYTES: Final = 64 << 10
RESERVE_BYTES_MAX: Final = 1 << 20


class QueueFiles:
    """Files of equal size. The caller holds `lock` while it relies on them being mapped."""

    def __init__(
        self,
        directory: Path,
        access: Access,
        file_size: int,
        *,
        tmp_directory: Path,
        make_place: Callable[[Path, int], None],
        mapped: Callable[[QueueFiles], None] = lambda _: None,
        ask_ahead: Callable[[NextFiles], None] = lambda _: None,
        take_first: Callable[[Path, int], NewFile | None] = lambda _, __: None,
    ) -> None:
        """Called: `make_place` before a file is made that begins at a position, which makes the
        directory, or raises OSError; `mapped` after files were mapped, `ask_ahead` when the next file is needed soon,
        `take_first` for a preallocated first file."""
        self.directory = directory
        self.file_size = file_size
        self.access: Access = access
        self.lock = SignalSafeLock("the files of a queue")
        #: Whether a caller used them since the mapping cache asked last.
        self.used = False
        self._files = MappedFileQueue(
            directory,
            access,
            file_size=file_size,
            name="consume queue",
            tmp_directory=tmp_directory,
        )
        self.next_files = NextFiles(self._files, take_first)
        self._make_place = make_place
        self._on_mapped = mapped
        self._ask_ahead = ask_ahead
        self._mapped = False
        self._only_in_memory = access == "memory"  # memory holds what no file does
        #: Whether a file had a wrong length or place, was missing between two when they were mapped,
        #: or had units of others.
        self.odd = False
        self._reserved: dict[int, int] = {}  # file start -> bytes with blocks

    def snapshot(self) -> tuple[MappedFile, ...]:
        """The files, mapped as long as the caller holds them."""
        with self.lock():
            self.used = True
            if not self._mapped:
                self._files.load()
                self.odd |= bool(self._files.wrong_sizes or self._files.gaps)
                if self._files.wrong_sizes and self.access != "read":
                    self._files.repair_last()
                    self._only_in_memory = self.access != "write"
                for file in self._files.files:
                    file.advise("random")
                self._mapped = True
                self._on_mapped(self)
            return self._files.files

    def park(self) -> bool:
        """Gives the mappings back until they are needed. False while another thread works with
        them, or where memory holds what no file does."""
        with self.lock(wait=False) as mine:
            if not mine or self._only_in_memory:
                return False
            self._mapped = False
            self.next_files.drop()
            self._files.forget()
            return True

    def close(self) -> None:
        with self.lock():
            self._mapped = True  # never again
            self.next_files.drop(closed=True)
            self._files.close()

    @property
    def name(self) -> str:
        return f"{self.directory.parent.name}/{self.directory.name}"

    @property
    def last(self) -> MappedFile | None:
        return self._files.last

    def note_change(self) -> None:
        """The caller changes bytes. With private access only memory has them from here on."""
        self._only_in_memory = self.access != "write"

    # ---- growing: the dispatcher only ----

    def file_for(self, position: int) -> MappedFile:
        """The file with the byte at `position`, made if it is missing.

        Raises:
            DiskFullError, OSError: no room; nothing was changed.
            UnitRefusedError: no file can hold it, or the gap before it is too large to be believed.
        """
        file = self._files.find(position)
        while file is None:
            self._grow(position)
            file = self._files.find(position)
        return file

    def _grow(self, position: int) -> None:
        files = self._files
        if files.last is not None:
            end = files.end_offset // UNIT_SIZE
            check_gap(self.name, end, position // UNIT_SIZE)
            if position < files.begin_offset:
                # A record in the log has its unit there, so no trim has removed the file.
                check_gap(self.name, position // UNIT_SIZE, files.begin_offset // UNIT_SIZE)
        if position < files.end_offset:
            self._restore(position)
            return
        start = files.next_start(position)
        self._make_place(self.directory, start)
        file, whole = self.next_files.take(start)
        if whole:
            self._reserved[start] = file.size
        file.close_descriptor()
        file.advise("random")
        files.publish(file)

    def _restore(self, position: int) -> None:
        """Makes a file again that was removed between two others, or before the first."""
        start = self._files.start_for(position)
        self._make_place(self.directory, start)
        logger.warning("%s: the file at %d is missing, it is made again", self.directory, start)
        file = self._files.make(start, sparse=True)
        file.close_descriptor()
        file.advise("random")
        self._files.restore(file)

    def reserve(self, file: MappedFile, wanted: int) -> int:
        """Bytes of `file`, from its start, that have blocks; at least `wanted`. OSError: no
        room."""
        if self.access != "write":
            return file.size
        before = reserved = self._reserved.get(file.start_offset, 0)
        if reserved < wanted:
            step = min(max(RESERVE_BYTES, before), RESERVE_BYTES_MAX)
            reserved = min(file.size, -(-wanted // step) * step)
            with descriptor_of(file) as fd:
                allocate_blocks(fd, before, reserved)
            self._reserved[file.start_offset] = reserved
        return reserved

    def ask_if_full_soon(self, file: MappedFile, position: int) -> None:
        """Asks for the next file when `file`, written up to `position`, is the last and full
        soon."""
        if file is self._files.last and self.next_files.fills_soon(position):
            self._ask_ahead(self.next_files)

    def sync(self, begin: int, end: int) -> None:
        """Syncs the bytes [begin, end), and before them the names of files (D-18). Raises
        OSError."""
        if self.access != "write":
            return
        self.next_files.sync_names()
        for file in self.snapshot():
            low, high = max(file.start_offset, begin), min(file.end_offset, end)
            if low < high:
                file.sync(low - file.start_offset, high - file.start_offset)

    # ---- shrinking ----

    def remove_from(self, offset: int) -> list[str]:
        return self._files.remove_from(offset)

    def remove_before(self, offset: int) -> list[str]:
        return self._files.remove_before(offset)
