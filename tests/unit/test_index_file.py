"""One index file: the bytes RocketMQ writes, and look-ups that end on any bytes."""

from __future__ import annotations

import io
import json
import mmap
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore._native.format import index_file
from rocketstore._native.os.mapped_file import MappedFile
from tests.support import paths
from tests.support.index_tools import FOREVER, NOW_MS, Sut, key_hash, make

VECTORS: dict[str, Any] = json.loads((paths.VECTORS / "vectors.json").read_text())["index"]


@pytest.fixture
def sut() -> Sut:
    """Nothing is in it."""
    return make()


@pytest.mark.parametrize("row", VECTORS["keys"], ids=lambda row: row["key"])
def test_key_hashes_are_rocketmqs(row: dict[str, Any]) -> None:
    assert key_hash(row["key"]) == row["key_hash"]
    assert row["key_hash"] % 5_000_000 == row["slot"]


def test_the_hash_without_an_absolute_value_is_0() -> None:
    """K-59: |−2³¹| overflows in Java, which then takes 0."""
    [row] = [row for row in VECTORS["keys"] if row["java_hash"] == -(2**31)]
    assert key_hash(row["key"]) == 0


@pytest.mark.parametrize("row", VECTORS["files"], ids=lambda row: row["note"])
def test_files_are_rocketmqs_byte_for_byte(row: dict[str, Any]) -> None:
    """Puts, a full file and its successor, as RocketMQ writes them."""
    sut = make(row["slots"], row["capacity"], tuple(row["previous_end"]))
    taken = [sut.put(*put) for put in row["puts"]]
    assert sut.bytes().hex() == row["hex"]
    assert taken == [number < row["capacity"] - 1 for number in range(len(taken))]
    assert sut.valid()


def test_default_size_is_rocketmqs() -> None:
    assert index_file.file_size(5_000_000, 20_000_000) == VECTORS["default_file_size"]


def test_a_full_file_is_left_alone() -> None:
    """Entry 0 is never used, so a file of 3 holds 2 (Q-21)."""
    sut = make(entries=3)
    assert sut.put("T#a", 0)
    assert sut.put("T#b", 1)
    before = sut.bytes()
    assert not sut.put("T#c", 2)
    assert sut.bytes() == before


def test_a_put_stays_below_the_blocks_that_there_are() -> None:
    """D-19: entries beyond `limit` may have no blocks on disk."""
    sut = make(entries=8)
    for number in range(1, 4):
        assert index_file.put(*sut, 4, number, number, NOW_MS)
    before = sut.bytes()
    assert not index_file.put(*sut, 4, 9, 9, NOW_MS)
    assert sut.bytes() == before


def test_a_count_below_1_means_1() -> None:
    """Q-25: a file that RocketMQ made and did not flush has a header of zeros."""
    for count in (0, -7):
        sut = make()
        sut.write_count(count)
        assert index_file.header(*sut)[5:] == (1, True)
        assert sut.offsets("T#a") == []
        assert sut.put("T#a", 5)
        assert sut.offsets("T#a") == [5]


def test_candidates_come_newest_first() -> None:
    sut = make(entries=100)
    for offset in range(50):
        sut.put("T#a" if offset % 3 else "T#b", offset, NOW_MS + offset)
    assert sut.offsets("T#b") == list(range(48, -1, -3))
    assert sut.offsets("T#nothing") == []


def test_more_candidates_than_one_step_takes() -> None:
    sut = make(entries=1000)
    for offset in range(500):
        sut.put("T#a", offset)
    assert sut.offsets("T#a") == list(range(499, -1, -1))


def test_other_keys_of_one_hash_are_candidates_too(sut: Sut) -> None:
    """Q-24: only the record can tell Aa from BB."""
    sut.put("T#Aa", 110)
    sut.put("T#BB", 222)
    assert sut.offsets("T#Aa") == sut.offsets("T#BB") == [222, 110]


def test_a_record_that_was_indexed_twice_is_one_candidate() -> None:
    """Q-23: the last record is indexed again when it is dispatched again."""
    sut = make(entries=20)
    for offset in (0, 0, 100, 200, 200, 200):
        sut.put("T#a", offset)
    assert sut.offsets("T#a") == [200, 100, 0]


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (NOW_MS, NOW_MS + 20_000, [2, 1, 0]),
        (NOW_MS + 1, NOW_MS + 20_000, [2, 1]),
        (NOW_MS + 10_001, NOW_MS + 20_000, [2]),
        (NOW_MS, NOW_MS + 19_999, [1, 0]),
        (NOW_MS - 5, NOW_MS - 1, []),
        (NOW_MS + 20_001, FOREVER, []),
    ],
)
def test_the_window_holds_for_entries(begin: int, end: int, expected: list[int], sut: Sut) -> None:
    for number in range(3):
        sut.put("T#a", number, NOW_MS + number * 10_000)
    assert sut.offsets("T#a", begin_ms=begin, end_ms=end) == expected


