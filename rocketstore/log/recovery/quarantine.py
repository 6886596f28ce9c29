"""Copies of bytes that recovery is about to take out of the log, or that it found damaged (D-21).

One directory for a range, or for many damaged ones: `<first offset>-<number>`, with one sparse file
for each segment, named by the offset of its first byte, and `manifest.json`, written and synced last. A directory
without a manifest is what a crash left of a copy; it proves nothing and is removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketstore._native.format.codec import crc32c
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.listing import make_directory
from rocketstore.log.layout.ownership import file_model, inherit_owner, make_like
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name, segment_name
from rocketstore.log.layout.state_files import (
    open_plain_file,
    read_json,
    read_state_file,
    write_state_file,
)
from rocketstore.values.bounded_json import LIMITS

__all__ = [
    "Lost",
    "Piece",
    "cuts_with_records",
    "keep_copy",
    "keep_end_of_file",
    "keep_ranges",
    "keep_state_file",
    "pieces_of",
]

logger = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"
BLOCK_BYTES: Final = 1 << 20
ALIGNMENT: Final = 4096
#: Most copies that are compared with one piece, a count; with more it is copied again.
COMPARED_MAX: Final = 64
MANIFEST_VERSION = 1
#: Most pieces of one copy of many ranges, a count: its manifest stays small.
PIECES_PER_COPY = 1000
#: Longest state file, bytes: none is read that is longer.
STATE_BYTES_MAX = 64 << 20


class Piece(NamedTuple):
    """The part of a range that lies in one file: physical offsets."""

    file: MappedFile
    start: int
    end: int


class _Kept(NamedTuple):
    """A range of which a copy exists: in `file` of `directory`, which begins at `file_start`."""

    start: int
    end: int
    directory: Path
    file: str
    file_start: int


def pieces_of(files: Sequence[MappedFile], start: int, end: int) -> list[Piece]:
    """[start, end) by files, without zeros at the end of each part; nothing for a part of zeros."""
    pieces = []
    for file in files:
        first, last = max(start, file.start_offset), min(end, file.end_offset)
        used = first
        for offset, block in blocks_of(Piece(file, first, last)) if first < last else ():
            used = offset + len(block.rstrip(b"\0"))
        if used > first:
            pieces.append(Piece(file, first, used))
    return pieces


def blocks_of(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The parts of a piece that are not zero, as (physical offset, bytes), cut at multiples of a
    page."""
    file = piece.file
    position, end = piece.start - file.start_offset, piece.end - file.start_offset
    while (data := file.find_data(position, end, unwritten=True)) < end:
        begin = max(position, data - data % ALIGNMENT)
        position = min(end, begin - begin % ALIGNMENT + BLOCK_BYTES)
        yield file.start_offset + begin, file.read(begin, position - begin)


#: A piece, and what else its entry of the manifest has.
_Told = tuple[Piece, Mapping[str, Any]]


class Lost(NamedTuple):
    """A range to be kept, `why`, and what else is known of it."""

    pieces: Sequence[Piece]
    why: str
    details: Mapping[str, Any]


def keep_copy(
    layout: StoreLayout, pieces: Sequence[Piece], reason: str, details: Mapping[str, Any]
) -> str | None:
    """A synced copy of `pieces`; its path. None when there is nothing but zeros.

    Bytes that an earlier, finished copy holds already are not copied again, so that a recovery that
    is repeated adds nothing. `details` go to the manifest.

    Raises:
        DiskFullError: no room for the copy. Nothing may be removed then.
    """
    if not pieces:
        return None
    before = KeptCopies(layout.quarantine).holding(pieces)
    if before is not None:
        return os.fspath(before)
    return _make_copy(layout, [(piece, {}) for piece in pieces], reason, details)


def keep_ranges(layout: StoreLayout, lost: Iterable[Lost], reason: str) -> list[str]:
    """The same for many ranges, in order of their offsets: they share directories and files. The
    paths of all copies that hold them."""
    kept = KeptCopies(layout.quarantine)
    found: dict[str, None] = {}
    new: list[_Told] = []
    for pieces, why, details in lost:
        before = kept.holding(pieces) if pieces else None
        if before is not None:
            found[os.fspath(before)] = None
        else:
            new += [(piece, {"reason": why, **details}) for piece in pieces]
    for first in range(0, len(new), PIECES_PER_COPY):
        found[_make_copy(layout, new[first : first + PIECES_PER_COPY], reason, {})] = None
    return list(found)


