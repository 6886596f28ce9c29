"""Copies of bytes that recovery is about to take out of the log, or that it found damaged (D-21).

One directory for each range: `<first offset>-<number>`, with one sparse file for each segment,
named by the offset of its first byte, and `manifest.json`, written and synced last. A directory
without a manifest is what a crash left of a copy; it proves nothing and is removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstore._native.format.checkpoint_slots import crc32c
from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.ownership import file_model, inherit_owner, make_like
from rocketstore.log.layout.paths import parse_segment_name, segment_name
from rocketstore.log.layout.rocketmq_json import read_json

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["Piece", "keep_copy", "keep_end_of_file", "pieces_of"]

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
MANIFEST_BYTES_MAX = 1 << 20
MANIFEST_DEPTH_MAX = 8
BLOCK_BYTES = 1 << 20
ALIGNMENT = 4096


class Piece(NamedTuple):
    """The part of a range that lies in one file: physical offsets."""

    file: MappedFile
    start: int
    end: int


def pieces_of(files: Sequence[MappedFile], start: int, end: int) -> list[Piece]:
    """[start, end) by files, without zeros at the end of each part; nothing for a part of zeros."""
    pieces = []
    for file in files:
        first, last = max(start, file.start_offset), min(end, file.end_offset)
        used = first
        for offset, block in _blocks(Piece(file, first, last)) if first < last else ():
            used = offset + len(block.rstrip(b"\0"))
        if used > first:
            pieces.append(Piece(file, first, used))
    return pieces


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
    before = _find_kept(layout, pieces)
    if before is not None:
        return os.fspath(before)
    directory = _new_directory(layout, pieces[0].start)
    model = file_model(Path(pieces[0].file.path).parent if pieces[0].file.path else layout.root)
    try:
        entries = [_copy(directory, piece, model) for piece in pieces]
        _finish(layout, directory, model, reason, entries, details)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = "no room for a copy of what recovery has to take out; free some and open again"
            raise DiskFullError(error.errno, text, os.fspath(directory)) from error
        raise
    logger.warning(
        "kept a copy of [%d, %d) in %s: %s", pieces[0].start, pieces[-1].end, directory, reason
    )
    return os.fspath(directory)


def keep_end_of_file(layout: StoreLayout, path: str, position: int, offset: int) -> str:
    """Copies and syncs the bytes after `position` in a file that is longer than the other files of
    its queue; `offset` is the physical offset that they would have. Returns the path of the
    copy."""
    directory = _new_directory(layout, offset)
    name = segment_name(offset)
    checksum, length = 0, 0
    model = file_model(Path(path).parent)
    source = syscalls.open(path, os.O_RDONLY)
    try:
        target = syscalls.open(os.fspath(directory / name), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            inherit_owner(target, model)
            while block := syscalls.pread(source, BLOCK_BYTES, position + length):
                syscalls.pwrite(target, block, length)
                checksum = crc32c(block, checksum)
                length += len(block)
            syscalls.fsync(target)
        finally:
            syscalls.close(target)
    finally:
        syscalls.close(source)
    entry = {"file": name, "offset": offset, "length": length, "crc32c": checksum}
    _finish(layout, directory, model, "after the end of a file", [entry], {})
    return os.fspath(directory)


def _blocks(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The parts of a piece that are not zero, as (physical offset, bytes), cut at multiples of a
    page."""
    file = piece.file
    position, end = piece.start - file.start_offset, piece.end - file.start_offset
    while (data := file.find_data(position, end)) < end:
        begin = max(position, data - data % ALIGNMENT)
        position = min(end, begin - begin % ALIGNMENT + BLOCK_BYTES)
        yield file.start_offset + begin, file.read(begin, position - begin)


def _copy(directory: Path, piece: Piece, model: os.stat_result) -> dict[str, Any]:
    """One sparse file; its entry of the manifest. The checksum is that of the blocks alone."""
    name = segment_name(piece.start)
    checksum = 0
    fd = syscalls.open(os.fspath(directory / name), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        inherit_owner(fd, model)
        syscalls.ftruncate(fd, piece.end - piece.start)
        for offset, block in _blocks(piece):
            syscalls.pwrite(fd, block, offset - piece.start)
            checksum = crc32c(block, checksum)
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)
    return {
        "file": name,
        "offset": piece.start,
        "length": piece.end - piece.start,
        "crc32c": checksum,
    }


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
    fd = syscalls.open(os.fspath(directory / MANIFEST), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        inherit_owner(fd, model)
        syscalls.pwrite(fd, json.dumps(manifest, indent=1).encode() + b"\n", 0)
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)
    syscalls.sync_directory(os.fspath(directory))
    syscalls.sync_directory(os.fspath(layout.quarantine))


def _new_directory(layout: StoreLayout, offset: int) -> Path:
    """The next free name for a range that starts at `offset`; unfinished copies are removed
    first."""
    number = 0
    while True:
        directory = layout.quarantine / f"{segment_name(offset)}-{number}"
        if not directory.exists():
            break
        if not (directory / MANIFEST).exists():
            _remove(directory)
            break
        number += 1
    make_like(directory, layout.quarantine.stat())
    return directory


def _remove(directory: Path) -> None:
    for name in os.listdir(directory):
        syscalls.unlink(os.fspath(directory / name))
    syscalls.rmdir(os.fspath(directory))


# ---- what is kept already ----


def _find_kept(layout: StoreLayout, pieces: Sequence[Piece]) -> Path | None:
    """A finished copy that holds every byte of `pieces`."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(os.scandir(layout.quarantine), key=lambda entry: entry.name):
            directory = Path(entry.path)
            if entry.is_dir(follow_symlinks=False) and (directory / MANIFEST).exists():
                kept = _kept_files(directory)
                if all(_holds(directory, kept, piece) for piece in pieces):
                    return directory
    return None


def _kept_files(directory: Path) -> list[tuple[int, int]]:
    """(offset, length) of the files of a copy, whose manifest has to be readable."""
    manifest = read_json(directory / MANIFEST, MANIFEST_BYTES_MAX, MANIFEST_DEPTH_MAX)
    found = []
    for entry in manifest.get("pieces", ()) if isinstance(manifest, dict) else ():
        offset = parse_segment_name(str(entry.get("file"))) if isinstance(entry, dict) else None
        length = entry.get("length") if isinstance(entry, dict) else None
        if offset is not None and isinstance(length, int):
            found.append((offset, length))
    return found


def _holds(directory: Path, kept: Sequence[tuple[int, int]], piece: Piece) -> bool:
    for offset, length in kept:
        if not (offset <= piece.start and piece.end <= offset + length):
            continue
        fd = syscalls.open(os.fspath(directory / segment_name(offset)), os.O_RDONLY)
        try:
            if all(
                syscalls.pread(fd, len(block), start - offset) == block
                for start, block in _blocks(piece)
            ):
                return True
        finally:
            syscalls.close(fd)
    return False
