"""Small files that are replaced as a whole: a reader sees the old or the new one, also after a
power cut (D-09).

Many hold JSON: in the form of RocketMQ (format.md 1.4), whose integer keys have no quotes and whose
copy is `<name>.bak`, and our own. The last member of our own, `crc`, is a checksum of the others
(format.md 20.19): one bit that flips in a number leaves good JSON, which says something else.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import logging
import os
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError, ReadFailedError
from rocketstore.log.layout.ownership import inherit_owner
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.values.bounded_json import LIMITS, Limits, TooLargeError, parse_json

__all__ = [
    "checksum",
    "clean_tmp",
    "json_text",
    "open_fixed_file",
    "open_plain_file",
    "read_json",
    "read_json_file",
    "read_state_file",
    "remove_state_file",
    "sync_file_system",
    "unlink_if_there",
    "write_own_json",
    "write_state_file",
    "write_with_copy",
]

logger = logging.getLogger(__name__)

CRC: Final = "crc"

_counter = itertools.count()


def write_state_file(layout: StoreLayout, path: Path, content: str | bytes) -> None:
    """Replaces a small file: readers, now or after a power cut, see the old or the new one."""
    data = content.encode() if isinstance(content, str) else content
    model = _model_of(path)
    name = f"{path.name}.{os.getpid()}.{next(_counter)}"
    temporary = os.fspath(layout.tmp / name)
    if layout.tmp.stat().st_dev != path.parent.stat().st_dev:  # a directory may lie on another disk
        temporary = os.fspath(path.parent / f"{name}.rocketstore-tmp")
    fd = syscalls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            inherit_owner(fd, model)
            syscalls.pwrite(fd, data, 0)
            syscalls.fsync(fd)
        finally:
            syscalls.close(fd)
        syscalls.rename(temporary, os.fspath(path))
    except BaseException:
        unlink_if_there(temporary)
        raise
    syscalls.sync_directory(os.fspath(path.parent))


def remove_state_file(path: Path) -> None:
    """Removes a file, durably. A missing one is no error."""
    try:
        syscalls.unlink(os.fspath(path))
    except FileNotFoundError:
        return
    syscalls.sync_directory(os.fspath(path.parent))


def sync_file_system(directory: Path) -> None:
    """Syncs the whole file system that `directory` is on."""
    fd = syscalls.open_directory(os.fspath(directory))
    try:
        syscalls.syncfs(fd)
    finally:
        syscalls.close(fd)


def clean_tmp(layout: StoreLayout) -> None:
    """Removes unfinished files that a crash left. The caller holds the store's lock."""
    with os.scandir(layout.tmp) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                unlink_if_there(entry.path)


def _model_of(path: Path) -> os.stat_result:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return path.parent.stat()
    return found if stat.S_ISREG(found.st_mode) else path.parent.stat()


