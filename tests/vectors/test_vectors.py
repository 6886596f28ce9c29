"""The golden bytes of `vectors/vectors.json`, one row a case, and the records of the stores that
RocketMQ wrote. Groups that belong to one part are tested beside it; the tables below say where,
and how many cases each group has, so that none is forgotten."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
from typing import Any

import pytest

from tests.support.log_records import judge_record
from rocketstore._native.format import codec
from rocketstore.errors import CorruptRecordError
from tests.support.paths import TESTS

pytestmark = pytest.mark.quick

STORES = TESTS / "vectors" / "stores"
VECTORS: dict[str, Any] = json.loads((TESTS / "vectors" / "vectors.json").read_text())

#: Cases of each group: list lengths, or entries of the object of that name.
COUNTS = {
    "records": 33,
    "bad_records": 17,
    "batch.records_hex": 3,
    "crc32": 5,
    "tags": 12,
    "properties": 10,
    "message_ids": 2,
    "queue.entries": 6,
    "queue.extension_unit": 3,
    "queue.batch_entry": 2,
    "index.keys": 9,
    "index.files": 3,
    "checkpoints": 2,
    "mini_store.files": 7,
    "mini_store.reads": 9,
    "mini_store.scenarios": 16,
    "pre_blank": 2,
    "time_lookup.rows": 12,
    "mixed_versions": 4,
    "transaction_state_3x": 2,
    "timer": 5,
    "text_files": 5,
    "replication": 3,
}
#: Groups tested elsewhere: file::function. An empty text: its part has no such test yet.
ELSEWHERE = {
    "queue.entries": "unit/test_queue_file.py::test_units_are_rocketmqs",
    "index.keys": "unit/test_index_file.py::test_key_hashes_are_rocketmqs",
    "index.files": "unit/test_index_file.py::test_files_are_rocketmqs_byte_for_byte",
    "checkpoints": "unit/test_rocketmq_checkpoint.py::test_rocketmqs_bytes_are_read_and_written",
    "mini_store.reads": (
        "log/read/test_reader.py::test_statuses_and_next_offsets_are_those_of_rocketmq"
    ),
    "mini_store.scenarios": (
        "log/recovery/test_recovery_stores.py::test_every_scenario_is_tested"
    ),
    "pre_blank": (
        "log/read/test_reader.py::test_behind_pre_blanks_the_first_message_is_the_minimum"
    ),
    "time_lookup.rows": "log/read/test_time_search.py::test_lower_bound_is_that_of_rocketmq_5",
}
#: Files and messages that rocketstore does not handle.
NOT_BUILT = {
    "queue.extension_unit": "extension files (format.md 6.5)",
    "queue.batch_entry": "batch consume queues (6.6)",
    "transaction_state_3x": "the state table of 3.x (11.4)",
    "timer": "timer wheel and timer log (10.4, 10.5)",
    "text_files": "side files of the controller and of compaction (1.4, 12.2, 13.3)",
    "replication": "the replication wire (13.1)",
}
#: Groups with a test in this file.
HERE = {
    "records",
    "bad_records",
    "batch.records_hex",
    "crc32",
    "tags",
    "properties",
    "message_ids",
    "mini_store.files",
    "mixed_versions",
}


def group(name: str) -> Any:
    found: Any = VECTORS
    for part in name.split("."):
        found = found[part]
    return found


def test_they_are_what_their_program_makes() -> None:
    program = TESTS / "vectors" / "make_vectors.py"
    assert subprocess.run([sys.executable, program, "--check"], check=False).returncode == 0


def test_each_group_has_exactly_its_cases() -> None:
    assert {name: len(group(name)) for name in COUNTS} == COUNTS
    print("cases:", ", ".join(f"{name} {count}" for name, count in COUNTS.items()))


def test_no_group_is_forgotten() -> None:
    assert sorted([*HERE, *ELSEWHERE, *NOT_BUILT]) == sorted(COUNTS)
    assert {name.split(".")[0] for name in COUNTS} == set(VECTORS) - {"about"}


@pytest.mark.parametrize("name", [name for name, where in ELSEWHERE.items() if where])
def test_the_test_elsewhere_exists_and_reads_the_group(name: str) -> None:
    file, _, function = ELSEWHERE[name].partition("::")
    text = (TESTS / file).read_text()
    assert re.search(rf"^def {function}\(", text, re.MULTILINE)
    assert all(f'"{part}"' in text for part in name.split("."))


def encode(fields: dict[str, Any], record_crc: bool) -> bytes:
    return codec.encode_record(
        topic=fields["topic"],
        body=bytes.fromhex(fields["body"]),
        properties=fields["properties"].encode(),
        queue_id=fields["queue_id"],
        flag=fields["flag"],
        queue_offset=fields["queue_offset"],
        physical_offset=fields["physical_offset"],
        sys_flag=fields["sys_flag"],
        born_timestamp_ms=fields["born_ms"],
        born_host=fields["born_host"],
        store_timestamp_ms=fields["store_ms"],
        store_host=fields["store_host"],
        reconsume_times=fields["reconsume_times"],
        prepared_transaction_offset=fields["prepared_offset"],
        record_crc=record_crc,
    )


RECORD_CRC = {"property_crc", "property_crc_alone"}


def by_id(row: dict[str, Any]) -> str:
    return str(row["id"])


@pytest.mark.parametrize("row", VECTORS["records"], ids=by_id)
def test_a_record_is_encoded_as_rocketmq_does(row: dict[str, Any]) -> None:
    """S000-10 S000-11 S000-12 S000-13 S000-14 S000-15 S000-16 S000-17 S000-18 S000-19 S000-73
    S001-05 S001-07 S001-11 S001-12 S001-13 S001-14 S001-15 S001-16 S004-63: fields, order, sizes."""
    assert encode(row["fields"], row["id"] in RECORD_CRC).hex() == row["hex"]


@pytest.mark.parametrize("row", VECTORS["records"], ids=by_id)
def test_a_record_is_decoded_to_its_fields(row: dict[str, Any]) -> None:
    """S003-12: whatever a message has comes back."""
    fields = row["fields"]
    decoded = codec.decode_record(bytes.fromhex(row["hex"]), fields["physical_offset"])
    properties = codec.decode_properties(decoded["properties"])
    assert (properties.pop("__CRC32#", None) is not None) == (row["id"] in RECORD_CRC)
    assert properties == row["parsed_properties"]
    assert (decoded["record_crc"] is not None) == (row["id"] in RECORD_CRC)
    assert decoded["message_id"] == row["message_id"]
    assert decoded["body"].hex() == fields["body"]
    own_text = len(fields["properties"].encode())
    assert decoded["properties"][:own_text] == fields["properties"].encode()
    plain = {
        "topic": "topic",
        "queue_id": "queue_id",
        "flag": "flag",
        "queue_offset": "queue_offset",
        "physical_offset": "physical_offset",
        "sys_flag": "sys_flag",
        "born_timestamp_ms": "born_ms",
        "born_host": "born_host",
        "store_timestamp_ms": "store_ms",
        "store_host": "store_host",
        "reconsume_times": "reconsume_times",
        "prepared_transaction_offset": "prepared_offset",
        "magic": "magic",
        "body_crc": "body_crc",
        "total_size": "total_size",
    }
    assert {a: decoded[a] for a in plain} == {a: fields[b] for a, b in plain.items()}  # type: ignore[literal-required]


@pytest.mark.parametrize("row", VECTORS["records"], ids=by_id)
def test_the_tags_code_of_a_record(row: dict[str, Any]) -> None:
    """The delivery time of a delayed record is the dispatcher's; all others hash their TAGS."""
    if row["fields"]["topic"] == "SCHEDULE_TOPIC_XXXX":
        assert row["tags_code"] > 1_600_000_000_000
        return
    assert codec.tags_code(row["parsed_properties"].get("TAGS", "")) == row["tags_code"]


