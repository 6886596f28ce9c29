"""`rocketstore/timers/state` with a right checksum and anything in it: it counts as far as the timer topic bears
it out, and an untrusted store does without."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore.services.delay.timer_table import ENTRY
from rocketstore.testing import ManualClock
from tests.services.timer_tools import put_at, saved, state_of
from tests.support.small_store import open_small

WAITING = [b"%d" % second for second in range(1, 9)]
#: What numbers and lists of numbers are replaced by.
OTHERS: dict[str, Any] = {
    "negative": -1, "far": 2**63 - 1, "beyond": 2**64, "text": "x", "null": None, "list": [],
    "a lot": [[]] * 9, "texts": ["a", None], "numbers": [2**64, -1], "float": 1.5, "true": True,
    "object": {}, "names": [["../../x", 1, 0, 0]], "twice": [[5, 3, 0]] * 2,
    "rows": [[1, 2, 3, 4, 5]], "far rows": [[0, 2**63 - 1, 0]], "big rows": [[2**64, 1, 0]],
}  # fmt: skip


def write(path: Path, document: Any) -> None:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    state_of(path).write_bytes(b"%08x\n" % zlib.crc32(text) + text)


def held(path: Path) -> Any:
    return json.loads(state_of(path).read_bytes().partition(b"\n")[2])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which messages wait, closed."""
    path = tmp_path_factory.mktemp("timers") / "s"
    with open_small(path, clock=ManualClock(1_800_000_000_000)) as store:
        for body in WAITING:
            put_at(store, body, 1000 + int(body))
        saved(store)
    return path


@pytest.fixture
def path(base: Path, tmp_path: Path) -> Path:
    return shutil.copytree(base, tmp_path / "s")


def waiting(path: Path, **options: Any) -> list[Any]:
    with rocketstore.open(path, "r", **options) as store:
        return [one.message.body for one in store.delayed]


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_other_types_is_read_from_the_topic(path: Path, other: str) -> None:
    """No error without a type, and nothing hidden."""
    names = [name for name in held(path) if name != "version"]
    for name in names:
        write(path, {**held(path), name: OTHERS[other]})
        fitting = OTHERS[other] == [] and name != "recent"
        assert waiting(path) == WAITING or (fitting and name == "log"), (name, OTHERS[other])


@pytest.mark.parametrize(
    "missing", ["next", "log", "runs", "recent", "gone", "undelivered", "copied"]
)
def test_a_state_that_lacks_something_is_read_from_the_topic(path: Path, missing: str) -> None:
    write(path, {name: value for name, value in held(path).items() if name != missing})
    assert waiting(path) == WAITING


@pytest.mark.parametrize(
    ("name", "value"), [("next", 2**62), ("undelivered", ["a", None]), ("copied", ["a", 2**64])]
)
def test_what_is_put_then_waits_and_is_stored(path: Path, name: str, value: object) -> None:
    """The thread of delays goes on, and no message lies below what a file says."""
    write(path, {**held(path), name: value})
    with open_small(path, clock=ManualClock(1_800_000_000_000)) as store:
        put_at(store, b"9", 1009)
        assert [one.message.body for one in store.delayed] == [*WAITING, b"9"]
        assert store.delayed.error is None
        saved(store)
    assert held(path)["next"] == 9
    assert held(path)["undelivered"] == held(path)["copied"] == []


BOMBS: dict[str, Callable[[Path], bytes]] = {
    "nested": lambda path: b"[" * 5_000_000,
    "lists": lambda path: b'{"version":1,"x":[' + b"[]," * 5_000_000 + b"[]]}",
    "recent": lambda path: json.dumps({**held(path), "recent": [[5, 1, 0]] * 60_000}).encode(),
    "gone": lambda path: json.dumps({**held(path), "gone": [1] * 290_000}).encode(),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_more_entries_than_the_topic_has_are_refused(path: Path, bomb: str) -> None:
    write(path, BOMBS[bomb](path))
    assert waiting(path) == WAITING


def run_of(path: Path, count: int, *, next_entry: int = 0, at: int | None = 1) -> list[int]:
    """A run of such entries, a hole with `at` None; its row in the state."""
    file = state_of(path).with_name(f"{7:020d}")
    data = bytes(count * ENTRY.itemsize)
    if at is None:
        file.touch()
        os.truncate(file, len(data))
    else:
        entries = np.zeros(count, ENTRY)
        entries["at"] = at
        file.write_bytes(data := entries.tobytes())
    return [7, count, zlib.crc32(data), next_entry]


@pytest.mark.parametrize(
    ("count", "next_entry", "at"),
    [(4_000_000, 0, None), (9, 0, 1), (3, 4, 1), (3, 2**64, 1), (2, 0, -1), (2, 0, 2**62)],
)
def test_a_run_has_entries_of_the_topic_only(
    path: Path, count: int, next_entry: int, at: int | None
) -> None:
    """A hole of any length is not gone through."""
    row = run_of(path, count, next_entry=next_entry, at=at)
    write(path, {**held(path), "runs": [row], "recent": []})
    assert waiting(path) == WAITING


def test_an_untrusted_store_finds_what_waits_in_its_log(path: Path) -> None:
    """A sound state that says of all that it has gone, and of all levels that they are delivered."""
    with rocketstore.open(path) as store:
        store.writer("orders").put(b"level", delay_level=18)
    write(path, {**held(path), "recent": [], "runs": []})
    levels = path / "config/delayOffset.json"
    levels.write_text('{"offsetTable":{18:1}}')
    assert waiting(path) == []
    assert waiting(path, untrusted=True) == [b"level", *WAITING]
