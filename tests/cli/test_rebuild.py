"""rebuild, on a store whose queues and index are gone, one that is in use, and a damaged one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.cli.conftest import SMALL, Invoke

SHAPE = ("--index-slots", 100, "--index-entries", 1000)


def test_what_was_lost_is_there_again(invoke: Invoke, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", **SMALL) as store:
        for number in range(30):
            store.writer("orders", queue_id=number % 2).put(b"%d" % number, keys=f"k{number}")
    shutil.rmtree(tmp_path / "s" / "consumequeue")
    shutil.rmtree(tmp_path / "s" / "index")
    result = invoke("rebuild", tmp_path / "s", "--workers", 2, *SHAPE)
    assert result.exit_code == exit_codes.OK, result.stderr
    assert "30 units in 2 queues and 1 index files" in result.stdout
    with rocketstore.open(tmp_path / "s", "r+", **SMALL) as store:
        assert store.recovery.mode == "clean"
        assert [m.body for m in store.query("orders", "k7")] == [b"7"]
        assert len(list(store.consumer("orders"))) == 30
        locked = invoke("rebuild", tmp_path / "s", *SHAPE)
        assert locked.exit_code == exit_codes.LOCKED
    found = json.loads(invoke("rebuild", tmp_path / "s", "--json", *SHAPE).stdout)
    assert (found["units"], found["queues"], found["odd"]) == (30, 2, "")


@pytest.mark.parametrize("size", [100, 300_000])
def test_damage_is_code_3(invoke: Invoke, tmp_path: Path, size: int) -> None:
    """At the end of the log, where the open reads, and in a file that only the rebuild reads."""
    with rocketstore.open(tmp_path / "s", **SMALL) as store:
        results = [store.writer("orders").put(b"x" * size) for _ in range(9)]
    segment, *more = sorted((tmp_path / "s" / "commitlog").iterdir())
    assert len(more) == (2 if size == 300_000 else 0)
    content = bytearray(segment.read_bytes())
    content[results[2].physical_offset + 4] ^= 0xFF
    segment.write_bytes(content)
    result = invoke("rebuild", tmp_path / "s", *SHAPE)
    assert result.exit_code == exit_codes.DAMAGED
    assert "rocketstore repair" in result.stderr
