"""Every citation resolves: sections, rules, faults, features and decisions that code, tests and documents name."""

from __future__ import annotations

import csv
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.structure.source_tree import sources
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

DOCS = ROOT / "docs"
CITING = ("rocketstore", "csrc", "tests", "bench", "docs")
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".md")
#: Its planted citations lead nowhere.
OURS = Path(__file__)

#: The number of a heading.
NUMBERED = r"(\d+(?:\.\d+)*)\.? "
#: `4.1`, `3.6, 7.4`, `7.2 and 7.3`
NUMBERS = r"((?:section |§ ?)?\d+(?:\.\d+)*(?:(?:,| and|;) §?\d+(?:\.\d+)+)*)"
#: A page whose headings have numbers, and how its sections are cited.
SECTIONS = {
    "semantics.md": re.compile(rf"\bsemantics(?:\.md\)?)?,? {NUMBERS}"),
    "format.md": re.compile(rf"\bformat(?:\.md\)?)?,? {NUMBERS}"),
    "durability.md": re.compile(rf"\bdurability\.md\)?,? {NUMBERS}"),
}
#: The letter of a numbered row, as K of K-16, and the pages whose tables have such rows.
ROWS = {
    "D": ("durability.md",),
    "K": ("semantics/faults.md",),
    "Q": ("format/rules.md", "compatibility.md"),
}
FEATURE = re.compile(r"\b(S\d{3}-\d{2,3})\b")
DECISION = re.compile(r"\bdecisions?[ /](\d{4})\b")
ANCHOR = re.compile(r"([\w./-]+\.md)#([\w-]+)")
PAGE = re.compile(r"\b((?:bench|docs|tests)/[\w/-]+\.(?:md|csv|json))\b")
#: Papers that are not in the repository.
PAPER = re.compile(r"\b(?:DESIGN|STYLE)(?:\.md| \d)[\d.]*")
#: A module or a name of the library in backticks, from the top or from a room that has no namesake.
NAME = re.compile(r"`((?:rocketstore|_native|engine|log|services|tools|values)(?:\.\w+)+)")
#: What begins a line of a comment.
COMMENT = re.compile(r"\n[ \t]*(?:#:?|\*|//)?[ \t]*")


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def headings(path: Path) -> list[str]:
    """Without what stands in blocks of code."""
    text = re.sub(r"^```.*?^```$", "", text_of(path), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)


@cache
def anchors(path: Path) -> set[str]:
    """As GitHub makes them."""
    found: set[str] = set()
    for heading in headings(path):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(slug)
    return found


@cache
def sections(page: str) -> set[str]:
    """Numbers of the headings of a page, and of the pages in the folder of its name."""
    pages = [DOCS / page, *sorted((DOCS / page).with_suffix("").glob("*.md"))]
    found = (re.match(NUMBERED, heading) for path in pages for heading in headings(path))
    return {match[1] for match in found if match}


@cache
def rows(page: str) -> set[str]:
    return set(re.findall(r"^\| ([A-Z]-\d\d) \|", text_of(DOCS / page), flags=re.MULTILINE))


@cache
def features() -> set[str]:
    with (OURS.parent / "features.csv").open(encoding="utf-8", newline="") as lines:
        return {row["id"] for row in csv.DictReader(lines)}


def unresolved(path: Path, text: str) -> Iterator[str]:
    """Citations of `text`, which is or may be that of `path`, that lead nowhere."""
    text = COMMENT.sub(" ", text)
    # A plain look for a word comes before each search: it is what keeps this quick.
    for page, pattern in SECTIONS.items():
        for match in pattern.finditer(text) if page.removesuffix(".md") in text else ():
            numbers = re.findall(r"\d+(?:\.\d+)*", match[1])
            yield from (f"{page} {n}" for n in numbers if n not in sections(page))
    if DOCS / "semantics" in (path.with_suffix(""), path.parent):
        numbers = re.findall(r"§(\d+(?:\.\d+)*)", text)
        yield from (f"§{n}" for n in numbers if n not in sections("semantics.md"))
    for letter, pages in ROWS.items():
        for row in re.findall(rf"\b({letter}-\d\d)\b", text) if f"{letter}-" in text else ():
            if not any(row in rows(page) for page in pages):
                yield row
    yield from (feature for feature in FEATURE.findall(text) if feature not in features())
    for match in DECISION.finditer(text) if "decision" in text else ():
        if not list((DOCS / "decisions").glob(f"{match[1]}-*.md")):
            yield match[0]
    for name, anchor in ANCHOR.findall(text) if ".md#" in text else ():
        # Code names a page from the root, or by its name alone; a document by a link.
        places = [path.parent / name, ROOT / name, DOCS / name]
        page = next((place.resolve() for place in places if place.is_file()), None)
        if page is None or anchor not in anchors(page):
            yield f"{name}#{anchor}"
    yield from (name for name in PAGE.findall(text) if not (ROOT / name).is_file())
    if "DESIGN" in text or "STYLE" in text:
        yield from (match[0] for match in PAPER.finditer(text))


