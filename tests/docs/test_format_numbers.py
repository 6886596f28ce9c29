"""The numbers of the format have one place: csrc/rs_format.h, and the one native module that hands them to Python."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.source_tree import sources
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

HEADER = ROOT / "csrc" / "rs_format.h"
#: The module that hands the constants of the header to Python, whatever its files end with.
HANDED_ON = "rocketstore/_native/format/constants"

#: `file: constant` of numbers that stand elsewhere.
ELSEWHERE: set[str] = set()

#: A constant of a size or a mark of the files that RocketMQ and rocketstore share, by the words of its name.
NAME = re.compile(
    r"^_*(?:[A-Z]+_)*(?:"
    r"(?:UNIT|ENTRY|SLOT|HEADER|RECORD|BLANK|CHECKPOINT|HOST)(?:_CRC|_V\d)?_(?:SIZE|BYTES)"
    r"|SIZE_AND_MAGIC|(?:BLANK|MESSAGE|RECORD)_MAGIC"
    r")(?:_(?:MIN|FIXED|V\d))*$"
)
ASSIGNED = re.compile(
    r"^(?:cdef enum:|cdef [\w ]+ |DEF )?\s*(\w+)(?:\s*:[^=]+)?\s*=\s*(.+?)(?:\s*#.*)?$"
)


def magics() -> set[int]:
    """All `#define RS_…MAGIC… 0x…` of the header."""
    found = re.findall(r"#define RS_\w*MAGIC\w* (0x[0-9A-Fa-f]+)", HEADER.read_text())
    return {int(text, 16) for text in found}


def is_number(text: str) -> bool:
    """Whether a constant is made of digits or bytes alone, and not of another constant."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return False
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names <= {"bytes"}


def spellings(magic: bytes) -> tuple[str, ...]:
    """How source text may show a magic, in small letters: a coarse look, before one at the tokens."""
    value = int.from_bytes(magic, "big")
    numbers = (f"{value:x}", str(value), str((1 << 32) - value))
    return (*numbers, f"\\x{magic[0]:02x}", magic.decode("latin-1").lower())


def written_magics(text: str) -> Iterator[str]:
    """Literals that are a magic of the format, as a number, as bytes or as hexadecimal text."""
    known = magics()
    wanted = {value.to_bytes(8 if value >> 32 else 4, "big") for value in known}
    spelled = text.lower().replace("_", "")
    if not any(form in spelled for value in wanted for form in spellings(value)):
        return
    # Cython is near enough to Python for its tokens.
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NUMBER:
            digits = token.string.rstrip("uUlL")
            value = ast.literal_eval(digits) if digits else None
            if value in known or (isinstance(value, int) and (1 << 32) - value in known):
                yield token.string
        elif token.type == tokenize.STRING:
            prefix = token.string.split(token.string[-1])[0].lower()
            value = "" if "f" in prefix or "c" in prefix else ast.literal_eval(token.string)
            if isinstance(value, str) and re.fullmatch(r"(?:[0-9A-Fa-f]{8}){1,2}", value):
                value = bytes.fromhex(value)
            if value in wanted:
                yield token.string


def numbers_of(path: Path, text: str) -> Iterator[str]:
    """`file: constant`, for a constant of the format that is a number here."""
    shown = path.relative_to(ROOT).as_posix()
    for line in text.splitlines():
        match = ASSIGNED.match(line)
        if match and NAME.match(match[1]) and is_number(match[2]):
            yield f"{shown}: {match[1]}"
    yield from (f"{shown}: {literal}" for literal in written_magics(text))


def product() -> list[Path]:
    found = sources("rocketstore", suffixes=(".py", ".pyx", ".pxd"))
    return [path for path in found if not path.relative_to(ROOT).as_posix().startswith(HANDED_ON)]


def test_the_numbers_of_the_format_stand_nowhere_else() -> None:
    found = {
        name for path in product() for name in numbers_of(path, path.read_text(encoding="utf-8"))
    }
    assert found - ELSEWHERE == set(), "take it from the one module that has the numbers"
    assert ELSEWHERE - found == set(), "it is gone: take it off the list"


def test_the_header_has_magics() -> None:
    assert {0xDAA320A7, 0xDAA320AB, 0xCBD43194, 0x7273706F73310001} <= magics()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("UNIT_SIZE: Final = 20", "UNIT_SIZE"),
        ("QUEUE_UNIT_BYTES = 4 * 5", "QUEUE_UNIT_BYTES"),
        ("_ENTRY_BYTES: Final = 20  # one entry", "_ENTRY_BYTES"),
        ("RECORD_BYTES_MIN: Final = 92", "RECORD_BYTES_MIN"),
        ("HEADER_SIZE = 40", "HEADER_SIZE"),
        ("cdef int SLOT_SIZE = 4", "SLOT_SIZE"),
        ("    INDEX_HEADER_SIZE = 40", "INDEX_HEADER_SIZE"),
        ("SIZE_AND_MAGIC = 8", "SIZE_AND_MAGIC"),
        ("x = 0xCBD43194", "0xCBD43194"),
        ("x = -626843481", "626843481"),
        ('x = bytes.fromhex("cbd43194")', '"cbd43194"'),
        ('x = b"\\xcb\\xd4\\x31\\x94"', 'b"\\xcb\\xd4\\x31\\x94"'),
        ("UNIT_SIZE: Final = constants.UNIT_SIZE", None),
        ("FILE_SIZE = 20", None),
        ("x = unit_size(20)", None),
    ],
)
def test_a_number_is_found(line: str, found: str | None) -> None:
    path = ROOT / "rocketstore" / "x.py"
    names = [name.split(": ", 1)[1] for name in numbers_of(path, line + "\n")]
    assert names == ([] if found is None else [found])
