"""Verify: the quick way over a log, in parts on all cores, finds what the thorough one finds."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from rocketstore.tools import verify
from tests.support.made_store import MadeStore, rocketmq_store, write_at
from tests.support.small_store import open_small, segments, store_group_offset
from tests.support.verifying import STORES, check, faults

# The function of the same name stands in front of it in the package.
MODULE = importlib.import_module("rocketstore.tools.verify")
LOG_MODULE = importlib.import_module("rocketstore.tools._verify.log")


@pytest.mark.parametrize("part_bytes", [200, 1000, 3000])
@pytest.mark.parametrize("name", STORES)
def test_a_log_in_parts_is_the_log(
    name: str, part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts begin where a record can be believed, so that all cores can look at one file."""
    root, _ = rocketmq_store(name, tmp_path)
    whole = check(root)
    monkeypatch.setattr(LOG_MODULE, "PART_BYTES", part_bytes)
    assert check(root) == whole


def test_a_body_that_looks_like_a_record_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that begins inside of a message is no part: the log is looked at record by record then."""
    made = MadeStore(tmp_path / "store", segment_size=1 << 16, record_crc=False)
    for _ in range(4):
        made.fill(4)
        made.put_lookalike()
        made.dispatch()
    scanned: list[object] = []
    scan_log = LOG_MODULE.scan_log
    monkeypatch.setattr(
        MODULE, "scan_log", lambda *given: scanned.append(scan_log(*given)) or scanned[-1]
    )
    assert verify(made.root).counts.records == 20
    assert scanned.pop() is not None
    for part_bytes in range(200, 900, 20):
        monkeypatch.setattr(LOG_MODULE, "PART_BYTES", part_bytes)
        report = verify(made.root)
        assert report.ok
        assert report.counts.records == 20
    assert None in scanned


@pytest.mark.parametrize("name", STORES)
def test_the_quick_way_finds_what_the_thorough_one_finds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = rocketmq_store(name, tmp_path)
    quick = check(root)
    monkeypatch.setattr(MODULE, "scan_log", lambda *_: None)
    assert check(root) == quick


def test_a_sound_store_takes_the_quick_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeStore(tmp_path / "store")
    made.fill(60)
    monkeypatch.delattr(MODULE, "walk_log")
    assert verify(made.root).ok


def test_a_gap_up_to_the_offset_of_a_group_is_no_fault(root: Path) -> None:
    """D-17: pre-blanks stand there. Nor is it one where another fault makes every record be looked at."""
    with open_small(root) as store:
        store.writer("orders").put(b"first")
    with open_small(root) as store:
        store_group_offset(store, "orders", 5)
        store.writer("orders").put(b"behind")
        other = store.writer("others").put(b"x" * 50)
    assert verify(root).ok
    write_at(segments(root)[0], other.physical_offset + 100, b"\xff\xff")
    assert {fault.position for fault in verify(root).faults} == {other.physical_offset}


@pytest.mark.parametrize("text", [b"", b'{"offsetTable":{"orders@g":{0:1', b"[]"])
def test_offsets_that_cannot_be_read_are_a_fault(text: bytes, root: Path) -> None:
    """Unless the copy of before can: RocketMQ reads that then, and so does the store."""
    with open_small(root) as store:
        store.writer("orders").put(b"x")
        store_group_offset(store, "orders", 1)
    assert verify(root).ok
    path = root / "config" / "consumerOffset.json"
    whole, copy = path.read_bytes(), path.with_name(path.name + ".bak")
    copy.unlink(missing_ok=True)
    path.write_bytes(text)
    [fault] = verify(root).faults
    assert fault.file == str(path) and "all groups start over" in fault.reason
    copy.write_bytes(whole)
    assert verify(root).ok == (text != b"[]")  # which is JSON: the copy is not looked at


def test_a_log_of_nothing_but_an_empty_file(tmp_path: Path) -> None:
    """RocketMQ leaves it when it is killed between making its first file and giving it its size."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").touch()
    assert faults(verify(tmp_path)) == [
        (f"commitlog/{0:020d}", 0, "0 bytes at 0; before 5.0 RocketMQ refuses to start")
    ]
