"""Commands on a store that lacks segments of its log: what is missing is told, once, and truly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.cli.conftest import Invoke

SEGMENT = 32768
SHAPE = ("--index-slots", 50, "--index-entries", 400)
MESSAGES = 200
Placed = dict[int, tuple[str, int]]


def log_file(path: Path, number: int) -> Path:
    return path / "commitlog" / f"{number * SEGMENT:020d}"


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    """A store of four segments that was stopped cleanly; the keys are k0 … of one queue."""
    path = tmp_path / "store"
    shape = {"index_slots": 50, "index_entries": 400, "commit_log_file_size_bytes": SEGMENT}
    with rocketstore.open(path, durability="os", **shape) as store:
        writer = store.writer("orders")
        for number in range(MESSAGES):
            writer.put(bytes(400), keys=f"k{number}")
        assert 3 * SEGMENT < store.end_offset < 4 * SEGMENT
    return path


def numbers_in(path: Path, segment: int) -> list[int]:
    """The queue offsets of the messages in a segment."""
    with rocketstore.open(path, "r") as store:
        return [
            message.queue_offset
            for message in store.consumer("orders")
            if message.physical_offset // SEGMENT == segment
        ]


@pytest.mark.parametrize("segment", [1, 3])
@pytest.mark.parametrize("command", ["stat", "recover", "verify"])
def test_lost_messages_are_counted_once(
    invoke: Invoke, long_path: Path, command: str, segment: int
) -> None:
    gone = numbers_in(long_path, segment)
    log_file(long_path, segment).unlink()
    options: dict[str, tuple[object, ...]] = {
        "stat": (),
        "recover": ("--dry-run", "--force", *SHAPE),
        "verify": SHAPE,
    }
    found = json.loads(invoke(command, long_path, *options[command], "--json").stdout)
    report = found["recovery"] if command == "stat" else found
    assert sum(one["count"] for one in report["lost_messages"]) == len(gone)
    if command != "verify":
        assert len(report["missing"]) == 1
        words = invoke(command, long_path, *options[command]).stdout
        assert words.count(f"{gone[0]} … {gone[-1]}") == 1
        assert words.count(report["missing"][0].partition(";")[0]) == 1
        assert "missing segment" not in words


@pytest.mark.parametrize("segment", [1, 3])
def test_query_does_not_say_that_no_message_has_the_key(
    invoke: Invoke, long_path: Path, segment: int
) -> None:
    gone = numbers_in(long_path, segment)[3]
    assert invoke("query", long_path, "orders", f"k{gone}").exit_code == 0
    assert invoke("query", long_path, "orders", "none").exit_code == exit_codes.FAILED
    log_file(long_path, segment).unlink()
    result = invoke("query", long_path, "orders", f"k{gone}")
    assert result.exit_code == exit_codes.DAMAGED
    assert "missing" in result.stderr.splitlines()[-1]
    assert "no message of orders has the key" not in result.stderr
    assert invoke("query", long_path, "orders", "k0").exit_code == exit_codes.DAMAGED


def test_get_of_a_place_in_a_missing_segment_says_so(invoke: Invoke, long_path: Path) -> None:
    log_file(long_path, 1).unlink()
    result = invoke("get", long_path, SEGMENT + 100)
    assert result.exit_code == exit_codes.DAMAGED
    assert "missing segment (its file is not there)" in result.stderr


@pytest.mark.parametrize("segment", [1, 3])
def test_ship_says_what_is_not_there(
    invoke: Invoke, long_path: Path, tmp_path: Path, segment: int
) -> None:
    pytest.importorskip("pyarrow")
    gone = numbers_in(long_path, segment)
    log_file(long_path, segment).unlink()
    result = invoke("ship", long_path, tmp_path / "archive")
    assert result.exit_code == exit_codes.DAMAGED
    assert f"{len(gone)} messages that the queues know are not there" in result.stderr
    assert f"orders/0 {gone[0]} … {gone[-1]}" in result.stderr
    shipped = {path.name for path in (tmp_path / "archive").iterdir()} - {"manifest.json"}
    assert shipped == {log_file(long_path, number).name for number in {0, 1, 2} - {segment}}


def test_a_directory_in_the_place_of_a_segment_is_named(invoke: Invoke, long_path: Path) -> None:
    place = log_file(long_path, 1)
    place.unlink()
    place.mkdir()
    result = invoke("verify", long_path, *SHAPE)
    in_place = "no file, but it lies in place of one of the log: move it out"
    assert f"broker: {place} at 0: {in_place}" in result.stderr
    assert "move what lies in place of files of the log out of the store" in result.stderr
    for words in (("--dry-run",), ()):
        result = invoke("repair", "--fill-missing", *words, long_path, *SHAPE)
        assert result.exit_code == exit_codes.FAILED
        assert (
            f"{place}: a directory is in the place of a missing segment: move it" in result.stderr
        )
    place.rmdir()
    invoke("repair", "--fill-missing", long_path, *SHAPE)
    assert invoke("verify", long_path, *SHAPE).exit_code == 0


def test_a_log_of_another_program_that_begins_late_is_noticed(
    invoke: Invoke, long_path: Path
) -> None:
    """Nothing tells a lost first segment from a trimmed one there."""
    text = f"the log begins at {SEGMENT}, what lay in front counts as trimmed"
    shutil.rmtree(long_path / "rocketstore")
    (long_path / "lock").write_text("lock")
    assert text not in invoke("verify", long_path, *SHAPE).stderr
    log_file(long_path, 0).unlink()
    result = invoke("verify", long_path, *SHAPE)
    assert text in result.stderr
    assert "--commit-log-dir has to name all of them" in result.stderr


def test_a_log_without_a_checkpoint_that_begins_late_is_noticed(
    invoke: Invoke, long_path: Path
) -> None:
    """Our own log as well: the checkpoint is all that knows where it should begin."""
    (long_path / "rocketstore" / "checkpoint").unlink()
    log_file(long_path, 0).unlink()
    result = invoke("verify", long_path, *SHAPE)
    assert f"the log begins at {SEGMENT}, what lay in front counts as trimmed" in result.stderr
