"""Words of messages to users."""

from __future__ import annotations

from pathlib import Path

from rocketstore.tools import verify
from rocketstore.values.plural import counted
from tests.support.made_store import MadeStore


def test_one_and_many() -> None:
    assert [counted(n, "record") for n in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
    assert [counted(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]


def test_a_report_of_one(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    made.fill(1)
    assert "1 record in 1 file, 1 unit in 1 queue, " in str(verify(made.root))
