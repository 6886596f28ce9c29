"""One index file: its name, its shape, how much of it has blocks on disk, and what is not yet synced.

RocketMQ names a file yyyyMMddHHmmssSSS of its creation, in local time."""

from __future__ import annotations

import errno
import os
import re
import time
from array import array
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rocketstore._native.dispatch.dispatch_loop import SLOTS_IN_PIECE
from rocketstore._native.format import index_file
from rocketstore._native.format.constants import ENTRY_BYTES
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReadFailedError
from rocketstore.log.layout.disk_blocks import allocate_blocks
from rocketstore.log.layout.ownership import (
    check_second_names,
    file_model,
    inherit_owner,
    make_directories,
)
from rocketstore.log.layout.state_files import unlink_if_there
from rocketstore.log.mapped_files.mapped_files import descriptor_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rocketstore.log.layout.paths import StoreLayout

__all__ = [
    "Header",
    "IndexSegment",
    "Shape",
    "candidates",
    "create_in_memory",
    "create_named",
    "create_segment",
    "following_name",
    "is_index_name",
    "names_in",
    "new_name",
    "open_segment",
]

NAME: Final = re.compile(r"[0-9]{17}")
#: Names tried for a new file, a count; after that the index degrades.
NAMES_TRIED: Final = 1000
#: Step in which entries get disk blocks, bytes (D-19).
CHUNK_BYTES: Final = 1024 * 1024
#: In the header: the number of the next entry, 1 in a file without any (format.md 7.2).
COUNT_AT: Final = 36


class Shape(NamedTuple):
    """Hash slots and entries of a file, which holds neither: its length only gives their sum."""

    slots: int
    entries: int

    @property
    def file_size(self) -> int:
        return index_file.file_size(self.slots, self.entries)


#: RocketMQ's defaults.
DEFAULT_SHAPE: Final = Shape(5_000_000, 20_000_000)


class Header(NamedTuple):
    """The header of an index file (format.md 7.2)."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_offset: int
    end_offset: int
    slot_count: int
    index_count: int
    sane: bool

    @property
    def empty(self) -> bool:
        """Whether no key was put; then the other fields are those of the file before."""
        return self.index_count <= 1


class IndexSegment:
    """An index file in use. One thread writes (`reserve`, `cut`, native puts), any may look."""

    __slots__ = (
        "_allocated", "_synced_count", "file", "identity", "limit", "name", "plausible", "shape",
        "slots_ready",
    )  # fmt: skip

    def __init__(
        self, file: MappedFile, shape: Shape, *, allocated: int = 0, plausible: bool = True
    ) -> None:
        self.file = file
        #: Whether header, first and last entries and their slots agreed when it was opened.
        self.plausible = plausible
        #: Device and inode of the file that was opened; (0, 0) of one that was made here.
        self.identity = (0, 0)
        self.name = os.path.basename(file.path)
        self.shape = shape
        # Bytes of the file, from its begin on, that are known to have blocks on disk.
        self._allocated = allocated
        #: A byte for each SLOTS_IN_PIECE slots, 1 once they are known to have blocks; None: all have.
        self.slots_ready: bytearray | None = None
        #: Entries below this number have blocks, so a store to them cannot fault.
        self.limit = self._entries_in(allocated)
        self._synced_count = 0  # index_count at the last sync; 0: nothing is known to be synced

    def header(self) -> Header:
        return Header(*index_file.header(self.file, *self.shape))

    @property
    def is_replaced(self) -> bool:
        """Whether another file has the name of the one that was opened, as after a rebuild."""
        try:
            found = os.lstat(self.file.path)
        except OSError:
            return True  # opening it says what is the matter
        return (found.st_dev, found.st_ino) != self.identity

    @property
    def full(self) -> bool:
        """Whether no entry is left: the last number is entries - 1."""
        return self.header().index_count >= self.shape.entries

    def has_slot(self, key_hash: int) -> bool:
        """Whether a key with this hash has a slot that a store to it cannot fault at."""
        ready = self.slots_ready
        return ready is None or ready[key_hash % self.shape.slots // SLOTS_IN_PIECE] != 0

    def reserve_slot(self, key_hash: int) -> None:
        """Give the slot of this hash, and those around it, their blocks. OSError when there are
        none."""
        if not self.has_slot(key_hash):
            self._reserve_slots(key_hash % self.shape.slots // SLOTS_IN_PIECE)

    def _reserve_slots(self, piece: int) -> None:
        assert self.slots_ready is not None
        with descriptor_of(self.file) as fd:
            allocate_blocks(fd, *slots_range(self.shape, piece))
        self.slots_ready[piece] = 1

    def reserve(self, *, on_disk: bool) -> None:
        """Give the next entries their blocks; `on_disk` unless private. OSError when there are
        none."""
        if not on_disk:
            self._allocated, self.slots_ready = self.file.size, None
        number = max(self.limit, self.header().index_count)
        wanted = index_file.entry_position(self.shape.slots, number + 1)
        end = min(-(-wanted // CHUNK_BYTES) * CHUNK_BYTES, self.file.size)
        if end > self._allocated:
            entries = index_file.entry_position(self.shape.slots, 0)
            with descriptor_of(self.file) as fd:
                allocate_blocks(fd, max(self._allocated, entries), end)
            self._allocated = end
        self.limit = self._entries_in(self._allocated)

    def _entries_in(self, size: int) -> int:
        """Number of the first entry that does not lie within the first `size` bytes."""
        entries = (size - index_file.entry_position(self.shape.slots, 0)) // ENTRY_BYTES
        return min(max(entries, 0), self.shape.entries)

    def cut(self, physical_offset: int, *, on_disk: bool) -> None:
        """Drop the entries of records at `physical_offset` and beyond; `on_disk` unless private."""
        if on_disk:
            # Slots are written all over, and a file that RocketMQ made is sparse.
            end = index_file.entry_position(self.shape.slots, self.header().index_count)
            with descriptor_of(self.file) as fd:
                allocate_blocks(fd, 0, end)
            self.slots_ready = None
        index_file.cut(self.file, *self.shape, physical_offset)
        self._synced_count = 0

    def sync(self) -> None:
        """Make what was put before this call durable. OSError is final for this file (D-13)."""
        slots = self.shape.slots
        count = self.header().index_count
        if count == self._synced_count:
            return
        # Header and slots change all over; entries only at the end.
        self.file.sync(0, index_file.entry_position(slots, 0))
        synced = max(self._synced_count, 1)
        self.file.sync(
            index_file.entry_position(slots, synced), index_file.entry_position(slots, count)
        )
        self._synced_count = count

    def walk(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of the entries with this hash, newest first, read as they are asked
        for."""
        found = index_file.Walk(self.file, *self.shape, key_hash, begin_ms, end_ms)
        while piece := found.next():
            yield from piece


