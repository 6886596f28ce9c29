"""Texts of records as Java shows them: what is not UTF-8 is replaced, never an error."""

from __future__ import annotations

import codecs
from typing import Final

__all__ = ["JAVA_TEXT", "java_text"]

#: Handler of errors, for `bytes.decode("utf-8", …)`.
JAVA_TEXT: Final = "rocketstore.java"


def java_text(raw: bytes) -> str:
    """`raw` as Java's decoder has it: one U+FFFD for each malformed sequence, of which an encoded
    surrogate is one of three bytes. `rs_java_hash` hashes the same text."""
    return raw.decode("utf-8", JAVA_TEXT)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Python's sequences are Java's, but for a surrogate, of which Python replaces each byte."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    raw, end = error.object, error.end
    rest = raw[error.start : error.start + 3]
    if rest[:1] == b"\xed" and rest[1:2] and 0xA0 <= rest[1] <= 0xBF:
        end = error.start + 2
        if rest[2:] and rest[2] & 0xC0 == 0x80:
            end += 1
    return "\ufffd", end


codecs.register_error(JAVA_TEXT, _replace)
