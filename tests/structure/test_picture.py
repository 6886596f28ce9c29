"""`docs/architecture.md` shows the house as it is."""

from __future__ import annotations

import re

import pytest

from tests.structure.floors import FLOORS
from tests.structure.picture import DOCUMENT, MARKS, picture, redrawn
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick


def test_the_document_shows_the_floors_and_the_tree() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [mark for marks in MARKS for mark in marks[:2] if text.count(mark) != 1] == []
    assert redrawn(text) == text, "run: python -m tests.structure.picture"


def test_the_picture_has_every_room() -> None:
    drawn = set(re.findall(r"[\w.]+", "\n".join(picture())))
    assert [room for _, rooms in FLOORS for room in rooms if room not in drawn] == []


def test_every_place_that_it_names_exists() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    named = re.findall(r"`((?:rocketstore|csrc|tests)/[\w/]+(?:\.\w+)?)`", text)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_where_to_look_leads_into_every_package() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").split("## Where to look")[1]
    named = [f"{path}/" for path in re.findall(r"`(rocketstore/[\w/]+)", table)]
    packages = {path.parent for path in (ROOT / "rocketstore").rglob("__init__.py")}
    folders = {f"{package.relative_to(ROOT)}/" for package in packages} - {"rocketstore/"}
    assert [f for f in sorted(folders) if not any(path.startswith(f) for path in named)] == []
