"""Java properties files, in which a broker keeps its settings."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from rocketstore.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_properties"]

#: A settings file is a few kilobytes; anything near this is not one.
PROPERTIES_BYTES_MAX: Final = 4 * 1024 * 1024


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """A Java properties file: `name = value`, `#` and `!` comments, continuation, escapes. UTF-8, or
    UTF-16 that begins with a byte order mark."""
    with open(path, "rb") as file:
        data = file.read(PROPERTIES_BYTES_MAX + 1)
    if len(data) > PROPERTIES_BYTES_MAX:
        raise ConfigError(
            "properties", os.fspath(path), f"must be at most {PROPERTIES_BYTES_MAX} bytes"
        )
    utf_16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if utf_16 else "utf-8-sig", errors="replace")
    if "\0" in text:  # else no name of an option would be known
        raise ConfigError("properties", os.fspath(path), "is no text in UTF-8: save it as UTF-8")
    found = {}
    for line in _logical_lines(text):
        # A name ends at the first =, : or blank that is not escaped.
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        assert match is not None  # every part of the pattern may be empty
        found[_unescape(match[1])] = _unescape(match[2]).strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; an odd number of backslashes at the end joins the next one."""
    parts: list[str] = []
    for raw in text.splitlines():
        line = raw.lstrip()
        if not parts and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        if part := line[: len(line) - goes_on]:
            parts.append(part)
        if not goes_on:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escaped, escaped)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text, flags=re.DOTALL)
