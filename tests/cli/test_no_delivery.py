"""Commands and tools that look at a store, or mend it, leave delayed messages to the program that owns it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstore import tools
from rocketstore.services import delay
from tests.cli.conftest import SMALL, Invoke
from tests.services.delay_tools import TOPIC, bodies
from tests.support.small_store import log_bytes, open_small
from tests.support.waiting import wait_until

LINES = "x\n"


def commands(path: Path) -> dict[str, list[object]]:
    return {
        "stat": ["stat", path],
        "verify": ["verify", path],
        "recover": ["recover", path],
        "repair": ["repair", path],
        "rebuild": ["rebuild", path],
        "trim": ["trim", path, "--max-bytes", "1GiB"],
        "tail": ["tail", path, "orders"],
        "query": ["query", path, TOPIC, "k"],
        "get": ["get", path, "0"],
        "ingest": ["ingest", path, "-", "--topic", "other"],
    }


@pytest.fixture
def due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in which a message is due, and where a delivery that begins fails the test."""
    path = tmp_path / "store"
    with open_small(path, deliver_delayed=False, delay_levels="1s 2s", **SMALL) as store:
        store.put_message("orders", b"due", properties={"DELAY": "1"})
        store.writer("plain").put(b"plain")
    return path


def forbid(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    began: list[object] = []

    def begin(engine: Any) -> None:
        began.append(engine)

    monkeypatch.setattr(delay, "deliver_in", begin)
    return began


def test_the_net_holds(due: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other open for writing begins delivery: these tests would see it."""
    began = forbid(monkeypatch)
    open_small(due, "r+", **SMALL).close()
    assert len(began) == 1


@pytest.mark.parametrize("name", commands(Path()))
def test_no_command_delivers(
    due: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before, began = log_bytes(due), forbid(monkeypatch)
    done = invoke(*commands(due)[name], input=LINES)
    assert done.exit_code in (0, 1), (done.output, done.exception)
    assert began == []
    if name != "ingest":
        assert log_bytes(due) == before
    with open_small(due, "r", **SMALL) as store:
        assert len(store.delayed) == 1
        assert bodies(store) == []


def broken(path: Path) -> int:
    """Changes a byte of the body of the message that does not wait."""
    file = min((path / "commitlog").iterdir())
    at = file.read_bytes().index(b"plain")
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"P")
    return at


@pytest.mark.parametrize("mend", [tools.repair, tools.rebuild], ids=lambda it: str(it.__name__))
def test_no_tool_delivers(
    due: Path, monkeypatch: pytest.MonkeyPatch, mend: Callable[..., object]
) -> None:
    began = forbid(monkeypatch)
    if mend is tools.repair:
        broken(due)
    mend(due, **SMALL)
    assert began == []
    monkeypatch.undo()
    with open_small(due, "r", **SMALL) as store:
        assert len(store.delayed) == 1
    with open_small(due, **SMALL) as store:
        wait_until(lambda: bodies(store) == [b"due"])
