"""The new store of a compaction: made in a work directory, and named when it is whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rocketstore._native.format.codec import crc31, encode_record
from rocketstore._native.format.constants import BLANK_BYTES, BLANK_MAGIC, RECORD_CRC_BYTES
from rocketstore._native.os import syscalls
from rocketstore._native.os.store_roots import hold_tree
from rocketstore.archive.object_store import is_uri
from rocketstore.config import StoreConfig
from rocketstore.engine.engine import Engine
from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import Options
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError, StoreFailedError
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.layout import destroy
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.ownership import make_root
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.layout.state_files import sync_file_system
from rocketstore.values.system_flags import ROLLED_BACK

__all__ = ["NewLog", "NewStore", "check_into"]

#: Name of the work directory, by the name of the store that is made.
WORK: Final = ".{}.compacting"
#: What the new store takes over from the config of its source.
SHAPES: Final = (
    "commit_log_file_size_bytes",
    "consume_queue_file_size_bytes",
    "index_enabled",
    "index_slots",
    "index_entries",
)


#: Where a record has its queue offset and its physical offset (format.md 2.1).
NUMBER: Final = slice(20, 28)
PLACE: Final = slice(28, 36)
CRC_NAME: Final = b"__CRC32#\x01"
CRC_DIGITS: Final = 10
#: Bytes that are written in one go, about.
WRITE_BYTES: Final = 4 << 20
#: Topic of records that no consumer is given: that of filler records.
FILLER_TOPIC: Final = "%"


class NewLog:
    """Writes records of another log into segments of a new one: their bytes, but for number and
    place.

    The log begins at its second segment: RocketMQ reads a pre-blank as a record at 0, which must
    lie before the log (format.md 6.3).

    `finish` makes it so long that an open believes its gaps: `GapBudget` asks for bytes of log for
    each queue offset that is skipped. Segments are sparse, so those take no room on the disk.
    """

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._fd = -1
        self._written = 0  # of the segment, without what waits
        self._waiting = bytearray()
        self.begin = self._start = segment_bytes
        self.segments = 0
        #: Sum of the sizes of all records.
        self.record_bytes = 0

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self._start + self._position

    @property
    def _position(self) -> int:
        return self._written + len(self._waiting)

    def append(self, record: bytes, queue_offset: int) -> None:
        """Gives a record its number and its place, and a checksum of its own where it had one.

        Raises OSError as the disk says.
        """
        if self._fd < 0:
            self._open()
        elif self._position + len(record) + BLANK_BYTES > self._segment_bytes:
            self._roll()
        self._waiting += _placed(record, queue_offset, self._start + self._position)
        self.record_bytes += len(record)
        if len(self._waiting) >= WRITE_BYTES:
            self._write()

    def finish(self, skipped_offsets: int, store_timestamp_ms: int) -> None:
        """Called once, after the last record: all is on the disk then. `store_timestamp_ms`: of the
        last record."""
        while self._fd >= 0 and skipped_offsets > self._believed():
            self._roll()
            filler = encode_record(
                topic=FILLER_TOPIC,
                body=b"",
                sys_flag=ROLLED_BACK,
                store_timestamp_ms=store_timestamp_ms,
            )
            self._waiting += _placed(filler, 0, self._start)
        if self._fd >= 0:
            self._close()

    def abandon(self) -> None:
        """Called where the files will be removed."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            syscalls.close(fd)

    def _believed(self) -> int:
        return GapBudget(self.segments * self._segment_bytes).left

    def _open(self) -> None:
        path = self._directory / segment_name(self._start)
        self._fd = syscalls.open(os.fspath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        syscalls.ftruncate(self._fd, self._segment_bytes)
        self.segments += 1
        self._written = 0

    def _roll(self) -> None:
        blank = self._segment_bytes - self._position
        self._waiting += blank.to_bytes(4, "big") + BLANK_MAGIC
        self._close()
        self._start += self._segment_bytes
        self._open()

    def _write(self) -> None:
        syscalls.pwrite(self._fd, self._waiting, self._written)
        self._written += len(self._waiting)
        self._waiting = bytearray()

    def _close(self) -> None:
        self._write()
        syscalls.fsync(self._fd)
        fd, self._fd = self._fd, -1
        syscalls.close(fd)


def _placed(record: bytes, queue_offset: int, physical_offset: int) -> bytearray:
    made = bytearray(record)
    made[NUMBER] = queue_offset.to_bytes(8, "big")
    made[PLACE] = physical_offset.to_bytes(8, "big")
    property_at = len(made) - RECORD_CRC_BYTES
    if made[property_at : property_at + len(CRC_NAME)] == CRC_NAME:
        # Its digits are written the least significant first (format.md 2.6).
        digits = str(crc31(bytes(made[:property_at])))[::-1].ljust(CRC_DIGITS, "0")
        made[-1 - CRC_DIGITS : -1] = digits.encode()
    return made


def check_into(into: str | os.PathLike[str], source: StoreLayout) -> str:
    """The path of the new store, absolute, where nothing is yet.

    Raises:
        ConfigError: it is in the source, or the reverse; something is there; or it is a URI.
        TypeError: it is no path.
        OSError: a link on the way belongs to another user.
    """
    given = os.fspath(into)
    if not isinstance(given, str):
        raise TypeError(f"into = {given!r}: a path as text")
    if is_uri(given):
        raise ConfigError("into", given, "a directory of this machine, not a URI")
    if not given:
        raise ConfigError("into", given, "the path of a directory")
    way = given if os.path.isdir(given) else os.path.dirname(os.path.abspath(given))
    if os.path.isdir(way):
        syscalls.close(syscalls.open_directory(way))  # refuses the link of another user
    path = os.path.realpath(given)
    roots = [os.path.realpath(one) for one in (source.root, *source.logs)]
    for root in roots:
        if path == root or path.startswith(root + os.sep) or root.startswith(path + os.sep):
            raise ConfigError("into", given, f"outside of the store that is read, {source.root}")
    if os.path.isdir(path):
        if os.listdir(path):
            raise ConfigError("into", given, "it is not empty; a new directory, or an empty one")
    elif os.path.lexists(path):
        raise ConfigError("into", given, "it is no directory; a new directory, or an empty one")
    return path


class NewStore:
    """Within its context `log` is written. `finish` makes queues and index and gives the store its
    name; without it nothing is left.

    The work directory lies next to the new store, on the same disk. A process that was killed
    leaves it; the next compaction to this path removes it. Its lock keeps two of them apart.
    """

    def __init__(self, path: str, config: StoreConfig) -> None:
        self._path = path
        self._work = Path(path).with_name(WORK.format(Path(path).name))
        self._store = self._work / "store"
        self._config = StoreConfig(**{name: getattr(config, name) for name in SHAPES})

    def __enter__(self) -> Self:
        """Raises StoreLockedError where another compaction makes this store, and OSError."""
        hold_tree(os.fspath(self._work))
        if self._work.exists() and self._work.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "of another user: remove it", str(self._work))
        make_root(self._work)
        self._lock = StoreLock.acquire(StoreLayout(self._work))
        try:
            self._clear()
            syscalls.mkdir(os.fspath(self._store))
            directory = StoreLayout(self._store).commit_log
            syscalls.mkdir(os.fspath(directory))
            self.log = NewLog(directory, self._config.commit_log_file_size_bytes)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.log.abandon()
        finally:
            self._remove()

    def finish(self, skipped_offsets: int, last_ms: int, note: Callable[[Engine], object]) -> None:
        """Called once, when all records are written. `note` adds to the store, which is open."""
        self.log.finish(skipped_offsets, last_ms)
        engine = open_engine(os.fspath(self._store), "rw", Options(self._config))
        try:
            self._check(engine)
            note(engine)
        finally:
            engine.close()
        if StoreLock.probe(StoreLayout(self._store)) is not None:
            # A close does not wait where a signal's handler called `compact` in the middle of a put.
            raise StoreFailedError(f"{self._path}: the new store is still open, run it again")
        self._check_closed(engine)
        sync_file_system(self._store)  # names of files as well, before the store has its own
        syscalls.rename(os.fspath(self._store), self._path)
        syscalls.sync_directory(os.path.dirname(self._path))

    def _check(self, engine: Engine) -> None:
        """Raises StoreFailedError unless the store has all that was written: never seen."""
        found = engine.recovery
        whole = not self.log.segments or (found.begin, found.end) == (self.log.begin, self.log.end)
        if not whole or found.damage or found.unplaced_messages:
            raise StoreFailedError(f"{self._path}: the new store is not what was written: {found}")

    def _check_closed(self, engine: Engine) -> None:
        """Raises StoreFailedError where the disk has not taken all of queues and index: the next
        open would make them again, and no error would have said so."""
        assert isinstance(engine, WritingEngine)
        why = None if engine.write.index is None else engine.write.index.degraded
        if why is not None or StoreLayout(self._store).abort.exists():
            raise StoreFailedError(
                f"{self._path}: queues and index of the new store are not all on the disk "
                f"({why or 'a sync failed'}); there is no new store, run it again"
            )

    def _clear(self) -> None:
        """What a process left that was killed."""
        destroy.remove_tree(self._work, but=StoreLayout(self._work).lock)

    def _remove(self) -> None:
        try:
            destroy.remove_tree(self._work)
            syscalls.rmdir(os.fspath(self._work))
        finally:
            self._lock.release()
