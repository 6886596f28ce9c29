"""One commit log record: decode undoes encode, and every other byte string is refused by name."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore._native.format import codec, status
from rocketstore.errors import (
    MEANINGS,
    CorruptRecordError,
    InvalidTopicError,
    MessageNotFoundError,
    MessageRejectedError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    RocketStoreError,
)
from tests.support.log_records import judge_record

pytestmark = pytest.mark.quick

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HOST = st.sampled_from(["10.1.2.3:54321", "192.168.0.9:10911", "[2001:db8::1]:80", "[fe80::9]:-1"])
# 127 and 128 bytes: the last V1 topic and the first V2 topic.
TOPIC = st.sampled_from(["T", "TopicTest", "t" * 127, "%RETRY%" + "g" * 121, "w" * 255])
PROPERTIES = st.sampled_from([b"", b"a\x01b\x02", b"KEYS\x01k1 k2\x02TAGS\x01t", b"\xff", b"\x02"])
MESSAGE = st.fixed_dictionaries(
    {
        "topic": TOPIC,
        "body": st.binary(max_size=300),
        "properties": PROPERTIES,
        "queue_id": I32,
        "flag": I32,
        "queue_offset": I64,
        "physical_offset": I64,
        "sys_flag": st.integers(0, 2**32 - 1),
        "born_timestamp_ms": I64,
        "born_host": HOST,
        "store_timestamp_ms": I64,
        "store_host": HOST,
        "reconsume_times": I32,
        "prepared_transaction_offset": I64,
        "record_crc": st.booleans(),
    }
)
PLAIN: dict[str, Any] = {"topic": "TopicTest", "body": b"hello", "physical_offset": 4096}
V6_BITS = 0x30


def crc_property(record_before: bytes) -> bytes:
    """The record CRC of the bytes before it: ten digits, the last one first."""
    digits = f"{zlib.crc32(record_before) & 0x7FFFFFFF:010d}"[::-1]
    return b"__CRC32#\x01" + digits.encode() + b"\x02"


@given(message=MESSAGE)
def test_decode_undoes_encode(message: dict[str, Any]) -> None:
    record = codec.encode_record(**message)
    decoded = codec.decode_record(record, -1)
    v6 = 0x10 * message["born_host"].startswith("[") + 0x20 * message["store_host"].startswith("[")
    assert decoded["sys_flag"] == message["sys_flag"] & ~V6_BITS | v6
    assert decoded["total_size"] == len(record)
    assert decoded["magic"] == (0xDAA320A7 if len(message["topic"]) <= 127 else 0xDAA320AB)
    assert decoded["body_crc"] == zlib.crc32(message["body"]) & 0x7FFFFFFF
    same = set(message) - {"sys_flag", "record_crc", "properties"}
    assert {k: decoded[k] for k in same} == {k: message[k] for k in same}  # type: ignore[literal-required]
    properties = message["properties"]
    if message["record_crc"]:
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        properties += crc_property(record[:-20])
    assert decoded["properties"] == properties


def test_bodies_of_every_length_are_copied_and_summed(rng: random.Random) -> None:
    """Both are done in one pass, in steps of 128, 64, 32 and 16 bytes and by pieces of the rest."""
    for size in [*range(300), *(rng.randrange(70_000) for _ in range(40))]:
        body = rng.randbytes(size)
        decoded = codec.decode_record(codec.encode_record(topic="T", body=body, record_crc=True))
        assert decoded["body"] == body
        assert decoded["body_crc"] == zlib.crc32(body) & 0x7FFFFFFF


@given(message=MESSAGE, behind=st.binary(max_size=40))
def test_bytes_behind_a_record_do_not_matter(message: dict[str, Any], behind: bytes) -> None:
    record = codec.encode_record(**message)
    assert codec.decode_record(record + behind) == codec.decode_record(record)
    assert judge_record(record + behind) == ("ok", len(record))


@pytest.mark.parametrize("topic", ["T", "w" * 255])
@pytest.mark.parametrize("host", ["1.2.3.4:5", "[::2]:5"])
@pytest.mark.parametrize("record_crc", [False, True])
def test_every_truncation_is_refused(topic: str, host: str, record_crc: bool) -> None:
    record = codec.encode_record(
        topic=topic,
        body=b"hello",
        properties=b"a\x01b\x02",
        born_host=host,
        store_host=host,
        record_crc=record_crc,
    )
    for size in range(len(record)):
        assert judge_record(record[:size]) == ("truncated", -1), size
        with pytest.raises(CorruptRecordError, match="truncated"):
            codec.decode_record(record[:size])


def test_any_changed_bit_in_front_of_a_record_crc_is_noticed() -> None:
    record = codec.encode_record(**PLAIN, properties=b"TAGS\x01t\x02", record_crc=True)
    for bit in range(8 * (len(record) - 20)):
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        assert judge_record(bytes(changed))[0] != "ok", bit


def test_a_changed_digit_of_a_record_crc_is_noticed() -> None:
    record = codec.encode_record(**PLAIN, record_crc=True)
    for bit in range(8 * (len(record) - 11), 8 * (len(record) - 1)):
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        assert judge_record(bytes(changed)) == ("record crc", -1), bit


def test_a_changed_name_or_separator_of_a_record_crc_is_noticed() -> None:
    """Else the checksum would turn into a property that nobody sent, and nothing be protected."""
    record = codec.encode_record(**PLAIN, properties=b"TAGS\x01t\x02", record_crc=True)
    for position in (*range(-20, -11), -1):
        for mask in (1, 2, 0x80, 0xFF):
            changed = bytearray(record)
            changed[position] ^= mask
            assert judge_record(bytes(changed)) == ("record crc", -1), (position, mask)


def test_a_property_that_ends_in_ten_digits_is_no_record_crc() -> None:
    text = b"number\x010123456789\x02"
    record = codec.encode_record(**PLAIN, properties=text)
    assert judge_record(record) == ("ok", len(record))


def test_without_a_record_crc_the_body_is_protected(rng: random.Random) -> None:
    """S000-22 S001-06: the body CRC is stored and verified."""
    record = bytearray(codec.encode_record(**PLAIN))
    record[88 + rng.randrange(5)] ^= 1 << rng.randrange(8)
    assert judge_record(bytes(record)) == ("body crc", -1)
    assert codec.decode_record(bytes(record), verify=False)["body"] != b"hello"


@given(data=st.binary(max_size=300))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    name, size = judge_record(data)
    assert name in status.STATUS_NAMES
    if name not in ("ok", "blank"):
        assert size == -1


@given(
    message=MESSAGE,
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_what_passes_after_any_change_still_adds_up(
    message: dict[str, Any], changes: list[tuple[int, int]]
) -> None:
    record = bytearray(codec.encode_record(**message))
    for position, value in changes:
        record[position % len(record)] = value
    name, size = judge_record(bytes(record))
    if name != "ok":
        return
    decoded = codec.decode_record(bytes(record))
    hosts = 16 + 12 * bool(decoded["sys_flag"] & 0x10) + 12 * bool(decoded["sys_flag"] & 0x20)
    topic_bytes = record[size - len(decoded["properties"]) - 2 - 1 :: -1]
    assert len(topic_bytes) > 0
    length_size = 2 if decoded["magic"] == 0xDAA320AB else 1
    parts = 74 + hosts + length_size + len(decoded["body"]) + len(decoded["properties"])
    assert 1 <= size - parts <= (32767 if length_size == 2 else 127)


def edited(position: int, value: bytes, **message: Any) -> bytes:
    record = bytearray(codec.encode_record(**PLAIN | message))
    record[position : position + len(value)] = value
    return bytes(record)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("zeros", bytes(8)),
        ("zeros", bytes(200)),
        ("truncated", b""),
        ("truncated", bytes(7)),
        ("magic", edited(4, b"\0\0\0\0")),
        ("magic", edited(4, b"\xda\xa3\x20\xa8")),
        ("magic", b"\0\0\0\x08" + b"\xcb\xd4\x31\x95"),
        ("length", edited(0, b"\0\0\0\0")),
        ("length", edited(0, b"\0\0\0\x5a")),
        ("length", edited(0, b"\x80\0\0\0")),
        ("length", edited(0, b"\xff\xff\xff\xff")),
        ("truncated", edited(0, b"\x7f\xff\xff\xff")),
        ("length", edited(84, b"\xff\xff\xff\xff")),
        ("length", edited(84, b"\x7f\xff\xff\xff")),
        ("topic", edited(93, b"\0")),
        ("length", edited(93, b"\x80")),
        ("length", edited(93, b"\x7f")),
        ("properties", edited(103, b"\xff\xff")),
        ("properties", edited(103, b"\0\1")),
        ("length", edited(103, b"\0\3", properties=b"a\1b\2")),
        ("body crc", edited(8, b"\0\0\0\0")),
        ("body crc", edited(8, bytes([zlib.crc32(b"hello") >> 24 | 0x80]))),
        ("physical offset", edited(28, b"\0\0\0\0\0\0\0\1")),
        ("record crc", edited(16, b"\1", record_crc=True)),
        ("record crc", edited(-2, b"9", record_crc=True)),
    ],
)
def test_the_first_rule_broken_is_named(name: str, data: bytes) -> None:
    assert judge_record(data, 4096) == (name, -1)
    with pytest.raises(CorruptRecordError) as caught:
        codec.decode_record(data, 4096)
    assert (caught.value.physical_offset, caught.value.reason) == (4096, name)


def test_a_v2_topic_length_is_a_signed_number_of_two_bytes() -> None:
    record = bytearray(codec.encode_record(topic="w" * 200, body=b""))
    record[88:90] = b"\x80\x00"
    assert judge_record(bytes(record))[0] == "topic"
    record[88:90] = b"\x00\x00"
    assert judge_record(bytes(record))[0] == "topic"


def test_a_properties_length_with_the_top_bit_is_refused_even_if_the_bytes_are_there() -> None:
    record = bytearray(codec.encode_record(**PLAIN)[:-2] + b"\x80\x00" + bytes(0x8000))
    record[:4] = len(record).to_bytes(4, "big")
    assert judge_record(bytes(record)) == ("properties", -1)


def test_a_blank_is_known_by_its_magic_whatever_its_length_says() -> None:
    """S000-20 S001-23."""
    for size in (8, 64, 0, 0xFFFFFFFF):
        blank = size.to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
        assert judge_record(blank) == ("blank", size)
        with pytest.raises(CorruptRecordError, match="blank"):
            codec.decode_record(blank)


def test_the_crc_of_an_empty_body_is_not_checked() -> None:
    """Q-13."""
    record = bytearray(codec.encode_record(topic="T", body=b""))
    record[8:12] = b"\0\0\0\1"
    assert judge_record(bytes(record))[0] == "ok"


def test_the_physical_offset_is_compared_only_when_asked() -> None:
    record = codec.encode_record(**PLAIN)
    assert codec.decode_record(record, 4096)["physical_offset"] == 4096
    assert codec.decode_record(record)["physical_offset"] == 4096
    with pytest.raises(CorruptRecordError, match="physical offset"):
        codec.decode_record(record, 4097)


def with_text(properties: bytes) -> bytes:
    return codec.encode_record(**PLAIN, properties=properties)


@pytest.mark.parametrize(
    ("properties", "number"),
    [
        (b"__CRC32#\x010000000000\x02", 0),
        (b"__CRC32#\x018523023731\x02", 1373203258),
        (b"a\x01b\x02__CRC32#\x011000000000\x02", 1),
        (b"__CRC32#\x019999999999\x02", 2**32 - 1),
        (b"__CRC32#\x010000000000", None),
        (b"__CRC32#\x01000000000\x02", None),
        (b"__CRC32#\x0100000x0000\x02", 2**32 - 1),
        (b"__CRC32#\x01x000000000\x02", 2**32 - 1),
        (b"__CRC32#\x01000000000x\x02", 2**32 - 1),
        (b"__CRC32#\x010000000000\x02a\x01b\x02", None),
        (b"x\x01y\x03__CRC32#\x010000000000\x02", 0),
        (b"__CRC32@\x010000000000\x02", None),
    ],
)
def test_a_record_crc_is_the_last_property_or_none(properties: bytes, number: int | None) -> None:
    assert codec.decode_record(with_text(properties), verify=False)["record_crc"] == number


@pytest.mark.parametrize("number", [0, 1, 9, 10, 99, 100, 10**4, 10**8, 1373203258, 2**31 - 1])
def test_digits_of_a_record_crc_are_read_least_significant_first(number: int) -> None:
    digits = f"{number:010d}"[::-1].encode()
    decoded = codec.decode_record(with_text(b"__CRC32#\x01" + digits + b"\x02"), verify=False)
    assert decoded["record_crc"] == number


def test_digits_of_a_record_crc_are_read_as_one_by_one(rng: random.Random) -> None:
    """Eight at a time, where a carry or a borrow goes from one to the next: every byte in every place, beside
    digits and beside other bytes that are none."""
    odd = b"\x00\x2f\x3a\x80\xb9\xba\xff"
    texts = [rng.choices(b"0123456789", k=10) for _ in range(2560)]
    for number, text in enumerate(texts):
        text[number % 10] = number // 10
        if number % 3 == 0:
            text[rng.randrange(10)] = rng.choice(odd)
    for digits in map(bytes, texts):
        plain = int(digits[::-1]) if digits.isdigit() else 2**32 - 1
        decoded = codec.decode_record(with_text(b"__CRC32#\x01" + digits + b"\x02"), verify=False)
        assert decoded["record_crc"] == min(plain, 2**32 - 1), digits


def test_the_record_crc_is_the_same_with_every_digit_count(rng: random.Random) -> None:
    """The writer's two-digit table against Python's own digits, small checksums included."""
    shortest = 10
    for flag in range(3000):
        record = codec.encode_record(**PLAIN, flag=flag, record_crc=True)
        assert record[-20:] == crc_property(record[:-20])
        shortest = min(shortest, len(str(zlib.crc32(record[:-20]) & 0x7FFFFFFF)))
    assert shortest <= 8


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"topic": ""}, InvalidTopicError),
        ({"topic": "t" * 256}, InvalidTopicError),
        ({"properties": b"p" * 32768}, PropertiesTooLargeError),
        ({"properties": b"p" * 32747 + b"\x02", "record_crc": True}, PropertiesTooLargeError),
        ({"properties": b"p" * 32747, "record_crc": True}, PropertiesTooLargeError),
    ],
)
def test_what_cannot_be_a_record_is_refused(
    change: dict[str, Any], error: type[MessageRejectedError]
) -> None:
    with pytest.raises(error):
        codec.encode_record(**PLAIN | change)


@pytest.mark.parametrize(
    "change",
    [
        {"properties": b"p" * 32767},
        {"properties": b"p" * 32746 + b"\x02", "record_crc": True},
        {"properties": b"p" * 32746, "record_crc": True},
    ],
)
def test_the_last_properties_that_fit(change: dict[str, Any]) -> None:
    assert len(codec.decode_record(codec.encode_record(**PLAIN | change))["properties"]) == 32767


STATUS_ERRORS: dict[str, type[RocketStoreError]] = {
    "full": RocketStoreError,
    "no blocks": RocketStoreError,
    "not found": MessageNotFoundError,
    "topic illegal": InvalidTopicError,
    "body too large": MessageTooLargeError,
    "properties too large": PropertiesTooLargeError,
    "property illegal": MessageRejectedError,
    "record too large": MessageTooLargeError,
}


@pytest.mark.parametrize("name", status.STATUS_NAMES)
def test_each_status_is_one_exception(name: str) -> None:
    number = status.STATUS_NAMES.index(name)
    if name == "ok":
        status.check_status(number, 7)
        return
    with pytest.raises(RocketStoreError) as caught:
        status.check_status(number, 7)
    assert type(caught.value) is STATUS_ERRORS.get(name, CorruptRecordError)
    if isinstance(caught.value, CorruptRecordError):
        assert (caught.value.physical_offset, caught.value.reason) == (7, name)
        assert str(caught.value) == f"record at physical offset 7: {name} ({MEANINGS[name]})"


def test_a_number_that_is_no_status_is_refused() -> None:
    for number in (-1, len(status.STATUS_NAMES)):
        with pytest.raises(ValueError, match="no such status"):
            status.check_status(number, 0)
