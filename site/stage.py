"""Makes the source of the documentation site out of the documents of the tree.

    python site/stage.py TARGET

Documents are written for readers of the repository: their links are paths of the tree, and some of them lie outside of
`docs/`. Sphinx wants one directory. So every page of `navigation.toml` is copied to TARGET, with its links changed to
where their targets are there; other files that a link leads to are copied as they are. Needs the standard library only.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
#: Target of a link that is no URL and no place of the same page: path, and what follows it.
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)([^)\s]*\))")


@dataclass(frozen=True, slots=True)
class Navigation:
    """The pages of the site, by their paths in the tree."""

    home: str
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    below: dict[str, tuple[str, ...]]

    @property
    def pages(self) -> list[str]:
        shown = [page for _, pages in self.parts for page in pages]
        return [self.home, *shown, *(page for pages in self.below.values() for page in pages)]


def navigation() -> Navigation:
    """What `navigation.toml` says."""
    found = tomllib.loads((ROOT / "site" / "navigation.toml").read_text(encoding="utf-8"))
    below = {}
    for item in found["below"]:
        names = sorted(path.name for path in (ROOT / item["folder"]).glob("*.md"))
        pages = [f"{item['folder']}/{name}" for name in names]
        below[item["page"]] = tuple(page for page in pages if page != item["page"])
    parts = tuple((part["title"], tuple(part["pages"])) for part in found["part"])
    return Navigation(found["home"], parts, below)


def staged(page: str, home: str) -> str:
    """Where a page of the tree is in the source of the site."""
    if page == home:
        return "index.md"
    if page.startswith("docs/"):
        path = page.removeprefix("docs/")
        return f"{posixpath.dirname(path)}/index.md" if path.endswith("/README.md") else path
    if page == "README.md":
        return "start.md"
    return page.lower().replace("/readme.md", ".md")


def stage(target: Path) -> None:
    """Writes the source of the site to `target`, which is made anew.

    Raises:
        FileNotFoundError: a link leads to no file of the tree.
        LookupError: a link leads to a document that is no page of the site.
    """
    shutil.rmtree(target, ignore_errors=True)
    pages = navigation()
    places = {page: staged(page, pages.home) for page in pages.pages}
    for page, place in places.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        written = _relinked(text, page, places, target)
        if page == pages.home:
            written += _contents(pages, places)
        if page in pages.below:
            written += _toctree(pages.below[page], places, place)
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(written, encoding="utf-8")


def _relinked(text: str, page: str, places: dict[str, str], target: Path) -> str:
    """The page with its links changed; what is in fences stays."""

    def link(match: re.Match[str]) -> str:
        named = posixpath.normpath(f"{posixpath.dirname(page)}/{match[2]}").lstrip("/")
        place = _place_of(named, page, places, target)
        return f"{match[1]}{_from(place, places[page])}{match[3]}"

    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(link, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(link, text[at:])])


def _place_of(named: str, page: str, places: dict[str, str], target: Path) -> str:
    """Where the file `named` of the tree is in the source; copied, if it is no page."""
    if (ROOT / named).is_dir():
        named = f"{named}/README.md"
    if named in places:
        return places[named]
    if not (ROOT / named).is_file():
        raise FileNotFoundError(f"{page}: there is no {named}")
    if named.endswith(".md"):
        raise LookupError(f"{page}: {named} is no page; name it in site/navigation.toml")
    copy = target / "tree" / named
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / named, copy)
    return f"tree/{named}"


def _from(place: str, page: str) -> str:
    return posixpath.relpath(place, posixpath.dirname(page) or ".")


def _contents(pages: Navigation, places: dict[str, str]) -> str:
    return "".join(_toctree(shown, places, "index.md", title) for title, shown in pages.parts)


def _toctree(shown: tuple[str, ...], places: dict[str, str], page: str, title: str = "") -> str:
    caption = f":caption: {title}\n" if title else ""
    names = "\n".join(_from(places[name], page).removesuffix(".md") for name in shown)
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n{names}\n```\n"


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
