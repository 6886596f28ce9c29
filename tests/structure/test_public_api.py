"""The public face changes on purpose only: names and signatures stand in `public_api.txt`."""

from __future__ import annotations

import difflib
import re

import pytest

from tests.structure.public_api import SNAPSHOT, exported, snapshot

pytestmark = pytest.mark.quick


def test_public_names_and_signatures_are_as_recorded() -> None:
    """After a wanted change run `python -m tests.structure.public_api`, and say so in
    `changes/`."""
    recorded = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    now = snapshot().splitlines()
    assert recorded == now, "\n" + "\n".join(difflib.unified_diff(recorded, now, lineterm=""))


def test_every_public_name_can_be_imported() -> None:
    import rocketstore

    assert [name for name in exported() if not hasattr(rocketstore, name)] == []
    assert exported() == sorted(exported(), key=lambda name: (not name[0].isupper(), name))


def test_public_classes_say_what_they_are() -> None:
    import rocketstore

    texts = {"Durability"}  # a type of plain texts, which has no docstring
    kinds = [name for name in exported() if name not in texts]
    assert [name for name in kinds if not (getattr(rocketstore, name).__doc__ or "").strip()] == []


#: Public signatures with Any, and why. There is none.
ANYTHING: dict[str, str] = {}


def test_no_public_signature_takes_anything() -> None:
    owner, found = "", set()
    for line in snapshot().splitlines():
        owner = line.split("(")[0].removeprefix("class ") if line[0] != " " else owner
        if re.search(r"\bAny\b", line):
            found.add(f"{owner}: {line.strip().split('(')[0]}")
    assert found == set(ANYTHING)
