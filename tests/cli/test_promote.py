"""promote, on a copy, a plain store and one that is open."""

from __future__ import annotations

import json
from pathlib import Path

from rocketstore import FencedError
from rocketstore.cli import exit_codes
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.protocol.epochs import Epoch
from rocketstore.replication.role.state import ReplicationState, load_state, save_state
from tests.cli.conftest import Invoke, Start
from tests.support.small_store import open_small


def _copy(root: Path, fenced_by: int | None = None) -> None:
    """Of a master that it met in term 1, and that had nothing."""
    open_small(root).close()
    met = (Epoch(1, 0, 0, bytes(8)),)
    state = ReplicationState(role="replica", store_id=b"s" * 16, epochs=met, fenced_by=fenced_by)
    save_state(StoreLayout(root), state)


def test_copy_becomes_the_master(invoke: Invoke, tmp_path: Path) -> None:
    _copy(tmp_path, fenced_by=4)
    result = invoke("promote", tmp_path)
    assert result.exit_code == exit_codes.OK
    assert "the master of term 5, from offset 0 on" in result.stdout
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"taken")


def test_result_as_json(invoke: Invoke, tmp_path: Path) -> None:
    _copy(tmp_path)
    result = invoke("promote", tmp_path, "--json")
    assert json.loads(result.stdout) == {
        "path": str(tmp_path), "term": 2, "end": 0, "was_master": False, "rank": [0, 0, 0],
        "dry_run": False,
    }  # fmt: skip


def test_fenced_master_takes_its_place_back(invoke: Invoke, tmp_path: Path) -> None:
    _copy(tmp_path)
    invoke("promote", tmp_path)
    state = load_state(StoreLayout(tmp_path))
    assert state is not None
    save_state(
        StoreLayout(tmp_path),
        ReplicationState(role="master", store_id=state.store_id, epochs=state.epochs, fenced_by=7),
    )
    with open_small(tmp_path) as store:
        try:
            store.writer("orders").put(b"refused")
            raise AssertionError("a fenced master took a put")
        except FencedError:
            pass
    assert "the master of term 8" in invoke("promote", tmp_path).stdout


def test_dry_run_says_the_rank(invoke: Invoke, tmp_path: Path) -> None:
    _copy(tmp_path)
    invoke("promote", tmp_path)
    before = load_state(StoreLayout(tmp_path))
    assert (
        "rank 0.0.0; would be the master of term 3"
        in invoke("promote", "--dry-run", tmp_path).stdout
    )
    assert load_state(StoreLayout(tmp_path)) == before


def test_plain_store_needs_no_promotion(invoke: Invoke, tmp_path: Path) -> None:
    open_small(tmp_path).close()
    result = invoke("promote", tmp_path)
    assert result.exit_code == exit_codes.FAILED
    assert "is no copy" in result.stderr


def test_a_copy_that_never_met_its_master_is_not_promoted(invoke: Invoke, tmp_path: Path) -> None:
    """It would found another store, whose messages the real master's copies refuse."""
    open_small(tmp_path).close()
    save_state(StoreLayout(tmp_path), ReplicationState(role="replica"))
    before = load_state(StoreLayout(tmp_path))
    for dry in ([], ["--dry-run"]):
        result = invoke("promote", tmp_path, *dry)
        assert result.exit_code == exit_codes.FAILED
        assert "never met its master" in result.stderr
    assert load_state(StoreLayout(tmp_path)) == before


def test_open_store_is_not_promoted(invoke: Invoke, tmp_path: Path) -> None:
    with open_small(tmp_path):
        assert invoke("promote", tmp_path).exit_code == exit_codes.LOCKED


def test_rank_of_an_open_store_is_not_said(invoke: Invoke, start: Start, tmp_path: Path) -> None:
    _copy(tmp_path)
    child = start("follow", "127.0.0.1:1", tmp_path)
    assert child.stdout is not None
    child.stdout.readline()
    result = invoke("promote", "--dry-run", tmp_path)
    assert (result.exit_code, result.stdout) == (exit_codes.LOCKED, "")
    assert f"rocketstore process {child.pid}" in result.stderr
    assert "is open: stop it first" in result.stderr
    child.terminate()
    child.communicate()
    assert "rank 0.0.0" in invoke("promote", "--dry-run", tmp_path).stdout


def test_no_store_is_made(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("promote", tmp_path / "none").exit_code != exit_codes.OK
    assert not (tmp_path / "none").exists()
