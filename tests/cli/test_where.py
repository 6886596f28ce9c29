"""`--where` of the commands that read messages."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from tests.cli.conftest import SMALL, Invoke


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rocketstore.open(tmp_path / "store", **SMALL) as store:
        writer = store.writer("t", queues=2)
        for n in range(200):
            writer.put(b"%d" % n, keys="k", tags="ab"[n % 2], properties={"n": str(n)})
    return tmp_path / "store"


def test_tail_steps_back_until_there_are_enough(invoke: Invoke, root: Path) -> None:
    result = invoke("tail", root, "t", "--where", "n < 20", "-n", 3, "--format", "%s")
    assert (result.exit_code, result.output.split()) == (0, ["17", "18", "19"])
    result = invoke("tail", root, "t", "--where", "n < 20", "--tag", "a", "--format", "%s")
    assert result.output.split() == [str(n) for n in range(0, 20, 2)]
    result = invoke("tail", root, "t", "--where", "n > 500", "--format", "%s")
    assert (result.exit_code, result.output) == (0, "")


def test_query(invoke: Invoke, root: Path) -> None:
    words = ("query", root, "t", "k", "--where", "n BETWEEN 5 AND 8", "--format", "%s")
    assert invoke(*words).output.split() == ["8", "7", "6", "5"]
    result = invoke(*words, "--limit", 3)
    assert "1 more have this key" in result.output
    assert result.output.split()[:3] == ["8", "7", "6"]
    assert invoke("query", root, "t", "k", "--where", "n = 500").exit_code == 1


@pytest.mark.parametrize("command", [("tail",), ("query",)])
def test_a_wrong_expression_is_wrong_use(command: tuple[str], invoke: Invoke, root: Path) -> None:
    key = () if command == ("tail",) else ("k",)
    result = invoke(*command, root, "t", *key, "--where", "n != 5")
    assert result.exit_code == 2
    assert "at position 2" in result.output
    assert "unequal is <>" in " ".join(result.output.split())
