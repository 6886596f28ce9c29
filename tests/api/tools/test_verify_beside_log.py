"""Verify: key index, checkpoints, stored offsets."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from rocketstore.log.commitlog.checkpoint import OwnCheckpoint
from rocketstore.log.layout.lock import OUR_MARK
from rocketstore.tools import verify
from tests.support.made_store import MadeStore, rocketmq_store, write_at
from tests.support.verifying import check, faults


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        pytest.param(40 + 4 * 64 + 20 * 7 + 4, struct.pack(">q", 77), "points to 77", id="offset"),
        pytest.param(40 + 4 * 64 + 20 * 7, struct.pack(">i", 77), "without such a key", id="hash"),
        pytest.param(40 + 4 * 64 + 20 * 7 + 16, struct.pack(">i", 9), "leads on to 9", id="chain"),
        pytest.param(36, struct.pack(">i", 0x7FFFFFFF), "header or chains", id="count"),
    ],
)
def test_faults_of_the_index_are_found(tmp_path: Path, at: int, data: bytes, reason: str) -> None:
    root, _ = rocketmq_store("clean-533", tmp_path)
    path = min((root / "index").iterdir())
    write_at(path, at, data)
    found = [(name, text) for name, _, text in faults(check(root))]
    assert any(name == f"index/{path.name}" and reason in text for name, text in found), found


def test_what_is_no_index_file_is_named(tmp_path: Path) -> None:
    root, _ = rocketmq_store("clean-533", tmp_path)
    (root / "index" / "notes.txt").write_text("x")
    report = check(root)
    assert faults(report) == []  # RocketMQ goes on without it, and no command removes it
    [notice] = report.notices
    assert notice.file == str(root / "index" / "notes.txt") and "no index file" in notice.reason


def test_a_checkpoint_that_claims_too_much_is_found(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    made.fill(10)
    own = made.root / "rocketstore"
    own.mkdir()
    (own / "checkpoint").write_bytes(slot(made.end + 1, made.end) + bytes(4096))
    assert faults(verify(made.root)) == []  # another program wrote last: no open looks at it
    (made.root / "lock").write_bytes(OUR_MARK)
    assert faults(verify(made.root)) == [
        ("rocketstore/checkpoint", 0, f"flushed = {made.end + 1}, but the log ends at {made.end}")
    ]
    (own / "checkpoint").write_bytes(slot(made.end, made.end) + bytes(4096))
    assert verify(made.root).ok
    (own / "checkpoint").write_bytes(bytes(8192))
    assert faults(verify(made.root)) == [("rocketstore/checkpoint", 0, "no valid slot")]


def slot(flushed: int, dispatched: int) -> bytes:
    checkpoint = OwnCheckpoint(1, flushed, dispatched, segment_count=1)
    return checkpoint.packed()


def test_a_checkpoint_of_rocketmq_of_another_length_is_found(tmp_path: Path) -> None:
    root, _ = rocketmq_store("clean-533", tmp_path)
    with (root / "checkpoint").open("ab") as file:
        file.write(b"x")
    found = check(root)
    assert found.ok  # no program reads more of it, and no command would cut it
    os.truncate(root / "checkpoint", 4095)
    assert faults(check(root)) == [("checkpoint", 0, "4095 bytes, not 4096")]


def test_a_group_that_waits_beyond_its_queue_is_found(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    made.fill(10)
    config = made.root / "config"
    config.mkdir()
    path = config / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@billing":{0:10}}}')
    assert verify(made.root).ok
    path.write_text('{"offsetTable":{"orders@billing":{0:11}}}')
    found = faults(verify(made.root))
    assert [name for name, _, _ in found] == ["config/consumerOffset.json"]
    assert "billing stored 11 for orders/0, which ends at 10" in found[0][2]
