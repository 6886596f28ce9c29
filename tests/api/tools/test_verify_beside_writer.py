"""Verifying an index that a writer goes on with."""

from __future__ import annotations

from pathlib import Path

import rocketstore
from rocketstore.tools import verify
from tests.support.made_store import write_at
from tests.support.small_store import dispatched


def test_keys_that_are_put_meanwhile_are_no_fault(tmp_path: Path) -> None:
    """The header of an index as a walk saw it that began seven keys ago."""
    shape = {"index_slots": 8, "index_entries": 64}
    with rocketstore.open(tmp_path / "store", commit_log_file_size_bytes=1 << 16, **shape) as store:
        writer = store.writer("orders", queue_id=0)
        for number in range(30):
            writer.put(b"x", keys=f"k{number % 13}")
        dispatched(store)
        (path,) = (tmp_path / "store" / "index").iterdir()
        count = path.read_bytes()[36:40]
        assert int.from_bytes(count, "big") == 31
        write_at(path, 36, (24).to_bytes(4, "big"))
        report = verify(tmp_path / "store", **shape)
        assert report.writer == "live"
        # The writer says that it has indexed them, so the seven are named, and nothing else is.
        assert [(fault.code, fault.position) for fault in report.faults] == [("keys", 0)]
        assert "no entry of 7 records" in report.faults[0].reason
        assert report.counts.index_entries == 23
        write_at(path, 40 + 4 * 8 + 20 * 5 + 16, b"\x7f")
        assert not verify(tmp_path / "store", **shape).ok
        write_at(path, 40 + 4 * 8 + 20 * 5 + 16, b"\0")
        write_at(path, 36, count)
    assert verify(tmp_path / "store", **shape).ok
