"""Cuts of an index file: what lies below stays, what was torn is mended; damage is told."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore._native.format import index_file
from tests.support.index_tools import NOW_MS, Sut, expected, filled, make


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.5])
def test_a_cut_leaves_what_lies_below(share: float, rng: random.Random) -> None:
    sut, puts = filled(rng)
    limit = int(puts[-1][1] * share)
    kept = [put for put in puts if put[1] < limit]
    assert index_file.cut(*sut, limit) == len(kept) + 1
    assert sut.valid()
    for number in range(12):
        assert sut.offsets(number) == expected(kept, number)
    begin, end, begin_offset, end_offset, used, count, sane = index_file.header(*sut)
    assert (count, sane) == (len(kept) + 1, True)
    assert used == len({number % 7 for number, _, _ in kept})
    if kept:
        assert (begin, begin_offset, end_offset) == (NOW_MS, kept[0][1], kept[-1][1])
        assert kept[-1][2] <= end < max(kept[-1][2] + 1000, kept[-1][2] + 1)


def test_a_cut_file_is_the_file_that_never_had_more(rng: random.Random) -> None:
    """Puts after a cut give the same bytes as puts into a file that was never longer."""
    sut, puts = filled(rng)
    limit = puts[15][1]
    kept = [put for put in puts if put[1] < limit]
    index_file.cut(*sut, limit)
    twin = make(7, 40)
    for put in kept:
        twin.put(*put)
    assert sut.bytes()[16:] == twin.bytes()[16:]
    for put in puts[len(kept) :]:
        sut.put(*put)
        twin.put(*put)
    assert sut.bytes() == twin.bytes()


def test_a_cut_mends_torn_slots_and_chains(rng: random.Random) -> None:
    """After a loss of power slots and previous numbers of any age can stand beside good entries."""
    sut, puts = filled(rng)
    whole = sut.bytes()
    for slot in range(7):
        sut.write_slot(slot, rng.choice((0, 1, 29, 35, -1)))
    for number, (hash_, offset, _) in enumerate(puts, 1):
        diff_s = sut.entry(number)[2]
        sut.write_entry(number, hash_, offset, diff_s, rng.randrange(-1, 40))
    assert not sut.valid()
    index_file.cut(*sut, 2**62)
    assert sut.bytes() == whole


def test_a_cut_mends_what_the_header_says_of_the_first_entry() -> None:
    """Else the file looks like one of another shape from then on, and its keys are not found."""
    sut, _ = filled(random.Random(7))
    whole = sut.bytes()
    sut.file.write(16, b"\x7f")
    assert not index_file.plausible(*sut)
    index_file.cut(*sut, 2**62)
    assert index_file.plausible(*sut)
    assert sut.bytes() == whole


def test_a_cut_stops_at_the_first_entry_that_the_disk_never_got() -> None:
    sut, puts = filled(random.Random(7))
    position = next(n for n, put in enumerate(puts, 1) if put[1] > 500)
    sut.write_entry(position, 0, 0)  # a page of zeros
    assert index_file.cut(*sut, 2**62) == position
    assert sut.valid()
    for number in range(12):
        assert sut.offsets(number) == expected(puts[: position - 1], number)


def test_an_interrupted_cut_is_finished_by_the_same_cut() -> None:
    sut, puts = filled(random.Random(11))
    limit = puts[20][1]
    twin, _ = filled(random.Random(11))
    index_file.cut(*twin, limit)
    for slot in range(7):  # slots cleared, header not yet written
        sut.write_slot(slot, 0)
    index_file.cut(*sut, limit)
    assert sut.bytes() == twin.bytes()


def test_a_cut_clears_the_entry_that_was_never_counted() -> None:
    sut = make()
    sut.put(0, 7)
    sut.put(0, 8)
    sut.write_count(2)
    index_file.cut(*sut, 100)
    assert sut.entry(2) == (0, 0, 0, 0)
    assert sut.offsets(0) == [7]
    assert sut.valid()


def test_validation_finds_each_kind_of_damage() -> None:
    def damaged(damage: Any) -> bool:
        sut, puts = filled(random.Random(3))
        assert sut.valid()
        damage(sut, puts)
        return not sut.valid()

    def entry_of_another_slot(sut: Sut, puts: list[Any]) -> None:
        hash_, offset, diff_s, previous = sut.entry(20)
        sut.write_entry(20, hash_ + 1, offset, diff_s, previous)

    assert damaged(entry_of_another_slot)
    assert damaged(lambda sut, _: sut.write_slot(3, 0))
    assert damaged(lambda sut, _: sut.write_slot(3, 31))
    assert damaged(lambda sut, _: sut.write_count(30))
    assert damaged(lambda sut, _: sut.write_count(32))
    assert damaged(lambda sut, puts: sut.write_entry(30, -5, puts[-1][1]))
    assert damaged(lambda sut, puts: sut.write_entry(30, puts[-1][0], puts[0][1] - 1))
    assert damaged(lambda sut, puts: sut.write_entry(30, puts[-1][0], puts[-1][1], -1))


@settings(max_examples=50, deadline=None)
@given(
    damage=st.lists(st.tuples(st.integers(0, 859), st.integers(0, 255)), min_size=1, max_size=12),
    limit=st.integers(0, 5000),
)
def test_a_cut_mends_whatever_was_flipped(damage: list[tuple[int, int]], limit: int) -> None:
    sut, _ = filled(random.Random(5))
    for position, value in damage:
        sut.file.write(min(position, sut.file.size - 1), bytes([value]))
    index_file.cut(*sut, limit)
    assert sut.valid()
    for number in range(12):
        assert all(offset < limit for offset in sut.offsets(number, begin_ms=-(2**63)))
