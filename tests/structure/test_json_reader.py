"""One reader of JSON that others may have written: `rocketstore.values.bounded_json`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.structure.source_tree import shown, sources, text_of

pytestmark = pytest.mark.quick

READER = "rocketstore/values/bounded_json.py"
#: What parses JSON without a limit.
PARSERS = {"load", "loads", "JSONDecoder", "raw_decode"}


def _parses(path: Path) -> list[str]:
    tree = ast.parse(text_of(path))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in PARSERS
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
    ]
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module in ("json", "json.decoder")
        and PARSERS & {one.name for one in node.names}
    ]
    return [f"{shown(path)}:{node.lineno}" for node in (*calls, *names)]


def test_json_is_read_with_limits_only() -> None:
    """A nested text, many entries or many digits cost memory, time and an error without a type."""
    found = [place for path in sources("rocketstore", suffixes=(".py",)) for place in _parses(path)]
    assert [place for place in found if not place.startswith(READER)] == []
    assert found  # the reader itself: the test sees what it looks for