def _make_copy(
    layout: StoreLayout, pieces: Sequence[_Told], reason: str, details: Mapping[str, Any]
) -> str:
    first, last = pieces[0][0], pieces[-1][0]
    directory = _new_directory(layout, first.start)
    model = file_model(Path(first.file.path).parent if first.file.path else layout.root)
    entries: list[Mapping[str, Any]] = []
    try:
        for _, of_file in groupby(pieces, key=_file_start):
            entries += _copy(directory, list(of_file), model)
        _finish(layout, directory, model, reason, entries, details)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = "no room for a copy of what recovery has to take out; free some and open again"
            raise DiskFullError(error.errno, text, os.fspath(directory)) from error
        raise
    logger.warning("kept a copy of [%d, %d) in %s: %s", first.start, last.end, directory, reason)
    return os.fspath(directory)


def _file_start(told: _Told) -> int:
    return told[0].file.start_offset


def keep_end_of_file(layout: StoreLayout, path: str, position: int, offset: int) -> str:
    """Copies and syncs the bytes after `position` in a file that is longer than the other files of
    its queue; `offset` is the physical offset that they would have. Returns the path of the
    copy."""
    directory = _new_directory(layout, offset)
    name = segment_name(offset)
    checksum = 0
    model = file_model(Path(path).parent)
    source = syscalls.open(path, os.O_RDONLY)
    try:
        target = syscalls.open(os.fspath(directory / name), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            inherit_owner(target, model)
            end = os.fstat(source).st_size
            length = end - position
            syscalls.ftruncate(target, length)
            # Holes stay holes: a program can set any length at no cost.
            while (data := syscalls.seek_data(source, position)) is not None and data < end:
                begin = max(position, data - data % ALIGNMENT)
                position = min(end, begin - begin % ALIGNMENT + BLOCK_BYTES)
                block = syscalls.pread(source, position - begin, begin)
                if any(block):
                    syscalls.pwrite(target, block, length - end + begin)
                    checksum = crc32c(block, checksum)
            syscalls.fsync(target)
        finally:
            syscalls.close(target)
    finally:
        syscalls.close(source)
    entry = {"file": name, "offset": offset, "length": length, "crc32c": checksum}
    _finish(layout, directory, model, "after the end of a file", [entry], {})
    return os.fspath(directory)


def _copy(
    directory: Path, pieces: Sequence[_Told], model: os.stat_result
) -> list[Mapping[str, Any]]:
    """One sparse file for pieces of one file of the log; their entries of the manifest. A checksum
    is that of the blocks alone."""
    start, end = pieces[0][0].start, pieces[-1][0].end
    name = segment_name(start)
    entries: list[Mapping[str, Any]] = []
    fd = syscalls.open(os.fspath(directory / name), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        inherit_owner(fd, model)
        syscalls.ftruncate(fd, end - start)
        for piece, details in pieces:
            checksum = 0
            for offset, block in blocks_of(piece):
                syscalls.pwrite(fd, block, offset - start)
                checksum = crc32c(block, checksum)
            length = piece.end - piece.start
            entry = {"file": name, "offset": piece.start, "length": length, "crc32c": checksum}
            entries.append({**entry, **details})
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)
    return entries


def _finish(
    layout: StoreLayout,
    directory: Path,
    model: os.stat_result,
    reason: str,
    entries: Sequence[Mapping[str, Any]],
    details: Mapping[str, Any],
) -> None:
    """Writes and syncs the manifest, which makes the copy count."""
    first, last = entries[0], entries[-1]
    manifest = {
        "version": MANIFEST_VERSION,
        "created_ms": syscalls.realtime_ms(),
        "reason": reason,
        "offset": first["offset"],
        "length": last["offset"] + last["length"] - first["offset"],
        "pieces": entries,
        **details,
    }
    path = os.fspath(directory / MANIFEST)
    unfinished = f"{path}.unfinished"
    fd = syscalls.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        inherit_owner(fd, model)
        syscalls.pwrite(fd, json.dumps(manifest, indent=1).encode() + b"\n", 0)
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)
    syscalls.rename(unfinished, path)
    syscalls.sync_directory(os.fspath(directory))
    syscalls.sync_directory(os.fspath(layout.quarantine))


