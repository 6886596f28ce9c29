"""`stat`: the role of a store in replication, and a queue whose files are gone under the process that writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ReadFailedError
from rocketstore.cli import exit_codes
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication import Master, promote
from rocketstore.replication.role.state import ReplicationState, save_state
from tests.cli.conftest import Invoke
from tests.support.small_store import dispatched, open_small


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


#: A file of a queue holds ten units.
COUNT = 35


@pytest.fixture
def live(tmp_path: Path) -> Iterator[rocketstore.Store]:
    """A writer that has dispatched everything, and a queue `sound` beside the one that is harmed."""
    with open_small(tmp_path) as store:
        for topic in ("t", "sound"):
            for number in range(COUNT):
                store.writer(topic).put(b"%d" % number)
    with open_small(tmp_path) as store:  # its queues are not mapped yet
        yield dispatched(store)


def gone(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name(f"{int(path.name) + 1:020d}"))


@pytest.mark.parametrize("change", [gone, renamed])
@pytest.mark.parametrize(("start", "first"), [(200, 10), (600, 30)])
def test_it_names_the_queue_and_ends_with_3(
    live: rocketstore.Store,
    tmp_path: Path,
    invoke: Invoke,
    start: int,
    first: int,
    change: Callable[[Path], None],
) -> None:
    """It ended with 0, while `tail` ended with 3."""
    change(tmp_path / "consumequeue" / "t" / "0" / f"{start:020d}")
    with rocketstore.open(tmp_path, "r") as store, pytest.raises(ReadFailedError):
        list(store.consumer("t"))
    done = invoke("stat", tmp_path, "--json")
    assert done.exit_code == exit_codes.DAMAGED
    assert (
        f"t/0: the queue has no unit of the offset {first}, where a consumer raises" in done.stderr
    )
    assert "sound" not in done.stderr
    rows = {row["topic"]: row for row in json.loads(done.stdout)["queues"]}
    assert rows["t"] == {
        "topic": "t", "queue_id": 0, "min": 0, "max": COUNT, "messages": COUNT, "no_unit_at": first,
    }  # fmt: skip
    assert rows["sound"]["no_unit_at"] is None
    assert invoke("tail", tmp_path, "t", "-n", "100").exit_code == exit_codes.DAMAGED


def test_a_queue_that_is_whole_has_no_such_line(
    live: rocketstore.Store, tmp_path: Path, invoke: Invoke
) -> None:
    live.writer("t").put(b"one more")
    done = invoke("stat", tmp_path, "--json")
    assert (done.exit_code, done.stderr) == (exit_codes.OK, "")
