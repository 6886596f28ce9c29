"""JSON as RocketMQ writes it (format.md 1.4): integer keys without quotes, and a copy
`<name>.bak`."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore.log.layout.atomic_files import read_state_file, write_state_file

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["json_text", "parse_json", "read_json", "read_json_file", "write_with_copy"]

logger = logging.getLogger(__name__)

# A string (perhaps without its end), a key that is a bare integer, or a bracket.
_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    r"|(?P<key>(?<=[{,\s])-?[0-9]+(?=\s*:))|(?P<open>[\[{])|[\]}]",
    re.DOTALL,
)


def read_json(path: Path, max_bytes: int, max_depth: int) -> object:
    """The content of a JSON file, in the forms that RocketMQ writes (format.md 1.4): integer keys
    need no quotes, `<name>.bak` counts when the file is absent, empty or no JSON. None when neither
    is any use.

    Never raises on what the bytes are; OSError when they cannot be read.
    """
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            document = read_json_file(candidate, max_bytes, max_depth)
        except FileNotFoundError:
            continue
        except ValueError as error:
            logger.warning("%s is no use: %s", candidate, error)
            continue
        if document is not None:
            return document
    return None


def read_json_file(path: Path, max_bytes: int, max_depth: int) -> object:
    """The content of this file alone; None where it is empty.

    Raises:
        ValueError: it is no such JSON.
        OSError: it is absent, or cannot be read.
    """
    text = read_state_file(path, max_bytes).decode()
    return parse_json(text, max_depth) if text.strip() else None


def json_text(document: object) -> str:
    """The text of a document in RocketMQ's layout, with the quotes that JSON wants."""
    text = json.dumps(document, ensure_ascii=False, indent="\t")
    # A name that a file had may have half of a surrogate pair, which UTF-8 lacks.
    return text.encode("utf-8", "backslashreplace").decode()


def write_with_copy(layout: StoreLayout, path: Path, text: str) -> None:
    """Replaces the file, and the copy of a broker, if there is one: the broker takes it for a bad
    file. OSError where it cannot be written."""
    copy = path.with_name(path.name + ".bak")
    if copy.is_file() and not copy.is_symlink():
        write_state_file(layout, copy, text)
    write_state_file(layout, path, text)


def parse_json(text: str, max_depth: int) -> object:
    """A document in one of the forms that RocketMQ writes. ValueError: it is none, or nested
    deeper than `max_depth`."""
    depth = 0

    def quoted(found: re.Match[str]) -> str:
        nonlocal depth
        kind = found.lastgroup
        if kind == "key":
            return f'"{found[0]}"'
        if kind == "open":
            depth += 1
            if depth > max_depth:
                raise ValueError(f"nested deeper than {max_depth}")
        elif found[0] in "]}":
            depth -= 1
        return found[0]

    document: object = json.loads(
        _TOKEN.sub(quoted, text), parse_float=_finite, parse_constant=_refuse_constant
    )
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond all numbers")
    return number


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
