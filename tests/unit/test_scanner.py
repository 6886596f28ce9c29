"""Messages: every field, lazily; and following queue units to them (format 15.2, equation 9)."""

from __future__ import annotations

import copy
import datetime
import gc
import json
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format import codec
from rocketstore._native.format.scanner import VERIFY_LENIENT, Message, read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.mapping import mapped_files
from rocketstore.errors import CorruptRecordError, OffsetOutOfRangeError
from tests.support import paths
from tests.unit.conftest import record

VECTORS = json.loads((paths.VECTORS / "vectors.json").read_text())
START = 4096
SEGMENT = 4096
UNITS = 64


def encode(physical_offset: int, queue_offset: int = 0, **fields: Any) -> bytes:
    properties = codec.encode_properties({"TAGS": "paid", "KEYS": f"k{queue_offset} all"})
    values = {"body": b"body %d" % queue_offset, "properties": properties, **fields}
    return record(physical_offset, queue_offset=queue_offset, **values)


def file_of(data: bytes, start: int = START) -> MappedFile:
    file = MappedFile.anonymous(start, SEGMENT)
    file.write(0, data)
    return file


# ---- messages ----


@pytest.mark.parametrize("row", VECTORS["records"], ids=lambda row: row["id"])
def test_fields_of_every_known_record(row: dict[str, Any]) -> None:
    """S000-69: its place in the log and the id of its client are two ids."""
    message = Message.from_bytes(bytes.fromhex(row["hex"]))
    fields = row["fields"]
    found = {
        "topic": message.topic,
        "body": message.body.hex(),
        "queue_id": message.queue_id,
        "flag": message.flag,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "sys_flag": message.sys_flag,
        "born_ms": message.born_timestamp_ms,
        "born_host": message.born_host,
        "store_ms": message.store_timestamp_ms,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_offset": message.prepared_transaction_offset,
        "total_size": message.size,
    }
    assert found == {name: fields[name] for name in found}
    properties = dict(row["parsed_properties"])
    properties.pop("__CRC32#", None)
    assert message.properties == properties
    assert message.message_id == row["message_id"]
    assert message.tags == properties.get("TAGS")
    assert message.unique_id == properties.get("UNIQ_KEY")
    assert message.keys == tuple(properties.get("KEYS", "").split())
    if properties.get("DELAY") is None:
        assert message.tags_code == row["tags_code"]


@pytest.mark.parametrize("store_host", ["192.168.0.9:10911", "[fe80::9]:99"])
@pytest.mark.parametrize("born_host", ["10.1.2.3:54321", "[2001:db8::1]:80"])
def test_hosts_of_either_size_and_what_stands_behind_them(born_host: str, store_host: str) -> None:
    record = encode(
        0, born_host=born_host, store_host=store_host, store_timestamp_ms=77, reconsume_times=5,
        prepared_transaction_offset=-9, body=b"body",
    )  # fmt: skip
    message = Message.from_bytes(record)
    assert (message.born_host, message.store_host) == (born_host, store_host)
    assert (message.store_timestamp_ms, message.reconsume_times) == (77, 5)
    assert (message.prepared_transaction_offset, message.body) == (-9, b"body")
    assert message.message_id == codec.decode_record(record)["message_id"]


def test_times_are_aware() -> None:
    message = Message.from_bytes(encode(0))
    assert message.born_time == datetime.datetime(2020, 9, 13, 12, 26, 40, tzinfo=datetime.UTC)
    assert message.store_time.microsecond == 1000
    assert message.store_time.utcoffset() == datetime.timedelta(0)


def test_time_that_no_calendar_has() -> None:
    message = Message.from_bytes(encode(0, born_timestamp_ms=1 << 62))
    assert message.born_timestamp_ms == 1 << 62
    with pytest.raises(OverflowError):
        _ = message.born_time


def test_no_tags_and_no_keys() -> None:
    message = Message.from_bytes(encode(0, properties=b""))
    assert (message.tags, message.keys, message.unique_id) == (None, (), None)
    assert (message.tags_code, message.properties) == (0, {})


def test_text_that_is_not_utf8_is_replaced() -> None:
    message = Message.from_bytes(encode(0, topic=b"t\xff", properties=b"a\x01\xc3\x02"))
    assert message.topic == "t\ufffd"
    assert message.properties == {"a": "\ufffd"}


def test_properties_are_a_new_dict_each_time() -> None:
    message = Message.from_bytes(encode(0))
    message.properties["mine"] = "x"
    assert "mine" not in message.properties


@pytest.mark.parametrize("cut", [0, 1, 50, -1])
def test_part_of_a_record_is_no_message(cut: int) -> None:
    with pytest.raises(CorruptRecordError):
        Message.from_bytes(encode(0)[:cut])


def test_more_than_a_record_is_no_message() -> None:
    with pytest.raises(CorruptRecordError, match="length"):
        Message.from_bytes(encode(0) + b"x")


