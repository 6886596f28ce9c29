"""The public face changes on purpose only: names and signatures stand in `public_api.txt`."""

from __future__ import annotations

import ast
import difflib
import re

import pytest

from tests.structure.public_api import SNAPSHOT, exported, find, members, signature, snapshot

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


#: Classes of fields that show what a call was given, or how far an open trusted a file.
INNER = {"ArchivePart", "OwnCheckpoint", "RecordFilter"}


def test_what_a_call_gives_has_a_public_name() -> None:
    """A class that a result, or a field of one, is of: a caller writes it in annotations."""
    from rocketstore import config, replication, testing

    found = set()
    for name in exported():
        module, node = find("rocketstore", name)
        texts = [signature(node)] if isinstance(node, ast.FunctionDef) else []
        texts += members(module, node).values() if isinstance(node, ast.ClassDef) else []
        for text in texts:
            given = text.rpartition("-> ")[2] if "-> " in text else text.partition(" = ")[0]
            for word in re.findall(r"\b[A-Z]\w+", given):
                try:
                    kind = find(module, word)[1]
                except LookupError:
                    continue  # of Python
                if isinstance(kind, ast.ClassDef):
                    found.add(word)
    assert len(found) > 30
    modules = {*config.__all__, *replication.__all__, *testing.__all__}
    assert found - {*exported()} - modules == INNER
