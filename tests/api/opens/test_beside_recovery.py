"""Beside a recovery or rebuild each face answers in a bounded time, and names the process and how far it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore import StoreRecoveringError, tools
from rocketstore.engine import open as opening
from rocketstore.log.layout.lock import describe_recovery
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import State, recovery_progress
from tests.cli.conftest import Invoke, invoke
from tests.support.live_writer import LiveWriter

__all__ = ["invoke"]


@pytest.fixture
def recovering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWriter]:
    monkeypatch.setattr(opening, "RECOVERY_S", 0.05)
    monkeypatch.setattr(sys.modules["rocketstore.tools.verify"], "RECOVERY_S", 0.05)
    live = LiveWriter(tmp_path / "store")
    live.fill(5)
    live.page.begin()
    yield live
    live.close()


TOLD = r"is through 25 % of 40\.0 MiB of log"


def test_verify_beside_a_recovery(recovering: LiveWriter) -> None:
    """It walked what was half made, for minutes, and named faults that were none."""
    recovering.page.tell(10 << 20, 40 << 20)
    with pytest.raises(StoreRecoveringError, match=rf"{os.getpid()}.*{TOLD}.*verify it once"):
        tools.verify(recovering.layout.root)
    recovering.page.go_live()
    assert tools.verify(recovering.layout.root).writer == "live"


def test_a_recovery_that_begins_while_verify_walks(recovering: LiveWriter) -> None:
    recovering.page.go_live()

    def begins(what: str, done: int, total: int) -> None:
        recovering.page.begin()

    with pytest.raises(StoreRecoveringError, match=str(os.getpid())):
        tools.verify(recovering.layout.root, progress=begins)


def test_an_open_says_how_far_the_recovery_is(recovering: LiveWriter) -> None:
    with pytest.raises(StoreRecoveringError, match=r"took it \d+ s ago, recovers"):
        rocketstore.open(recovering.layout.root, "r")
    recovering.page.tell(10 << 20, 40 << 20)
    with pytest.raises(StoreRecoveringError, match=TOLD):
        rocketstore.open(recovering.layout.root, "r")
    recovering.page.go_live()
    assert recovering.page.state is State.LIVE
    assert recovery_progress(recovering.layout.positions) is None


COMMANDS = ("verify", "stat", "rebuild", "repair", "recover")
DRY = ("rebuild --dry-run", "repair --dry-run", "recover --dry-run")


@pytest.mark.parametrize("command", COMMANDS + DRY)
def test_commands_beside_a_recovery(recovering: LiveWriter, invoke: Invoke, command: str) -> None:
    """No exit code 0, no empty answer, no wait without an end."""
    done = invoke(*command.split(), recovering.layout.root)
    assert done.exit_code not in (0, 3), done.output
    assert str(os.getpid()) in done.stderr, done.output


@pytest.mark.parametrize("work", ["open", "rebuild"])
def test_recoveries_and_rebuilds_tell(tmp_path: Path, work: str) -> None:
    root, told = tmp_path / "store", []
    with rocketstore.open(root, commit_log_file_size_bytes=1 << 20) as store:
        writer = store.writer("t")
        for _ in range(50):
            writer.put(bytes(1000))
    (root / "abort").touch()

    def note(what: str, done: int, total: int) -> None:
        told.append(recovery_progress(root / "rocketstore" / "positions"))
        assert "% of" in describe_recovery(StoreLayout(root))

    if work == "rebuild":
        tools.rebuild(root, progress=note)
    else:
        rocketstore.open(root, on_recovery=note).close()
    assert told
    assert all(one is not None and 0 <= one[0] <= one[1] for one in told)
    assert recovery_progress(root / "rocketstore" / "positions") is None
