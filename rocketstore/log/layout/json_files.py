"""JSON files of a store: in the form of RocketMQ (format.md 1.4), whose integer keys have no quotes and
whose copy is `<name>.bak`, and our own.

The last member of our own, `crc`, is a checksum of the others (format.md 20.19): one bit that flips in a
number leaves good JSON, which says something else.
"""

from __future__ import annotations

import io
import json
import logging
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketstore.errors import ReadFailedError
from rocketstore.log.layout.atomic_files import read_state_file, write_state_file
from rocketstore.values.bounded_json import LIMITS, TooLargeError, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.values.bounded_json import Limits

__all__ = [
    "checksum",
    "json_text",
    "read_json",
    "read_json_file",
    "write_own_json",
    "write_with_copy",
]

logger = logging.getLogger(__name__)

CRC: Final = "crc"


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