def test_every_citation_leads_somewhere() -> None:
    found = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
    ]
    found += [path for path in sources(*CITING, suffixes=SUFFIXES) if path != OURS]
    wrong = [
        f"{path.relative_to(ROOT)}: {citation}"
        for path in found
        for citation in unresolved(path, text_of(path))
    ]
    assert wrong == [], "\n" + "\n".join(wrong)


def is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(f"rocketstore.{name.removeprefix('rocketstore.')}")
    except ImportError:  # of an extra that is not installed; what is not there is an AttributeError
        return True
    except AttributeError:
        return False
    return True


def test_every_name_of_the_library_is_there() -> None:
    """Decisions and the changelog may name what was there once."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages += [path for path in DOCS.rglob("*.md") if path.parent.name != "decisions"]
    named = {
        (path, name)
        for path in (*pages, *sources("rocketstore", "csrc", suffixes=SUFFIXES))
        for name in NAME.findall(text_of(path))
    }
    assert len(named) > 150, "the finder of names found nearly none"
    wrong = [f"{path.relative_to(ROOT)}: {name}" for path, name in named if not is_there(name)]
    assert wrong == [], "\n" + "\n".join(sorted(wrong))


@pytest.mark.parametrize("name", ["rocketstore.no_such", "rocketstore.log.no_such.read", "log.no"])
def test_a_name_that_is_not_there_is_found(name: str) -> None:
    assert not is_there(name)


@pytest.mark.parametrize("name", ["format", "semantics"])
def test_an_index_lists_each_section_once(name: str) -> None:
    """The pages under docs/format have the sections; docs/format.md leads to each, by its number."""
    listed = re.findall(
        rf"^ *- \[(.+)\]\(({name}/\w+\.md)#", text_of(DOCS / f"{name}.md"), flags=re.MULTILINE
    )
    there = [
        (heading, f"{name}/{path.name}")
        for path in (DOCS / name).glob("*.md")
        for heading in headings(path)
        if re.match(NUMBERED, heading)
    ]
    assert sorted(listed) == sorted(there)
    numbers = [re.match(NUMBERED, heading) for heading, _ in there]
    assert len({match[1] for match in numbers if match}) == len(there)


def test_there_are_citations_of_each_kind() -> None:
    """A pattern that finds nothing finds no fault either."""
    text = "\n".join(
        COMMENT.sub(" ", text_of(path)) for path in sources("rocketstore", suffixes=SUFFIXES)
    )
    patterns = [SECTIONS["semantics.md"], SECTIONS["format.md"], DECISION, ANCHOR, PAGE]
    assert [pattern.pattern for pattern in patterns if not pattern.search(text)] == []
    assert all(rows(page) for pages in ROWS.values() for page in pages)


@pytest.mark.parametrize(
    ("text", "citation"),
    [
        ("(semantics 99.1)", "semantics.md 99.1"),
        ("semantics 7.2 and 7.99", "semantics.md 7.99"),
        ("of semantics §98.", "semantics.md 98"),
        ("see format.md 3.99)", "format.md 3.99"),
        ("format 15.2, 15.99", "format.md 15.99"),
        ("[format.md](format.md), section 99.3", "format.md 99.3"),
        ("(format.md\n * 99.3)", "format.md 99.3"),
        ("durability.md 3", "durability.md 3"),
        ("D-99", "D-99"),
        ("K-98", "K-98"),
        ("Q-99", "Q-99"),
        ("S000-999", "S000-999"),
        ("decision 9999", "decision 9999"),
        ("[x](decisions/9999-x.md)", "decisions/9999"),
        ("docs/durability.md#no-such-heading", "docs/durability.md#no-such-heading"),
        ("docs/no_such_page.md", "docs/no_such_page.md"),
        ("`tests/no_such_table.csv`", "tests/no_such_table.csv"),
        ("DESIGN 8.2", "DESIGN 8.2"),
        ("STYLE.md", "STYLE.md"),
    ],
)
def test_a_citation_that_leads_nowhere_is_found(text: str, citation: str) -> None:
    assert list(unresolved(DOCS / "page.md", text)) == [citation]
