"""Epochs: up to where two logs are the same, whatever masters did to them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import ReplicationError
from rocketstore.replication.protocol.epochs import (
    EPOCHS_MAX,
    Epoch,
    check_epochs,
    common_end,
    promoted_twice,
    with_promotion,
    with_run,
)

A, B, C = (bytes([letter]) * 8 for letter in b"abc")


def test_first_epoch_is_of_the_whole_log() -> None:
    (first,) = with_run((), begin=100, end=500)
    assert (first.term, first.run, first.start) == (1, 0, 100)


def test_open_without_a_put_takes_the_place_of_the_epoch_before() -> None:
    once = with_run(with_run((), begin=0, end=10), begin=0, end=50)
    again = with_run(once, begin=0, end=50)
    assert [(one.run, one.start) for one in again] == [(0, 0), (2, 50)]
    assert again[-1].id != once[-1].id


def test_first_epoch_of_a_term_stays_without_a_byte() -> None:
    promoted = with_promotion(with_run((), begin=0, end=10), begin=0, end=50)
    again = with_run(promoted, begin=0, end=50)
    assert [(one.term, one.run, one.start) for one in again] == [(1, 0, 0), (2, 0, 50), (2, 1, 50)]


def test_promotion_is_above_every_term_that_was_heard_of() -> None:
    assert with_promotion((), begin=0, end=0, above=7)[-1].term == 8


@pytest.mark.parametrize(
    ("mine", "my_end", "theirs", "their_end", "common"),
    [
        ([(1, 0, 0, A)], 90, [(1, 0, 0, A)], 40, 40),
        ([(1, 0, 0, A)], 40, [(1, 0, 0, A)], 90, 40),
        ([(1, 0, 0, A), (1, 1, 60, B)], 90, [(1, 0, 0, A)], 80, 60),
        ([(1, 0, 0, A), (1, 1, 60, B)], 90, [(1, 0, 0, A), (2, 0, 50, C)], 80, 50),
        ([(1, 0, 0, A), (1, 1, 60, B)], 90, [(1, 0, 0, A), (1, 1, 60, B)], 70, 70),
        ([(1, 0, 0, A), (1, 1, 60, B)], 90, [(1, 0, 0, A), (1, 1, 60, B)], 30, 30),
        ([(1, 0, 0, A)], 90, [(1, 0, 0, B)], 90, None),
        ([], 90, [(1, 0, 0, B)], 90, None),
    ],
)
def test_common_end(
    mine: list[tuple[int, int, int, bytes]],
    my_end: int,
    theirs: list[tuple[int, int, int, bytes]],
    their_end: int,
    common: int | None,
) -> None:
    here, there = [Epoch(*one) for one in mine], [Epoch(*one) for one in theirs]
    assert common_end(here, my_end, there, their_end) == common
    assert common_end(there, their_end, here, my_end) == common


def test_two_promotions_to_one_term_are_told_apart() -> None:
    before = with_run((), begin=0, end=10)
    one, other = (with_promotion(before, begin=0, end=40) for _ in range(2))
    assert promoted_twice(one, other)
    assert promoted_twice(with_run(one, begin=0, end=40), other)
    assert not promoted_twice(one, with_run(one, begin=0, end=90))
    assert not promoted_twice(before, one)
    # The first epoch of a term is gone where a tail was lost from before it.
    lost = with_run(one, begin=0, end=30)
    assert [(kept.term, kept.run) for kept in lost] == [(1, 0), (2, 1)]
    assert promoted_twice(lost, other)
    assert promoted_twice(other, lost)
    assert not promoted_twice(lost, with_run(lost, begin=0, end=70))
    assert not promoted_twice((), ())


@pytest.mark.parametrize(
    "wrong",
    [
        [Epoch(1, 0, 0, A), Epoch(1, 0, 5, B)],
        [Epoch(2, 0, 0, A), Epoch(1, 1, 5, B)],
        [Epoch(1, 0, 9, A), Epoch(1, 1, 5, B)],
        [Epoch(1, 0, -1, A)],
        [Epoch(0, 0, 0, A)],
        [Epoch(1, 0, 2**63, A)],
        [Epoch(2**32, 0, 0, A)],
        [Epoch(1, 0, 0, b"short")],
        [Epoch(1, run, run, A) for run in range(EPOCHS_MAX + 1)],
    ],
)
def test_no_history(wrong: list[Epoch]) -> None:
    with pytest.raises(ValueError, match="epoch|term"):
        check_epochs(wrong)


def test_history_has_a_bound() -> None:
    epochs: tuple[Epoch, ...] = ()
    for end in range(1, EPOCHS_MAX + 10):
        epochs = with_run(epochs, begin=0, end=end)
    check_epochs(epochs)
    assert len(epochs) == EPOCHS_MAX


@dataclass
class _Node:
    """A log of tokens, each put once; its history."""

    log: list[int] = field(default_factory=list)
    epochs: tuple[Epoch, ...] = ()


@given(st.integers(0, 2**32), st.integers(5, 60))
def test_what_is_called_common_is_the_same(seed: int, steps: int) -> None:
    """Masters put, lose tails and are opened again; replicas follow, are cut and are promoted."""
    rng = random.Random(seed)
    nodes = [_Node() for _ in range(3)]
    nodes[0].epochs = with_run((), begin=0, end=0)
    master, token = 0, 0
    for _ in range(steps):
        here = nodes[master]
        what = rng.choice(("put", "put", "follow", "follow", "open", "lose", "promote"))
        if what == "put":
            here.log += range(token, token := token + rng.randrange(1, 4))
        elif what in ("open", "lose"):
            if what == "lose":
                del here.log[rng.randrange(len(here.log) + 1) :]
            here.epochs = with_run(here.epochs, begin=0, end=len(here.log))
        else:
            chosen = rng.randrange(len(nodes))
            there = nodes[chosen]
            if chosen == master:
                continue
            if what == "promote":
                heard = max(one.epochs[-1].term for one in nodes if one.epochs)
                there.epochs = with_promotion(
                    there.epochs, begin=0, end=len(there.log), above=heard if there.epochs else 0
                )
                if there.epochs[0].id == nodes[0].epochs[0].id or not there.log:
                    master = chosen
                continue
            _follow(there, here, rng)
        check_epochs(nodes[master].epochs)


def _follow(replica: _Node, master: _Node, rng: random.Random) -> None:
    common = common_end(replica.epochs, len(replica.log), master.epochs, len(master.log))
    if common is None:
        assert not replica.log or replica.epochs
        if replica.log:
            return
        common = 0
    assert replica.log[:common] == master.log[:common]
    del replica.log[common:]
    replica.epochs = master.epochs
    replica.log += master.log[common : common + rng.randrange(6)]


def test_no_term_comes_after_the_largest() -> None:
    """A history with one would not be read again."""
    last = with_promotion((), begin=0, end=0, above=2**32 - 2)
    check_epochs(last)
    with pytest.raises(ReplicationError, match="no term comes after 4294967295"):
        with_promotion(last, begin=0, end=0)
    with pytest.raises(ReplicationError):
        with_promotion((), begin=0, end=0, above=2**40)