def open_plain_file(path: Path) -> int:
    """A descriptor to read a plain file. ValueError for anything else; never waits for the
    writer of a pipe."""
    fd = syscalls.open(os.fspath(path), os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        syscalls.close(fd)
        raise ValueError("not a plain file")
    return fd


def read_state_file(path: Path, max_bytes: int) -> bytes:
    """All of a plain file. ValueError for anything else; TooLargeError for a larger one."""
    fd = open_plain_file(path)
    try:
        size = os.fstat(fd).st_size
        if size > max_bytes:
            raise TooLargeError(f"more than {max_bytes:,} bytes")
        return syscalls.pread(fd, size, 0)
    finally:
        syscalls.close(fd)


def unlink_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        syscalls.unlink(path)


# State files of a fixed length that are written in place: their blocks and their name are on disk
# before the first record, so no later write needs room.


def open_fixed_file(path: str, size: int, holds: str) -> int:
    """A descriptor of a file of at least `size` bytes that have blocks; what it holds stays. `holds`
    says in an error what there is no room for.

    Raises:
        DiskFullError: no room. The next call tries again.
    """
    parent = os.path.dirname(path)
    try:
        fd = syscalls.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        new = True
    except FileExistsError:
        fd, new = syscalls.open(path, os.O_RDWR), False
    try:
        if new:
            inherit_owner(fd, os.stat(parent))
        if os.fstat(fd).st_size < size:
            _extend(fd, path, size, holds)
            syscalls.fsync(fd)
        # Also of a whole file: the process that made it may have been killed before this.
        syscalls.sync_directory(parent)
    except BaseException:
        syscalls.close(fd)
        raise
    return fd


def _extend(fd: int, path: str, size: int, holds: str) -> None:
    found = os.fstat(fd).st_size
    try:
        syscalls.pwrite(fd, bytes(size - found), found)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(error.errno, f"no room for {holds}", path) from error
        raise


# ---- those that hold JSON ----


def read_json(path: Path, limits: Limits | None = None, *, whole: bool = False) -> object:
    """The content of a JSON file, in the forms that RocketMQ writes (format.md 1.4): integer keys
    need no quotes, `<name>.bak` counts when the file is absent, empty or no JSON. None when neither
    is any use. `limits`: those of the file's name where none are given.

    Never raises on what the bytes are; OSError when they cannot be read. ReadFailedError, if `whole`:
    a file is beyond its limits, and may be a good one.
    """
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            document = read_json_file(candidate, limits or LIMITS[path.name])
        except FileNotFoundError:
            continue
        except ValueError as error:
            if whole and isinstance(error, TooLargeError):
                raise ReadFailedError(
                    f"{candidate} has {error}: remove what is not needed, or move it away, and all "
                    "that it says is gone"
                ) from None
            logger.warning("%s is no use: %s; restore it, or remove it", candidate, error)
            continue
        if document is not None:
            return document
    return None


def read_json_file(path: Path, limits: Limits) -> object:
    """The content of this file alone; None where it is empty.

    Raises:
        ValueError: it is no such JSON, or its checksum does not hold.
        OSError: it is absent, or cannot be read.
    """
    text = read_state_file(path, limits.size)
    document = parse_json(text, limits) if text.strip() else None
    if isinstance(document, dict):
        _take_checksum(document)
    return document


def json_text(document: object) -> bytes:
    """The text of a document in RocketMQ's layout, with the quotes that JSON wants."""
    text = io.StringIO()  # of a large one `dumps` would keep all pieces first
    json.dump(document, text, ensure_ascii=False, indent="\t")
    # A name that a file had may have half of a surrogate pair, which UTF-8 lacks.
    return text.getvalue().encode("utf-8", "backslashreplace")


def write_with_copy(layout: StoreLayout, path: Path, text: str | bytes) -> None:
    """Replaces the file, and the copy of a broker, if there is one: the broker takes it for a bad
    file. OSError where it cannot be written."""
    copy = path.with_name(path.name + ".bak")
    if copy.is_file() and not copy.is_symlink():
        write_state_file(layout, copy, text)
    write_state_file(layout, path, text)


def write_own_json(layout: StoreLayout, path: Path, document: Mapping[str, object]) -> None:
    """Replaces a file by a document, whose keys are texts; durable when this returns. OSError."""
    checked = {**document, CRC: checksum(document)}
    write_state_file(layout, path, json.dumps(checked, indent=1) + "\n")


def _take_checksum(document: dict[str, Any]) -> None:
    """Takes the checksum out of what a file says; ValueError where it does not hold. It counts as the
    last member only: an older release keeps what it does not know at the front."""
    counts = next(reversed(document), None) == CRC
    found = document.pop(CRC, None)
    if counts and found != checksum(document):
        raise ValueError("JSON whose checksum (crc) does not hold")


def checksum(document: Mapping[str, object]) -> int:
    """The CRC-32 of a document as JSON without blanks, in the order of its keys."""
    return zlib.crc32(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
