"""The documentation site: every document is a page, every link of one leads to a place, and Sphinx has no complaint."""

from __future__ import annotations

import importlib.util
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import ROOT

#: Made by `make site`: an environment of its own, with what requirements/site.txt pins.
GENERATOR = Path(sys.prefix) / "site" / "bin" / "python"
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,4} +(.+?) *$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")


def loaded() -> ModuleType:
    """site/stage.py, which is a program and in no package."""
    spec = importlib.util.spec_from_file_location("stage", ROOT / "site" / "stage.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stage"] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["stage"]
    return module


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in links."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = sum(1 for other in found if re.fullmatch(re.escape(name) + r"(-\d+)?", other))
        found.add(f"{name}-{count}" if count else name)
    return found


@pytest.mark.quick
def test_every_document_is_a_page_once() -> None:
    documents = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    documents |= {path.name for path in ROOT.glob("*.md")}
    pages = loaded().navigation().pages
    assert len(pages) == len(set(pages)), "a page stands twice in site/navigation.toml"
    assert documents <= set(pages), sorted(documents - set(pages))
    assert all((ROOT / page).is_file() for page in pages)


@pytest.mark.quick
def test_the_index_by_task_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]
    pages += [f"recipes/{path.name}" for path in (ROOT / "docs" / "recipes").glob("*.md")]
    assert [page for page in pages if f"]({page})" not in index] == []


@pytest.mark.quick
def test_every_link_leads_to_a_heading_that_exists() -> None:
    broken = []
    for page in loaded().navigation().pages:
        text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
        for path, anchor in LINK.findall(text):
            target = (
                posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            )
            if anchor not in anchors((ROOT / target).read_text(encoding="utf-8")):
                broken.append(f"{page}: {path}#{anchor}")
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.quick
def test_the_source_of_the_site_can_be_made(tmp_path: Path) -> None:
    """Links out of docs/ are changed, and each leads to a file of the source."""
    stage = loaded()
    stage.stage(tmp_path / "source")
    text = (tmp_path / "source" / "start.md").read_text(encoding="utf-8")
    assert "](api.md)" in text and "](docs/" not in text
    text = (tmp_path / "source" / "recipes" / "event_log.md").read_text(encoding="utf-8")
    assert "](../api." in text and "](../../" not in text
    broken = [
        f"{path.relative_to(tmp_path)}: {target}"
        for path in (tmp_path / "source").rglob("*.md")
        for _, target, _ in stage.LINK.findall(
            stage.FENCE.sub("", path.read_text(encoding="utf-8"))
        )
        if not (path.parent / target).exists()
    ]
    assert not broken, "\n" + "\n".join(broken)


def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    if not GENERATOR.exists():
        pytest.skip("the generator is not installed: `make site` installs it")
    source = tmp_path / "source"
    loaded().stage(source)
    command = [GENERATOR, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", ROOT / "site"]
    command += ["-d", tmp_path / "trees", source, tmp_path / "site"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "site" / "production.html").is_file()
    assert (tmp_path / "site" / "recipes" / "event_log.html").is_file()
