"""follow: to the end of a master's log, on and on, and where it cannot go on."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.cli import exit_codes
from tests.cli.conftest import Invoke, Start
from tests.replication.copies import address_of, open_copy, open_master, put_some, same_log
from tests.support.small_store import SEGMENT
from tests.support.waiting import wait_until

#: As `SMALL`, for a command.
SIZE = ("--segment-bytes", SEGMENT)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Store]:
    with open_master(tmp_path / "m") as opened:
        put_some(opened)
        yield opened


def test_once_ends_with_all_that_the_master_has(
    invoke: Invoke, tmp_path: Path, master: Store
) -> None:
    result = invoke("follow", address_of(master), tmp_path / "c", "--once", "--json", *SIZE)
    assert result.exit_code == exit_codes.OK, result.stderr
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["connected"]
    assert (last["synced"], last["lag_bytes"], last["error"]) == (master.visible_offset, 0, None)
    same_log(tmp_path / "m", tmp_path / "c")


def test_it_goes_on_until_a_signal(start: Start, tmp_path: Path, master: Store) -> None:
    """Another process reads the copy while it grows; the stop is a clean one."""
    process = start("follow", address_of(master), tmp_path / "c", *SIZE)
    assert process.stdout is not None
    while " behind" not in process.stdout.readline():
        pass
    with rocketstore.open(tmp_path / "c", "r") as reader:
        put_some(master)
        wait_until(lambda: reader.visible_offset == master.visible_offset)
        assert sum(1 for _ in reader.consumer("orders")) == 80
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == exit_codes.INTERRUPTED
    with rocketstore.open(tmp_path / "c", "r") as reader:
        assert reader.recovery.mode == "clean"


def test_copy_of_another_store(invoke: Invoke, tmp_path: Path, master: Store) -> None:
    with open_master(tmp_path / "n") as other, open_copy(tmp_path / "c", other) as copy:
        put_some(other, 3)
        wait_until(lambda: copy.visible_offset == other.visible_offset)
    result = invoke("follow", address_of(master), tmp_path / "c", *SIZE)
    assert result.exit_code == exit_codes.DAMAGED
    assert "different stores" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "host:port"),
        (("127.0.0.1:1", "--begin", "youngest"), "oldest, 'last file', or a physical offset"),
        (("127.0.0.1:1", "--begin", "4096"), "begin"),
    ],
)
def test_wrong_words(invoke: Invoke, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = invoke("follow", words[0], tmp_path / "c", *words[1:])
    assert result.exit_code in (exit_codes.FAILED, exit_codes.USAGE)
    assert said in result.stderr
    assert not (tmp_path / "c").exists()