def slots_range(shape: Shape, piece: int) -> tuple[int, int]:
    """Where the slots of a piece lie in the file; the header with the first ones."""
    begin, end = (
        index_file.entry_position(min(number * SLOTS_IN_PIECE, shape.slots), 0)
        for number in (piece, piece + 1)
    )
    return begin if piece else 0, end


def _no_slots(shape: Shape) -> bytearray:
    return bytearray(-(-shape.slots // SLOTS_IN_PIECE))


def create_in_memory(name: str, shape: Shape, header: bytes) -> IndexSegment:
    """A segment without a file, for a store that is recovered in memory."""
    file = MappedFile.anonymous(0, shape.file_size)
    file.write(0, header)
    segment = IndexSegment(file, shape, allocated=shape.file_size)
    segment.name = name
    return segment


def create_segment(path: Path, shape: Shape, header: bytes, tmp_directory: Path) -> IndexSegment:
    """A new file at `path`, whole before it has its name (D-06): FileExistsError when it is taken.

    Header, the first slots and entries are allocated; the others follow in pieces (D-19).
    """
    model = file_model(path.parent)
    fd, named = _open_nameless(path, tmp_directory)
    try:
        inherit_owner(fd, model)
        syscalls.ftruncate(fd, shape.file_size)
        allocated = min(index_file.entry_position(shape.slots, 0) + CHUNK_BYTES, shape.file_size)
        allocate_blocks(fd, 0, slots_range(shape, 0)[1])
        allocate_blocks(fd, index_file.entry_position(shape.slots, 0), allocated)
        syscalls.pwrite(fd, header, 0)
        syscalls.fsync(fd)
        if named is None:
            syscalls.link_unnamed(fd, os.fspath(path))
        else:
            syscalls.rename_noreplace(named, os.fspath(path))
        syscalls.sync_directory(os.fspath(path.parent))
        file = MappedFile.adopt(fd, os.fspath(path), 0, shape.file_size)
    except BaseException:
        syscalls.close(fd)
        if named is not None:
            unlink_if_there(named)
        raise
    file.close_descriptor()
    file.advise("random")
    segment = IndexSegment(file, shape, allocated=allocated)
    segment.slots_ready = _no_slots(shape)
    segment.slots_ready[0] = 1
    return segment


def create_named(layout: StoreLayout, name: str, shape: Shape, header: bytes) -> IndexSegment:
    """A new file of this name, or of the next one that is free."""
    directory = layout.index
    if not directory.exists():
        make_directories(layout)
    for _ in range(NAMES_TRIED):
        try:
            return create_segment(directory / name, shape, header, layout.tmp)
        except FileExistsError:
            name = following_name(name)
    raise FileExistsError(f"{directory}: no free name after {name}")


def _open_nameless(path: Path, tmp_directory: Path) -> tuple[int, str | None]:
    """A descriptor without a name in the index directory, or with one elsewhere."""
    try:
        return syscalls.open_unnamed(os.fspath(path.parent)), None
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS):
            raise
    named = os.fspath(tmp_directory / f"index-{path.name}")
    unlink_if_there(named)
    return syscalls.open(named, os.O_RDWR | os.O_CREAT | os.O_EXCL), named


def open_segment(
    path: Path, access: Literal["read", "private", "write"], usual: Shape
) -> IndexSegment:
    """The file at `path`; `usual` is the shape that is tried first.

    Raises: OSError, ReadFailedError: it cannot be opened or read, or has entries and no shape that
        fits. ValueError: it is no index file, or one without entries.
    """
    found = path.lstat()
    if access == "write":
        check_second_names(str(path), found)
    size = found.st_size
    file = MappedFile.open(str(path), 0, size, access)
    try:
        file.close_descriptor()
        shape, plausible = _deduce_shape(file, usual)
        if shape is None:
            text = (
                f"its {size} bytes are no index file of {usual.slots} slots and "
                f"{usual.entries} entries ({usual.file_size} bytes)"
            )
            if _has_entries(file):
                raise ReadFailedError(f"{path.name}: {text}; 'rocketstore rebuild' makes it again")
            raise ValueError(text)
        file.advise("random")
    except BaseException:
        file.close()
        raise
    segment = IndexSegment(file, shape, plausible=plausible)
    if access == "write":
        segment.slots_ready = _no_slots(shape)
    segment.identity = found.st_dev, file.inode
    return segment


def _has_entries(file: MappedFile) -> bool:
    """Whether it was an index file, by the count in its header; a new file has none."""
    count = file.read(COUNT_AT, 4) if file.size >= COUNT_AT + 4 else b""
    return int.from_bytes(count, "big", signed=True) > 1


def _deduce_shape(file: MappedFile, configured: Shape) -> tuple[Shape | None, bool]:
    """The shape of a file, from its length and its entries, None when nothing fits its length; and
    whether its entries fit the shape.

    A file that power loss tore may look like no shape at all: then the configured one is taken.
    """
    fitting = [shape for shape in (configured, DEFAULT_SHAPE) if shape.file_size == file.size]
    for shape in fitting:
        if index_file.plausible(file, *shape):
            return shape, True
    deduced = index_file.deduce(file)
    if deduced is not None:
        return Shape(*deduced), True
    return (fitting[0] if fitting else None), False


def candidates(
    files: Sequence[IndexSegment], key_hash: int, begin_ms: int, end_ms: int, *, newest: bool
) -> Iterator[int]:
    """Physical offsets of entries with a hash and a time within [begin_ms, end_ms]; `files` are the
    oldest first. A record may come twice, also where two files meet.

    Newest first nothing is kept. Oldest first the offsets of one file are, 8 bytes each.
    """
    for segment in reversed(files) if newest else files:
        header = segment.header()
        if header.empty:
            continue
        # The clock of a RocketMQ store can fall, and its end lies before its begin then.
        first = min(header.begin_timestamp_ms, header.end_timestamp_ms)
        last = max(header.begin_timestamp_ms, header.end_timestamp_ms)
        if first <= end_ms and last >= begin_ms:
            found = segment.walk(key_hash, begin_ms, end_ms)
            yield from found if newest else sorted(array("q", found))
        if first < begin_ms if newest else first > end_ms:
            break


# ---- names ----


def is_index_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def names_in(directory: Path) -> list[str]:
    """The names of all index files, whether they can be opened or not; empty without the
    directory."""
    try:
        return [name for name in os.listdir(directory) if is_index_name(name)]
    except FileNotFoundError:
        return []


def new_name(now_ms: int, newest: str) -> str:
    """The name of a file made at `now_ms`; it sorts after `newest` even if the clock fell."""
    seconds, milliseconds = divmod(now_ms, 1000)
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{milliseconds:03d}"
    return name if name > newest else following_name(newest)


def following_name(name: str) -> str:
    """The name of the next millisecond. A name that is no date counts up: RocketMQ only sorts
    names."""
    try:
        moment = datetime.strptime(name + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return f"{int(name) + 1:017d}"
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"