def test_checksums_are_tested_unless_told_not_to() -> None:
    data = bytearray(encode(7))
    data[88] ^= 1
    with pytest.raises(CorruptRecordError) as caught:
        Message.from_bytes(data)
    assert (caught.value.physical_offset, caught.value.reason) == (7, "body crc")
    assert Message.from_bytes(data, verify=False).body[0] == data[88]


def test_message_does_not_follow_its_bytes() -> None:
    data = bytearray(encode(0))
    message = Message.from_bytes(memoryview(data))
    data[88:] = bytes(len(data) - 88)
    assert message.body == b"body 0"


def test_messages_are_equal_by_value() -> None:
    data = encode(START)
    message = read_message(file_of(data), 0, SEGMENT, verify=3)
    same = Message.from_bytes(data)
    other = Message.from_bytes(encode(START, flag=1))
    assert message == same
    assert hash(message) == hash(same)
    assert message != other
    assert message != data
    assert len({message, same, other}) == 2


def test_messages_pickle_and_copy_by_value() -> None:
    file = file_of(encode(START))
    message = read_message(file, 0, SEGMENT, verify=3)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(message, protocol)) == message
    assert copy.deepcopy(message) == message
    assert bytes(message) == encode(START)


def test_message_that_was_not_tested_pickles_too() -> None:
    data = bytearray(encode(0))
    data[88] ^= 1
    message = Message.from_bytes(data, verify=False)
    assert pickle.loads(pickle.dumps(message)) == message


def test_repr_shows_what_one_looks_for() -> None:
    text = repr(Message.from_bytes(encode(77, 5, body=b"x" * 100)))
    for part in ("'orders'", "queue_offset=5", "physical_offset=77", "100 bytes", "tags='paid'"):
        assert part in text
    assert len(text) < 300


def test_messages_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="from_bytes"):
        Message()
    for make in (Message.__new__, object.__new__):
        with pytest.raises(TypeError, match="__new__"):
            make(Message)


def test_message_keeps_its_file_mapped(tmp_path: Path) -> None:
    """D-36"""
    path = tmp_path / "00000000000000004096"
    path.write_bytes(encode(START).ljust(SEGMENT, b"\0"))
    gc.collect()
    before = mapped_files()
    file = MappedFile.open(str(path), START, SEGMENT, "read")
    message = read_message(file, 0, SEGMENT, verify=3)
    view = message.body_view
    file.close()
    gone = weakref.ref(view)
    del file
    assert (message.body, bytes(view)) == (b"body 0", b"body 0")
    del message
    assert mapped_files() == before + 1
    assert bytes(view) == b"body 0"
    del view
    gc.collect()
    assert gone() is None
    assert mapped_files() == before


def test_view_is_read_only() -> None:
    view = Message.from_bytes(encode(0)).body_view
    assert view.readonly
    assert bytes(view) == b"body 0"


def test_empty_body() -> None:
    message = Message.from_bytes(encode(0, body=b""))
    assert (message.body, bytes(message.body_view)) == (b"", b"")


# ---- one record ----


def test_record_is_read_at_its_place() -> None:
    first = encode(START)
    file = file_of(first + encode(START + len(first), 1))
    assert read_message(file, len(first), SEGMENT, verify=3).queue_offset == 1


def test_record_has_to_name_its_place() -> None:
    file = file_of(encode(START + 1))
    with pytest.raises(CorruptRecordError) as caught:
        read_message(file, 0, SEGMENT, verify=0)
    assert (caught.value.physical_offset, caught.value.reason) == (START, "physical offset")


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "zeros"), (b"\0\0\x10\0\xcb\xd41\x94", "blank")]
)
def test_what_is_no_record_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        read_message(file_of(data), 0, SEGMENT, verify=3)
    assert caught.value.reason == reason


def test_no_byte_behind_the_limit_is_looked_at() -> None:
    data = encode(START)
    file = file_of(data)
    assert read_message(file, 0, len(data), verify=3).size == len(data)
    with pytest.raises(CorruptRecordError, match="truncated"):
        read_message(file, 0, len(data) - 1, verify=3)


@pytest.mark.parametrize("position", [-1, SEGMENT, SEGMENT + 1, 1 << 40])
def test_position_outside_is_refused(position: int) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        read_message(file_of(encode(START)), position, SEGMENT, verify=3)


def test_checksums_that_are_asked_for() -> None:
    data = bytearray(encode(START))
    data[60] ^= 1
    file = file_of(bytes(data))
    assert read_message(file, 0, SEGMENT, verify=1).body == b"body 0"
    assert read_message(file, 0, SEGMENT, verify=3 | VERIFY_LENIENT).body == b"body 0"
    with pytest.raises(CorruptRecordError, match="record crc"):
        read_message(file, 0, SEGMENT, verify=3)


def test_large_record() -> None:
    body = bytes(range(256)) * 1000
    file = MappedFile.anonymous(0, 1 << 20)
    file.write(0, encode(0, body=body))
    assert read_message(file, 0, file.size, verify=3).body == body
    file.write(100, b"!")
    with pytest.raises(CorruptRecordError, match="body crc"):
        read_message(file, 0, file.size, verify=3)
