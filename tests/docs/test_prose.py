"""Pages for users do without the words that docs/glossary.md refuses, and name what they name as the glossary does."""

from __future__ import annotations

import ast
import re

import pytest

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


def test_a_package_has_no_refused_word() -> None:
    """At the head of a package, as on a page: what it is for, and what each of its modules is."""
    found = []
    for path in sorted((ROOT / "rocketstore").rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        plain = re.sub(r"`[^`\n]*`|^ +\w+\.?\w*(, \w+)*:? ", "", text, flags=re.MULTILINE)
        found += [f"{path.relative_to(ROOT)}: {word}" for word in WORDS.findall(plain)]
    assert not found, "\n" + "\n".join(found)


def test_the_glossary_says_what_to_write_instead() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    table = text.split(LIST)[1]
    named = " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))
    missing = [word for word in REFUSED if not re.search(rf"\b{word}\b", named)]
    assert missing == []