def test_times_are_whole_seconds_after_the_first(sut: Sut) -> None:
    sut.put("T#a", 0, NOW_MS)
    sut.put("T#a", 1, NOW_MS + 1999)
    assert sut.entry(2)[2] == 1
    assert sut.offsets("T#a", end_ms=NOW_MS + 1000) == [1, 0]
    assert sut.offsets("T#a", begin_ms=NOW_MS + 1001) == []


def test_entry_1_of_a_follow_up_file_is_found_by_its_own_time() -> None:
    """Q-22: its seconds count from the file before, so the header's time is taken instead."""
    sut = make(previous_end=(600, NOW_MS))
    sut.put("T#a", 700, NOW_MS + 50_000)
    assert sut.entry(1)[2] == 50
    assert sut.offsets("T#a", begin_ms=NOW_MS + 50_000, end_ms=NOW_MS + 50_000) == [700]


def test_a_clamped_time_is_in_every_window_that_it_could_be_in(sut: Sut) -> None:
    sut.put("T#a", 0, NOW_MS)
    late_ms = NOW_MS + (2**31 + 100) * 1000
    sut.put("T#a", 1, late_ms)
    assert sut.entry(2)[2] == 2**31 - 1
    assert sut.offsets("T#a", begin_ms=late_ms, end_ms=late_ms) == [1]


def test_a_record_older_than_the_file_is_found_by_its_own_time(sut: Sut) -> None:
    """A clock that fell gives 0 seconds; the record is asked for by its real, earlier time."""
    sut.put("T#a", 0, NOW_MS)
    sut.put("T#b", 1, NOW_MS - 60_000)
    assert sut.entry(2)[2] == 0
    assert sut.offsets("T#b", begin_ms=NOW_MS - 61_000, end_ms=NOW_MS - 59_000) == [1]


def test_a_negative_time_difference_ends_a_chain(sut: Sut) -> None:
    sut.put(0, 0)
    sut.put(0, 1)
    sut.put(0, 2)
    sut.write_entry(2, 0, 1, diff_s=-1, previous=1)
    assert sut.offsets(0) == [2]


@pytest.mark.parametrize("previous", [3, 2, 4, 7, 2**31 - 1, -1, -(2**31)])
def test_a_chain_that_does_not_fall_ends(previous: int, sut: Sut) -> None:
    """Cyclic chains of a damaged file: an entry must name a smaller number."""
    for offset in range(3):
        sut.put(0, offset)
    sut.write_entry(3, 0, 2, previous=previous)
    assert sut.offsets(0) == ([2, 1, 0] if previous == 2 else [2])


@pytest.mark.parametrize("number", [5, 8, 2**31 - 1, -1, -(2**31)])
def test_a_slot_beyond_the_entries_is_no_chain(number: int, sut: Sut) -> None:
    for offset in range(3):
        sut.put(0, offset)
    sut.write_slot(0, number)
    assert sut.offsets(0) == []


def test_a_slot_is_followed_before_the_header_counts_it(sut: Sut) -> None:
    """What a reader sees between the writer's two stores."""
    sut.put(0, 7)
    sut.put(0, 8)
    sut.write_count(2)
    assert sut.offsets(0) == [8, 7]


def test_a_put_after_a_torn_one_keeps_the_chain(sut: Sut) -> None:
    """Slot written, header not: the next put takes that entry's place and its predecessor."""
    sut.put(0, 7)
    sut.put(0, 8)
    sut.write_count(2)
    sut.put(0, 9)
    assert sut.offsets(0) == [9, 7]
    assert sut.valid()


def test_entries_behind_the_count_are_passed_over_while_keys_are_put(sut: Sut) -> None:
    """The count is read before the chains; what is put in between is no fault."""
    for offset in range(6):
        sut.put(offset % 2, offset)
    sut.put(3, 6)
    sut.write_count(4)
    assert sut.valid(growing=True)
    assert not sut.valid()


@pytest.mark.parametrize(
    ("number", "hash_", "previous"), [(5, 1, 3), (5, 0, 5), (5, 0, -1), (5, 0, 1), (3, 0, 2)]
)
def test_chains_that_do_not_hold_are_faults_also_while_keys_are_put(
    number: int, hash_: int, previous: int, sut: Sut
) -> None:
    """Entries 1, 3 and 5 are of one slot; 4 and 5 are behind the count."""
    for offset in range(5):
        sut.put(offset % 2, offset)
    sut.write_count(4)
    assert sut.valid(growing=True)
    sut.write_entry(number, hash_, number - 1, previous=previous)
    assert not sut.valid(growing=True)


def test_a_slot_that_leads_out_of_the_file_is_a_fault_also_while_keys_are_put(sut: Sut) -> None:
    sut.put(0, 7)
    for number in (8, 2**31 - 1):
        sut.write_slot(0, number)
        assert not sut.valid(growing=True)


@pytest.mark.parametrize("count", [9, 2**31 - 1])
def test_a_count_beyond_the_file_is_held_within(count: int, sut: Sut) -> None:
    sut.put(0, 7)
    sut.write_count(count)
    assert index_file.header(*sut)[5:] == (8, False)
    assert not sut.put(0, 8)
    assert sut.offsets(0) == [7]
    assert not sut.valid()