def _new_directory(layout: StoreLayout, offset: int) -> Path:
    """The next free name for a range that starts at `offset`; unfinished copies are removed
    first."""
    number = 0
    while True:
        directory = layout.quarantine / f"{segment_name(offset)}-{number}"
        if not os.path.lexists(directory):
            break
        # A link stays: its target may be anything.
        if not directory.is_symlink() and not (directory / MANIFEST).exists():
            _remove(directory)
            break
        number += 1
    make_like(directory, layout.quarantine.stat())
    return directory


def _remove(directory: Path) -> None:
    for name in os.listdir(directory):
        syscalls.unlink(os.fspath(directory / name))
    syscalls.rmdir(os.fspath(directory))


def keep_state_file(layout: StoreLayout, path: Path) -> str | None:
    """A durable copy of a small file that is about to be replaced, `<name>-<number>` in quarantine;
    its path. None where there is no such file, or what is there is no plain one."""
    try:
        content = read_state_file(path, STATE_BYTES_MAX)
    except (FileNotFoundError, ValueError):
        return None
    if not layout.quarantine.is_dir():
        make_directory(layout.quarantine)
    number = 0
    while os.path.lexists(kept := layout.quarantine / f"{path.name}-{number}"):
        # What is no plain file, or too long, is something else.
        with contextlib.suppress(OSError, ValueError):
            if read_state_file(kept, len(content)) == content:
                return os.fspath(kept)
        number += 1
    write_state_file(layout, kept, content)
    return os.fspath(kept)


# ---- what is kept already ----


class KeptCopies:
    """The finished copies in quarantine. Reads their manifests once, the bytes when asked."""

    def __init__(self, quarantine: Path) -> None:
        self._kept = sorted(
            kept
            for directory, manifest in _manifests(quarantine)
            for kept in _kept_in(directory, manifest)
        )

    def holding(self, pieces: Sequence[Piece]) -> Path | None:
        """A finished copy that holds every byte of `pieces`."""
        for directory in self._holders(pieces[0]):
            if all(directory in self._holders(piece) for piece in pieces[1:]):
                return directory
        return None

    def _holders(self, piece: Piece) -> Iterator[Path]:
        last = bisect_right(self._kept, piece.start, key=_start_of)
        for kept in reversed(self._kept[max(0, last - COMPARED_MAX) : last]):
            if piece.end <= kept.end and _holds(kept, piece):
                yield kept.directory


def _start_of(kept: _Kept) -> int:
    return kept.start


def cuts_with_records(quarantine: Path) -> list[tuple[int, int, int, Path]]:
    """Begin and end of ranges that recoveries cut off although they had whole records, how many, and
    where the copy is, as long as it is kept."""
    found = []
    for directory, manifest in _manifests(quarantine):
        with contextlib.suppress(TypeError, ValueError, KeyError):
            count = sum(int(run["records"]) for run in manifest["valid_records"])
            start, length = int(manifest["offset"]), int(manifest["length"])
            found += [(start, start + length, count, directory)] if count > 0 else []
    return sorted(found)


def _manifests(quarantine: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The directories of finished copies, and what is to be read in them. None is a link."""
    for path in quarantine.glob(f"*/{MANIFEST}"):
        with contextlib.suppress(OSError):
            found = read_json(path, LIMITS["quarantine"])
            if isinstance(found, dict) and not path.parent.is_symlink():
                yield path.parent, found


def _kept_in(directory: Path, manifest: dict[str, Any]) -> list[_Kept]:
    """The ranges of a copy."""
    pieces = manifest.get("pieces")
    found = []
    for entry in pieces if isinstance(pieces, list) else ():
        if not isinstance(entry, dict):
            continue
        file, start, length = (entry.get(key) for key in ("file", "offset", "length"))
        file_start = parse_segment_name(str(file))
        if file_start is None or not isinstance(start, int) or not isinstance(length, int):
            continue
        if file_start <= start and length > 0:
            found.append(_Kept(start, start + length, directory, str(file), file_start))
    return found


def _holds(kept: _Kept, piece: Piece) -> bool:
    try:
        fd = open_plain_file(kept.directory / kept.file)
    except (OSError, ValueError):
        return False
    try:
        return all(
            syscalls.pread(fd, len(block), offset - kept.file_start) == block
            for offset, block in blocks_of(piece)
        )
    finally:
        syscalls.close(fd)
