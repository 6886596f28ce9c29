"""Walking records and finding the next one behind damage (format 14.1, 15.2, 15.3)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rocketstore._native.format import codec
from rocketstore._native.format.scanner import (
    VERIFY_BODY_CRC,
    VERIFY_LENIENT,
    VERIFY_RECORD_CRC,
    VERIFY_UNTORN,
    ScanResult,
    SearchBudget,
    find_magic,
    scan_segment,
)
from rocketstore._native.format.scanner import resynchronise as resynchronise_within
from rocketstore._native.os.mapped_file import MappedFile
from tests.support import paths
from tests.support.log_records import judge_record

VECTORS = json.loads((paths.VECTORS / "vectors.json").read_text())
START = 1 << 20
SIZE = 8192
BOTH = VERIFY_BODY_CRC | VERIFY_RECORD_CRC


def encode(position: int, body: bytes = b"hello", **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": "orders",
        "physical_offset": START + position,
        "properties": b"KEYS\x01k\x02",
        "store_timestamp_ms": 1_700_000_000_000 + position,
        "born_host": "10.1.2.3:54321",
        "store_host": "192.168.0.9:10911",
        "record_crc": True,
        **fields,
    }
    return codec.encode_record(body=body, **values)


def make(count: int, size: int = SIZE, body: bytes = b"hello") -> tuple[MappedFile, list[int]]:
    """A file with `count` records from its begin on; their positions and the end."""
    file = MappedFile.anonymous(START, size)
    positions = [0]
    for number in range(count):
        record = encode(positions[-1], body + b"%d" % number)
        file.write(positions[-1], record)
        positions.append(positions[-1] + len(record))
    return file, positions


def resynchronise(file: MappedFile, start: int, to: int, verify: int = BOTH) -> int | None:
    """One search, with a budget of its own."""
    return resynchronise_within(file, start, to, budget=SearchBudget(), verify=verify)


def blank(file: MappedFile, position: int) -> None:
    file.write(position, (file.size - position).to_bytes(4, "big") + bytes.fromhex("cbd43194"))


def scan(file: MappedFile, verify: int = BOTH, to: int | None = None, start: int = 0) -> ScanResult:
    return scan_segment(file, start, file.size if to is None else to, verify=verify)


# ---- walking ----


def test_walk_ends_at_zeros() -> None:
    file, positions = make(10)
    found = scan(file)
    assert (found.status, found.end_position, found.records) == ("zeros", positions[-1], 10)
    assert found.last_record_start == START + positions[-2]
    assert found.last_store_timestamp_ms == 1_700_000_000_000 + positions[-2]
    assert found.first_time_fall == -1


def test_walk_ends_at_a_blank() -> None:
    file, positions = make(10)
    blank(file, positions[-1])
    assert scan(file).status == "blank"
    assert scan(file).end_position == positions[-1]


def test_walk_ends_at_the_end_of_the_file() -> None:
    _, positions = make(10)
    full, _ = make(10, positions[-1])
    assert (scan(full).status, scan(full).end_position) == ("end", positions[-1])


def test_walk_ends_with_the_record_that_reaches_the_bound() -> None:
    file, positions = make(10)
    found = scan(file, to=positions[3] + 1)
    assert (found.status, found.end_position, found.records) == ("end", positions[4], 4)


def test_walk_of_nothing() -> None:
    file, _ = make(0)
    found = scan(file, to=0)
    assert (found.status, found.records, found.last_record_start) == ("end", 0, -1)


def test_walk_begins_anywhere() -> None:
    file, positions = make(10)
    found = scan(file, start=positions[4])
    assert (found.records, found.end_position) == (6, positions[-1])


@pytest.mark.parametrize(("start", "to"), [(-1, 5), (5, 4), (0, SIZE + 1)])
def test_walk_stays_in_the_file(start: int, to: int) -> None:
    file, _ = make(1)
    with pytest.raises(ValueError, match="is no part of"):
        scan_segment(file, start, to, verify=BOTH)


@pytest.mark.parametrize("row", VECTORS["bad_records"], ids=lambda row: row["id"])
def test_walk_judges_as_the_codec_does(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["hex"])
    file = MappedFile.anonymous(0, max(1, len(data)))
    file.write(0, data)
    found = scan_segment(file, 0, file.size, verify=BOTH)
    status, size = judge_record(data, 0)
    if status == "ok":
        assert found.records >= 1
        assert found.end_position >= size
    else:
        assert (found.status, found.records) == (status, 0)


@pytest.mark.parametrize("row", VECTORS["records"], ids=lambda row: row["id"])
def test_every_known_record_is_walked(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["hex"])
    start = row["fields"]["physical_offset"]
    file = MappedFile.anonymous(start, len(data))
    file.write(0, data)
    found = scan_segment(file, 0, file.size, verify=BOTH)
    assert (found.status, found.records) == ("end", 1)


@pytest.mark.parametrize(
    ("position", "byte", "verify", "status"),
    [
        (4, 0, BOTH, "magic"),
        (3, 255, BOTH, "length"),
        (0, 0x7F, BOTH, "truncated"),
        (35, 99, BOTH, "physical offset"),
        (88, 0, BOTH, "body crc"),
        (88, 0, VERIFY_RECORD_CRC, "record crc"),
        (60, 0xFF, BOTH, "record crc"),
        (60, 0xFF, VERIFY_BODY_CRC, "zeros"),
        (60, 0xFF, BOTH | VERIFY_LENIENT, "zeros"),
    ],
)
def test_walk_says_which_rule_is_broken(position: int, byte: int, verify: int, status: str) -> None:
    file, positions = make(10)
    file.write(positions[5] + position, bytes([byte]))
    found = scan(file, verify)
    assert found.status == status
    assert found.records == (5 if status != "zeros" else 10)
    assert found.record_crc_mismatches == (1 if verify & VERIFY_LENIENT else 0)


def test_walk_notes_where_times_fall() -> None:
    file, positions = make(5)
    record = encode(positions[-1], store_timestamp_ms=5)
    file.write(positions[-1], record)
    file.write(
        positions[-1] + len(record), encode(positions[-1] + len(record), store_timestamp_ms=4)
    )
    assert scan(file).first_time_fall == START + positions[-1]
    later = scan_segment(file, 0, positions[2], verify=3)
    assert later.first_time_fall == -1
    assert later.first_store_timestamp_ms == 1_700_000_000_000 + positions[0]


@pytest.mark.parametrize("cut", range(1, 20))
def test_record_that_lost_its_crc_is_not_whole(cut: int) -> None:
    """Also where nothing says that records have one, and where a stale one passes."""
    file, positions = make(3)
    file.zero(positions[-1] - cut, cut)
    status = scan(file).status  # ten right digits tell of a lost separator
    assert (scan(file).records, status) == (2, "record crc" if cut == 1 else "properties")
    assert scan(file, BOTH | VERIFY_LENIENT).records == (3 if cut == 1 else 2)


@pytest.mark.parametrize(("at", "count"), [(20, 12), (20, 19), (26, 25), (13, 8)])
def test_zeros_over_the_crc_are_seen(at: int, count: int) -> None:
    """What is left shows that it was there."""
    file, positions = make(3)
    file.zero(positions[-1] - at, count)
    assert scan(file).records == scan(file, VERIFY_UNTORN).records == 2


def test_values_with_zeros_are_whole_without_a_crc() -> None:
    file, _ = make(0)
    file.write(0, encode(0, properties=b"a\x01b\0\0__CRC32\0\x02", record_crc=False))
    assert scan(file, BOTH | VERIFY_UNTORN).records == 1


def test_topic_with_a_nul_is_not_whole() -> None:
    file = MappedFile.anonymous(START, SIZE)
    file.write(0, encode(0, topic=b"ord\0rs", properties=b"", record_crc=False))
    assert scan(file).records == 1
    assert scan(file, BOTH | VERIFY_UNTORN).status == "topic"


def test_any_bytes_are_walked(rng: random.Random) -> None:
    file, positions = make(20)
    whole = file.read(0, SIZE)
    for _ in range(3000):
        at = rng.randrange(positions[-1])
        file.write(at, rng.randbytes(min(rng.choice((1, 2, 4, 40)), SIZE - at)))
        found = scan(file, rng.randrange(32))
        assert 0 <= found.end_position <= SIZE
        again = resynchronise(file, found.end_position, SIZE)
        assert again is None or found.end_position <= again < SIZE
        if rng.random() < 0.2:
            file.write(0, whole)


# ---- finding the next record ----


def test_next_record_is_found() -> None:
    file, positions = make(10)
    file.write(positions[3], bytes(20))
    assert resynchronise(file, positions[3] + 1, SIZE) == positions[4]


def test_every_start_finds_the_next_record() -> None:
    file, positions = make(4)
    for start in range(positions[-1]):
        after = [p for p in positions[:-1] if p >= start]
        expected = after[0] if after else None
        if start - 1 in positions[:-2]:  # behind a sound frame: what it says is the next one
            expected = positions[positions.index(start - 1) + 1]
        assert resynchronise(file, start, SIZE) == expected, start


def test_nothing_is_found_in_nothing() -> None:
    file, _ = make(0)
    assert resynchronise(file, 0, SIZE) is None
    assert resynchronise(file, SIZE, SIZE) is None


def test_bound_counts_for_the_begin_of_a_record() -> None:
    file, positions = make(4)
    assert resynchronise(file, 1, positions[1]) is None
    assert resynchronise(file, 1, positions[1] + 1) == positions[1]


def test_record_that_belongs_elsewhere_is_passed_over() -> None:
    """Equation 2: bodies can hold whole records."""
    file, positions = make(4)
    file.write(positions[1], bytes(8) + encode(500))
    assert resynchronise(file, 1, SIZE) != positions[1] + 8


def test_record_in_a_damaged_body_is_passed_over() -> None:
    """A sender can guess where its message will stand; the frame around it says better."""
    inner = encode(88 + 3, b"inner")
    outer = encode(0, b"xyz" + inner + encode(88 + 3 + len(inner), b"inner too"))
    file = MappedFile.anonymous(START, SIZE)
    file.write(0, outer)
    file.write(len(outer), encode(len(outer)))
    file.write(88, b"!")
    assert scan(file).status == "body crc"
    assert resynchronise(file, 1, SIZE) == len(outer)


@pytest.mark.parametrize("record_crc", [True, False])
def test_a_record_without_a_checksum_of_its_own_needs_another_after_it(record_crc: bool) -> None:
    """Damage on both sides of a record that proves itself leaves it alone."""
    file, positions = make(4)
    file.write(positions[1], b"\xff" * 8)
    if not record_crc:
        plain = encode(positions[2], b"plain", record_crc=False)
        file.write(positions[2], plain.ljust(positions[3] - positions[2], b"\xff"))
    file.write(positions[3], b"\xff" * 8)
    found = resynchronise(file, positions[1] + 1, SIZE)
    assert found == (positions[2] if record_crc else None)
    end = positions[3] if record_crc else positions[2] + len(plain)
    file.write(end, bytes(8))
    assert resynchronise(file, positions[1] + 1, SIZE) == positions[2]


def test_a_checksum_that_does_not_hold_proves_no_record() -> None:
    """Even where none has to hold, as what another program wrote may have old ones."""
    file, positions = make(4)
    file.write(positions[1], b"\xff" * 8)
    file.write(positions[2] + 60, b"\xff")
    file.write(positions[3], b"\xff" * 8)
    assert resynchronise(file, positions[1] + 1, SIZE, verify=BOTH | VERIFY_LENIENT) is None


def test_blank_is_found_when_it_reaches_the_end() -> None:
    file, positions = make(4)
    file.write(positions[3], b"\xff" * (positions[4] - positions[3]))
    blank(file, positions[4])
    assert resynchronise(file, positions[3] + 1, SIZE) == positions[4]
    file.write(positions[4] + 3, b"\x77")
    assert resynchronise(file, positions[3] + 1, SIZE) is None


def test_record_at_the_very_end_of_a_file_is_found() -> None:
    _, positions = make(5)
    file, _ = make(5, positions[-1])
    file.write(positions[3], b"\xff" * 8)
    assert resynchronise(file, positions[3] + 1, file.size) == positions[4]


def test_bad_checksum_is_no_candidate() -> None:
    file, positions = make(6)
    file.write(positions[2], b"\xff" * 8)
    file.write(positions[3] + 60, b"\xff")
    assert resynchronise(file, positions[2] + 1, SIZE) == positions[4]
    lenient = BOTH | VERIFY_LENIENT
    assert resynchronise(file, positions[2] + 1, SIZE, verify=lenient) == positions[3]


@pytest.mark.timeout(60)
def test_hostile_headers_do_not_make_a_search_endless() -> None:
    """Each claims a body up to the end: read once for each, that would be a hundred gigabytes."""
    size = 8 << 20
    file = MappedFile.anonymous(START, size)
    head = bytearray(encode(0, b"", properties=b"", record_crc=False)[:88])
    for position in range(91, size - 20_000, 240):
        body = size - position - 97
        head[0:4] = (body + 97).to_bytes(4, "big")
        head[28:36] = (START + position).to_bytes(8, "big")
        head[84:88] = body.to_bytes(4, "big")
        file.write(position, head)
    file.write(size - 9, b"\x06orders\0\0")
    assert resynchronise(file, 1, size) is None


@pytest.mark.timeout(60)
def test_searches_of_a_walk_read_no_more_than_its_budget() -> None:
    """A good record in front of each few hostile headers has a search begin at each: 8 MiB were read 64 times
    for each of them, 45 GB."""
    size = 8 << 20
    file = MappedFile.anonymous(START, size)
    head = bytearray(encode(0, b"", properties=b"", record_crc=False)[:88])
    position = goods = 0
    while position < size - 7000:
        good = encode(position, b"")
        file.write(position, good)
        position, goods = position + len(good), goods + 1
        for _ in range(64):
            body = size - position - 97
            head[0:4] = (body + 97).to_bytes(4, "big")
            head[28:36] = (START + position).to_bytes(8, "big")
            head[84:88] = body.to_bytes(4, "big")
            file.write(position, head)
            position += len(head)
    file.write(size - 9, b"\x06orders\0\0")
    budget, at, found, left = SearchBudget(), 0, 0, [(1 << 20) + 64 * size]
    assert budget.left_bytes is None
    while True:
        walked = scan_segment(file, at, size, verify=BOTH)
        found += walked.records
        after = resynchronise_within(file, walked.end_position + 1, size, budget=budget)
        assert budget.left_bytes is not None
        left.append(budget.left_bytes)
        if after is None:
            break
        at = after
    assert found == goods  # small ones are found to the end
    assert left == sorted(left, reverse=True)
    assert 0 <= left[-1] < size


def test_a_record_beyond_what_is_left_of_a_budget_is_passed_over() -> None:
    """Until another file is searched."""
    size = 1 << 20
    file = MappedFile.anonymous(START, size)
    large = encode(100, bytes(size // 2))
    file.write(100, large)
    file.write(100 + len(large), encode(100 + len(large)))
    budget = SearchBudget()
    assert resynchronise_within(file, 1, size, budget=budget) == 100
    assert budget.left_bytes == (1 << 20) + 64 * size - len(large)
    while budget.left_bytes >= len(large):
        assert resynchronise_within(file, 1, size, budget=budget) == 100
    assert resynchronise_within(file, 1, size, budget=budget) == 100 + len(large)
    other, positions = make(4)
    assert resynchronise_within(other, 1, SIZE, budget=budget) == positions[1]
    assert resynchronise_within(file, 1, size, budget=budget) == 100


# ---- finding magics ----


def test_fast_search_finds_what_the_plain_one_finds(rng: random.Random) -> None:
    alphabet = bytes.fromhex("daa320a7abcbd4319400ff")
    for _ in range(300):
        data = bytearray(rng.choices(alphabet, k=rng.randrange(1500)))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(data) + 1)
            data[at : at + 4] = bytes.fromhex(rng.choice(("daa320a7", "daa320ab", "cbd43194")))
        start = rng.randrange(len(data) + 1)
        assert find_magic(bytes(data), start) == find_magic(bytes(data), start, plain=True)


@pytest.mark.parametrize("magic", ["daa320a7", "daa320ab", "cbd43194"])
def test_magic_is_found_anywhere(magic: str) -> None:
    for size in (4, 5, 255, 256, 259, 260, 261, 600):
        for at in range(size - 3):
            data = bytearray(size)
            data[at : at + 4] = bytes.fromhex(magic)
            assert find_magic(bytes(data), 0) == find_magic(bytes(data), 0, plain=True) == at
            assert find_magic(bytes(data), at + 1) == size
