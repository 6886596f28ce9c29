"""The transaction state table of RocketMQ 3.1; its files are made here, from format.md 11.4."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from rocketstore import Message, MessageNotFoundError
from rocketstore.services.transactions.state_table import (
    RedoEntry,
    StateEntry,
    group_hash,
    read_redo_log,
    read_state_table,
    rebuild,
)
from tests.support.paths import VECTORS

REDO = "transaction/redolog/TRANSACTION_REDOLOG_TOPIC_XXXX/0"
VECTOR = json.loads((VECTORS / "vectors.json").read_text())


def write(directory: Path, begin: int, slots: list[bytes], length: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{begin:020}").write_bytes(b"".join(slots).ljust(length, b"\0"))


def slot(at: int, state: int) -> bytes:
    return struct.pack(">qiiii", at, 203, 1_700_000_000, group_hash("pg"), state)


def test_a_prepared_record_finds_its_slot(tmp_path: Path) -> None:
    """S001-10 S001-73: the queue offset of a prepared record is the number of its slot."""
    (record,) = (one for one in VECTOR["records"] if one["id"] == "prepared_3x")
    prepared = Message.from_bytes(bytes.fromhex(record["hex"]))
    assert prepared.queue_offset == 42
    directory = tmp_path / "transaction/statetable"
    write(directory, 0, [slot(203 * n, 8) for n in range(40)], 960)
    write(directory, 960, [slot(9000, 4), slot(9300, 12), slot(9600, 4)], 960)
    table = {entry.slot: entry for entry in read_state_table(tmp_path)}
    found = table[prepared.queue_offset]
    assert (found.physical_offset, found.state) == (9600, "prepared")
    assert found.group_hash == group_hash(prepared.properties["PGROUP"])
    assert table[41].state == "rollback" and table[39].state == "commit"


def test_the_table_counts_whole_slots_and_ends_at_zeros(tmp_path: Path) -> None:
    """S001-78: the count is that of entries, not of bytes; zeros to the file's end are none."""
    vector = VECTOR["transaction_state_3x"]
    write(tmp_path / "transaction/statetable", 0, [bytes.fromhex(vector["hex"])] * 3, 240)
    entries = list(read_state_table(tmp_path))
    assert [entry.slot for entry in entries] == [0, 1, 2]
    assert all(bytes(entry).hex() == vector["hex"] for entry in entries)
    fields = vector["fields"]
    assert entries[0].store_time_s == fields["store_seconds"]
    assert (entries[0].size, entries[0].group_hash) == (fields["size"], fields["group_hash"])
    assert group_hash("pg") == fields["group_hash"]
    assert list(read_state_table(tmp_path / "none")) == []


def test_the_table_is_rebuilt_from_the_redo_log(tmp_path: Path) -> None:
    """S001-80: the service of 3.1 rebuilds the table after a crash: one slot for each open one."""
    units = [(0, 203, -1), (203, 203, -1), (406, 180, 0), (586, 203, -1), (789, 203, -1)]
    write(tmp_path / REDO, 0, [struct.pack(">qiq", *unit) for unit in units], 200)
    redo = list(read_redo_log(tmp_path))
    assert redo[2] == RedoEntry(406, 180, 0) and len(redo) == 5

    def details(entry: RedoEntry) -> tuple[int, str]:
        if entry.physical_offset == 586:
            raise MessageNotFoundError("trimmed")
        return 1_700_000_000_999, "pg"

    hashed = group_hash("pg")
    assert rebuild(redo, details) == [
        StateEntry(0, 203, 203, 1_700_000_000, hashed, "prepared"),
        StateEntry(1, 789, 203, 1_700_000_000, hashed, "prepared"),
    ]


def test_a_gap_or_a_torn_slot_ends_the_table(tmp_path: Path) -> None:
    directory = tmp_path / "transaction/statetable"
    write(directory, 0, [slot(0, 4), slot(203, 4)], 48)
    write(directory, 72, [slot(500, 4)], 24)
    assert [entry.physical_offset for entry in read_state_table(tmp_path)] == [0, 203]
    write(directory, 0, [slot(0, 4), slot(203, 4)[:20]], 44)
    assert [entry.physical_offset for entry in read_state_table(tmp_path)] == [0]
    write(directory, 0, [slot(0, 4), slot(203, 5)], 48)
    assert [entry.physical_offset for entry in read_state_table(tmp_path)] == [0]
