"""Pages for users, and comments of the product, do without the words that docs/glossary.md refuses."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.source_tree import shown, sources, text_of
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

#: In text, not in code, links or headings that other pages link to.
REFUSED = (
    "behind", "in front of", "anew", "told", "tell", "tells", "stand", "stands", "beside", "who",
    "whoever", "that one", "mend", "mends", "mended", "stranger", "strangers", "so many",
)  # fmt: skip
#: The section of the glossary that lists the refused words.
LIST = "## Words that are not used"
WORDS = re.compile(rf"\b({'|'.join(REFUSED)})\b", re.IGNORECASE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)|^#[^\n]*$", re.MULTILINE | re.DOTALL)

SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h")
CYTHON_PROSE = re.compile(r'"""[\s\S]*?"""|#[^\n]*')
C_PROSE = re.compile(r"/\*[\s\S]*?\*/|//[^\n]*")


def pages() -> list[str]:
    folders = ("", "recipes/", "format/", "semantics/")
    found = [path for folder in folders for path in ROOT.glob(f"docs/{folder}*.md")]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    others = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
    return [*others, "bench/README.md", "changes/README.md", "tests/README.md", *sorted(names)]


@pytest.mark.parametrize("page", pages())
def test_a_page_has_no_refused_word(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").split(LIST)[0]
    plain = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    found = [
        f"{page}:{number}: {word}: {line.strip()[:80]}"
        for number, line in enumerate(plain.splitlines(), 1)
        for word in WORDS.findall(line)
    ]
    assert not found, "\n" + "\n".join(found)


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parent.parts
    return "/".join(parts[:2]) if parts[0] == "rocketstore" else parts[0]


def product() -> dict[str, list[Path]]:
    """The files of each room."""
    found: dict[str, list[Path]] = {}
    for path in sources("rocketstore", "csrc", suffixes=SUFFIXES):
        found.setdefault(room_of(path), []).append(path)
    return found


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and docstrings of a file, each with the number of its first line."""
    text = text_of(path)
    if path.suffix in (".py", ".pyi"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    yield node.lineno, "\n".join(lines[node.lineno - 1 : node.end_lineno])
    else:
        for found in (C_PROSE if path.suffix in (".c", ".h") else CYTHON_PROSE).finditer(text):
            yield text.count("\n", 0, found.start()) + 1, found[0]


@pytest.mark.parametrize("room", sorted(product()))
def test_code_has_no_refused_word(room: str) -> None:
    """In comments and docstrings; text in backticks is code."""
    found = [
        f"{shown(path)}:{number}: {word}"
        for path in product()[room]
        for first, part in prose_of(path)
        for number, line in enumerate(part.splitlines(), first)
        for word in WORDS.findall(re.sub(r"`[^`\n]*`", "", line))
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_glossary_says_what_to_write_instead() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    table = text.split(LIST)[1]
    named = " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))
    missing = [word for word in REFUSED if not re.search(rf"\b{word}\b", named)]
    assert missing == []
