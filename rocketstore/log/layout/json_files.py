"""JSON as RocketMQ writes it (format.md 1.4): integer keys without quotes, and a copy
`<name>.bak`."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore.errors import ReadFailedError
from rocketstore.log.layout.atomic_files import read_state_file, write_state_file
from rocketstore.values.bounded_json import LIMITS, TooLargeError, parse_json

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.values.bounded_json import Limits

__all__ = ["json_text", "read_json", "read_json_file", "write_with_copy"]

logger = logging.getLogger(__name__)


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
        ValueError: it is no such JSON.
        OSError: it is absent, or cannot be read.
    """
    text = read_state_file(path, limits.size)
    return parse_json(text, limits) if text.strip() else None


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