#: What we call each bad record. RocketMQ refuses or accepts as `success` says, except for one row:
#: it rejects a record for an unreadable DELAY, which we judge at dispatch, not as damage.
JUDGED = {
    "good": "ok",
    "blank": "blank",
    "blank_8": "blank",
    "zeros": "zeros",
    "bad_magic": "magic",
    "bad_crc_field": "body crc",
    "bad_body": "body crc",
    "size_plus_1": "length",
    "size_negative": "length",
    "size_small": "length",
    "truncated": "truncated",
    "cut_in_header": "truncated",
    "topic_length_128": "length",
    "body_length_huge": "length",
    "properties_32768": "properties",
    "delay_not_a_number": "ok",
    "moved": "ok",
}


@pytest.mark.parametrize("row", VECTORS["bad_records"], ids=by_id)
def test_a_bad_record_is_judged_by_the_first_rule_it_breaks(row: dict[str, Any]) -> None:
    """S001-24 S001-25: a size for what is whole, none for anything else."""
    data = bytes.fromhex(row["hex"])
    name, size = judge_record(data)
    assert name == JUDGED[row["id"]]
    assert size == (len(data) if name in ("ok", "blank") else -1)
    if row["id"] != "delay_not_a_number":
        assert (name in ("ok", "blank")) == row["success"]


def test_a_moved_record_is_noticed_by_its_place() -> None:
    """Q-12: RocketMQ never compares the physical offset."""
    [row] = [row for row in VECTORS["bad_records"] if row["id"] == "moved"]
    data = bytes.fromhex(row["hex"])
    assert codec.decode_record(data)["physical_offset"] != 0
    with pytest.raises(CorruptRecordError, match="physical offset"):
        codec.decode_record(data, 0)


