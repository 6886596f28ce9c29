"""Compacted topics of RocketMQ 5, made here as format.md 12.2 says: no store of Java has any in the tests."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.format.codec import encode_properties, encode_record
from tests.support.small_store import open_small

UNIT = struct.Struct(">qiqqqhii")
#: Closes a file that ends early.
CLOSED = UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
LOG_BYTES = 4096


def record(place: int, queue_offset: int, key: str, queue_id: int = 0) -> bytes:
    return encode_record(
        topic="users",
        body=b"%d" % queue_offset,
        properties=encode_properties({"KEYS": key}),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=place,
        store_timestamp_ms=1_700_000_000_000 + queue_offset,
    )


def write_pair(root: Path, start: int, queue_offsets: list[int], queue_id: int = 0) -> Path:
    """A log file and a file of units with the same name; gives the former."""
    log, units = b"", b""
    for at in queue_offsets:
        made = record(start + len(log), at, f"k{at}", queue_id)
        units += UNIT.pack(start + len(log), len(made), 0, 0, at, 1, -1, 0)
        log += made
    found = []
    for kind, data in (("compactionLog", log.ljust(LOG_BYTES, b"\0")), ("compactionCq", units)):
        directory = root / "compaction" / kind / "users" / str(queue_id)
        directory.mkdir(parents=True, exist_ok=True)
        found.append(directory / f"{start:020d}")
        found[-1].write_bytes(data)
    with found[1].open("ab") as file:
        file.write(CLOSED + bytes(460))
    return found[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_small(tmp_path / "s"):
        pass
    return tmp_path / "s"


def test_messages_with_gaps_in_several_files(path: Path) -> None:
    write_pair(path, 0, [3, 4, 90])
    write_pair(path, LOG_BYTES, [91, 1000])
    write_pair(path, 0, [7], queue_id=2)
    half = path / "compaction" / "compactionCq" / "users" / "0" / "compacting"
    half.mkdir()
    (half / f"{0:020d}").write_bytes(b"\0" * 46)
    with open_small(path, "r") as store:
        found = [(one.queue_id, one.queue_offset, one.keys) for one in store.compacted("users")]
        only = [(one.queue_offset, one.body) for one in store.compacted("users", queue_id=2)]
    assert found == [(0, at, (f"k{at}",)) for at in (3, 4, 90, 91, 1000)] + [(2, 7, ("k7",))]
    assert only == [(7, b"7")]


def test_what_is_not_there(path: Path) -> None:
    log = write_pair(path, 0, [1])
    with open_small(path, "r") as store:
        with pytest.raises(rocketstore.QueueNotFoundError, match="no such compacted queue"):
            store.compacted("others")
        with pytest.raises(rocketstore.QueueNotFoundError, match="users/5"):
            store.compacted("users", queue_id=5)
        with pytest.raises(rocketstore.InvalidTopicError):
            store.compacted("../users")
        log.unlink()
        with pytest.raises(FileNotFoundError, match="records of a compacted queue"):
            list(store.compacted("users"))


@pytest.mark.parametrize("how", ["body", "unit", "outside"])
def test_damage(path: Path, how: str) -> None:
    log = write_pair(path, 0, [1, 2])
    units = path / "compaction" / "compactionCq" / "users" / "0" / log.name
    if how == "body":
        data = bytearray(log.read_bytes())
        data[88] ^= 1
        log.write_bytes(data)
    else:
        place = 0 if how == "unit" else LOG_BYTES * 2
        data = bytearray(units.read_bytes())
        data[46:54] = place.to_bytes(8, "big")
        units.write_bytes(data)
    with open_small(path, "r") as store, pytest.raises(rocketstore.CorruptRecordError):
        list(store.compacted("users"))
