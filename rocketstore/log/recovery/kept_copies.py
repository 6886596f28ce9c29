"""What quarantine holds already: bytes that a finished copy has are not copied again."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketstore._native.os import syscalls
from rocketstore.log.layout.atomic_files import open_plain_file
from rocketstore.log.layout.json_files import read_json
from rocketstore.log.layout.paths import parse_segment_name
from rocketstore.values.bounded_json import LIMITS

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile

__all__ = ["MANIFEST", "KeptCopies", "Piece", "blocks_of", "cuts_with_records", "pieces_of"]

MANIFEST: Final = "manifest.json"
BLOCK_BYTES: Final = 1 << 20
ALIGNMENT: Final = 4096
#: Most copies that are compared with one piece, a count; with more it is copied again.
COMPARED_MAX: Final = 64


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