@pytest.mark.parametrize("row", VECTORS["crc32"], ids=lambda row: row["hex"][:8] or "empty")
def test_crc32(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["hex"])
    assert codec.crc31(data) == row["crc"]
    for kernel in codec.crc_kernels():
        assert codec.crc32(data, 0, kernel) & 0x7FFFFFFF == row["crc"]


@pytest.mark.parametrize("row", VECTORS["tags"], ids=lambda row: row["tags"])
def test_tags(row: dict[str, Any]) -> None:
    code = codec.tags_code(row["tags"])
    assert codec.java_hash(row["tags"]) == row["java_hash"]
    assert code.to_bytes(8, "big", signed=True).hex() == row["tags_code_hex"]


@pytest.mark.parametrize("row", VECTORS["properties"], ids=lambda row: ascii(row["text"]))
def test_properties(row: dict[str, Any]) -> None:
    assert codec.decode_properties(row["text"].encode()) == row["parsed"]


@pytest.mark.parametrize("row", VECTORS["message_ids"], ids=by_id)
def test_message_ids(row: dict[str, Any]) -> None:
    """S000-68 S001-71 S004-64: host and offset in hexadecimal, longer for IPv6."""
    assert codec.message_id(row["store_host"], row["physical_offset"]) == row["id"]


def walk(log: bytes, start: int) -> tuple[list[int], str, int]:
    """Offsets of the records of one file, and how and where it ends."""
    offsets: list[int] = []
    position = 0
    while True:
        name, size = judge_record(log[position:], start + position)
        if name != "ok":
            return offsets, name, start + position
        offsets.append(start + position)
        position += size


def test_the_log_of_the_small_store_is_25_records() -> None:
    """S000-08 S000-09: messages back to back, then one blank."""
    found = {}
    for path, content in VECTORS["mini_store"]["files"].items():
        if path.startswith("commitlog/"):
            log = bytes.fromhex(content["hex"]).ljust(content["size"], b"\0")
            offsets, name, end = walk(log, int(path[-20:]))
            found[path[-4:]] = (len(offsets), name, end)
    assert found == {
        "0000": (10, "blank", 1000),
        "1024": (10, "blank", 2024),
        "2048": (5, "zeros", 2548),
    }


def test_a_log_of_both_record_versions_is_read_to_its_end() -> None:
    """RocketMQ before 5.1 ends at the first V2 record and cuts the rest away (Q-40)."""
    row = VECTORS["mixed_versions"]
    log = bytes.fromhex(row["log_hex"]).ljust(row["file_size"], b"\0")
    offsets, name, end = walk(log, 0)
    assert (name, end) == ("zeros", row["log_max_5.3.3"])
    assert offsets[1] == row["log_max_4.9.8"]
    assert codec.decode_record(log[offsets[1] :])["magic"] == 0xDAA320AB


def rocketmq_log(name: str) -> dict[int, bytes]:
    """Commit log files of a store that RocketMQ wrote, by their start."""
    files = {}
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.startswith("commitlog/"):
                extracted = archive.extractfile(member)
                assert extracted is not None
                files[int(member.name[-20:])] = extracted.read()
    return files


@pytest.mark.parametrize("name", sorted(p.name[:-7] for p in STORES.glob("*.tar.xz")))
def test_every_acknowledged_record_of_a_real_store_is_decoded(name: str) -> None:
    """The records that RocketMQ 4.9.8 and 5.3.3 acknowledged, field by field."""
    expected = json.loads((STORES / f"{name}.expect.json").read_text())
    files = rocketmq_log(name)
    size = len(next(iter(files.values())))
    lost = {*expected["must_not"]["damaged"], *expected["must_not"]["stale"]}
    seen = 0
    for acked in expected["acked"]:
        offset = acked["physical_offset"]
        log = files.get(offset - offset % size)
        if offset in lost or log is None:
            continue
        seen += 1
        decoded = codec.decode_record(log[offset % size :], offset)
        properties = codec.decode_properties(decoded["properties"])
        properties.pop("__CRC32#", None)
        assert properties == acked["properties"]
        assert hashlib.sha1(decoded["body"]).hexdigest() == acked["body_sha1"]
        assert decoded["total_size"] == acked["size"]
        assert (decoded["record_crc"] is not None) == name.startswith("record-crc")
        same = {
            "topic": "topic",
            "queue_id": "queue_id",
            "flag": "flag",
            "sys_flag": "sys_flag",
            "born_timestamp_ms": "born_ts",
            "store_timestamp_ms": "store_ts",
            "reconsume_times": "reconsume",
            "prepared_transaction_offset": "prepared_offset",
            "queue_offset": "queue_offset",
            "body_crc": "body_crc",
            "message_id": "msg_id",
        }
        assert {a: decoded[a] for a in same} == {a: acked[b] for a, b in same.items()}  # type: ignore[literal-required]
        for host in ("born_host", "store_host"):  # Java does not shorten runs of zeros
            assert decoded[host] == codec.unpack_host(codec.pack_host(acked[host]))
    assert seen > 0