def test_times_that_overflow_do_not() -> None:
    for begin in (2**63 - 1, -(2**63), 2**63 - 2000):
        sut = make()
        sut.put(0, 7, begin)
        sut.put(0, 8, -begin - 1)
        sut.write_entry(2, 0, 8, diff_s=2**31 - 1, previous=1)
        assert {*sut.offsets(0, begin_ms=-(2**63))} >= {7}


def test_a_negative_offset_is_no_candidate(sut: Sut) -> None:
    sut.put(0, 7)
    sut.write_entry(1, 0, -5)
    assert sut.offsets(0) == []
    assert not sut.valid()


@pytest.mark.parametrize(
    ("slots", "entries"), [(0, 8), (5, 0), (4, 8), (5, 7), (9, 7), (2**32 - 1, 1)]
)
def test_a_shape_that_is_not_the_files_is_refused(slots: int, entries: int) -> None:
    file = make(5, 8).file
    for call in (
        lambda: index_file.header(file, slots, entries),
        lambda: index_file.put(file, slots, entries, entries, 0, 0, 0),
        lambda: index_file.Walk(file, slots, entries, 0, 0, 0),
        lambda: index_file.validate(file, slots, entries),
        lambda: index_file.cut(file, slots, entries, 0),
        lambda: index_file.entry(file, slots, entries, 0),
        lambda: index_file.plausible(file, slots, entries),
    ):
        with pytest.raises(ValueError, match="slots"):
            call()


def test_places_outside_the_file_are_refused(sut: Sut) -> None:
    with pytest.raises(ValueError, match="entry 8"):
        sut.entry(8)
    with pytest.raises(ValueError, match="limit 9"):
        index_file.put(*sut, 9, 0, 0, 0)


def test_a_file_that_is_only_read_gets_no_key(tmp_path: Path) -> None:
    path = tmp_path / "20240101000000000"
    path.write_bytes(make().bytes())
    file = MappedFile.open(str(path), 0, path.stat().st_size, "read")
    sut = Sut(file, 5, 8)
    with pytest.raises(io.UnsupportedOperation):
        sut.put(0, 0)
    with pytest.raises(io.UnsupportedOperation):
        index_file.cut(*sut, 0)
    assert sut.offsets(0) == []
    file.close()


@pytest.mark.parametrize(("slots", "entries"), [(1, 12), (5, 40), (7, 40), (100, 33), (999, 300)])
@pytest.mark.parametrize("count", [2, 11, 29])
def test_a_shape_is_deduced_from_the_bytes(
    slots: int, entries: int, count: int, rng: random.Random
) -> None:
    sut = make(slots, entries)
    for number in range(min(count, entries - 1)):
        sut.put(rng.randrange(1, 2**31), 1000 + 100 * number)
    assert index_file.plausible(*sut)
    assert index_file.deduce(sut.file) == (slots, entries)


def test_no_shape_is_deduced_where_several_fit(sut: Sut) -> None:
    assert index_file.plausible(*sut)
    assert index_file.plausible(sut.file, 10, 7)
    assert index_file.deduce(sut.file) is None


def test_no_shape_is_deduced_from_noise() -> None:
    sut = make(50, 200)
    sut.file.write(0, random.Random(1).randbytes(sut.file.size))
    assert index_file.deduce(sut.file) is None
    assert index_file.deduce(MappedFile.anonymous(0, 41)) is None


@settings(max_examples=200, deadline=None)
@given(data=st.binary(min_size=220, max_size=220), number=st.integers(0, 2**31 - 1))
def test_no_bytes_make_a_look_up_leave_the_file_or_run_for_ever(data: bytes, number: int) -> None:
    sut = make()
    sut.file.write(0, data)
    assert len(sut.offsets(number, begin_ms=-(2**63))) <= 7
    sut.valid()
    following = index_file.cut(*sut, 2**62)
    assert sut.valid()
    assert 1 <= following <= 8
    assert sut.put(number, 2**62) == (following < 8)


#: Validates a file of 5,000 keys that another process changes meanwhile.
VALIDATE = """
import sys
from rocketstore._native.format import index_file
from rocketstore._native.os.mapped_file import MappedFile
file = MappedFile.open(sys.argv[1], 0, int(sys.argv[2]), "read")
for _ in range(1500):
    index_file.validate(file, 50_000, 100_000)
"""


@pytest.mark.timeout(120)
def test_an_entry_that_changes_while_it_is_looked_at_leads_nowhere(tmp_path: Path) -> None:
    """What was in bounds when it was compared may not be when it is followed."""
    sut = make(50_000, 100_000)
    for number in range(5000):
        sut.put(f"orders#{number % 50}", number)
    path = tmp_path / "20240101000000000"
    path.write_bytes(sut.bytes())
    at = index_file.entry_position(sut.slots, 4000) + 16
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        sound = mapped[at : at + 4]
        program = [sys.executable, "-c", VALIDATE, str(path), str(sut.file.size)]
        with subprocess.Popen(program) as process:
            while process.poll() is None:
                mapped[at : at + 4] = b"\x7f\xff\xff\xf0"
                sum(range(100))
                mapped[at : at + 4] = sound
                sum(range(1000))
    assert process.returncode == 0
