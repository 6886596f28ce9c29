"""`stat` of a store of which a queue cannot be read, since files are gone under the process that writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore import ReadFailedError
from rocketstore.cli import exit_codes
from tests.cli.conftest import Invoke
from tests.support.small_store import dispatched, open_small

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
