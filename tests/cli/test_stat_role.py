"""The role of a store in replication, as stat shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketstore.cli import exit_codes
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication import Master, promote
from rocketstore.replication.role.state import ReplicationState, save_state
from tests.cli.conftest import Invoke
from tests.support.small_store import open_small


def _master(root: Path) -> None:
    open_small(root, replication=Master(listen="127.0.0.1:0")).close()


def _promoted(root: Path) -> None:
    _master(root)
    promote(root)


def _copy(root: Path) -> None:
    open_small(root).close()
    save_state(StoreLayout(root), ReplicationState(role="replica"))


def _fenced(root: Path) -> None:
    open_small(root).close()
    save_state(StoreLayout(root), ReplicationState(role="master", fenced_by=7))


@pytest.mark.parametrize(
    ("make", "role", "term", "fenced_by", "line"),
    [
        (_master, "master", 1, None, "master of term 1"),
        (_promoted, "master", 2, None, "master of term 2"),
        (_copy, "replica", 0, None, "replica of term 0"),
        (_fenced, "master", 0, 7, "master of term 0, fenced by term 7"),
    ],
)
def test_role_and_term(
    invoke: Invoke, tmp_path: Path, make: Any, role: str, term: int, fenced_by: Any, line: str
) -> None:
    make(tmp_path)
    done = invoke("stat", tmp_path, "--json")
    found = json.loads(done.stdout)["replication"]
    assert found == {"role": role, "term": term, "fenced_by": fenced_by, "fault": ""}
    assert f"\n{line}\n" in invoke("stat", tmp_path).stdout


def test_a_store_without_a_role(invoke: Invoke, tmp_path: Path) -> None:
    open_small(tmp_path).close()
    assert json.loads(invoke("stat", tmp_path, "--json").stdout)["replication"]["role"] is None
    assert "of term" not in invoke("stat", tmp_path).stdout


def test_a_role_that_cannot_be_read_hides_nothing_else(invoke: Invoke, tmp_path: Path) -> None:
    _copy(tmp_path)
    (tmp_path / "rocketstore" / "replication.json").write_text("{")
    done = invoke("stat", tmp_path)
    assert done.exit_code == exit_codes.DAMAGED
    assert "commitlog" in done.stdout
    assert "replication.json" in done.stderr
    assert json.loads(invoke("stat", tmp_path, "--json").stdout)["replication"]["fault"]


@pytest.mark.parametrize("content", ["{", "", None])
def test_verify_finds_a_role_that_cannot_be_read(
    invoke: Invoke, tmp_path: Path, content: str | None
) -> None:
    _copy(tmp_path)
    assert invoke("verify", tmp_path).exit_code == exit_codes.OK
    path = tmp_path / "rocketstore" / "replication.json"
    path.unlink()
    path.mkdir() if content is None else path.write_text(content)
    done = invoke("verify", tmp_path, "--json")
    assert done.exit_code == exit_codes.DAMAGED
    [fault] = json.loads(done.stdout)["faults"]
    assert (fault["kind"], fault["code"], fault["file"]) == ("config", "role", str(path))
