"""One damaged half, op or delivered message: the other transactions go on, and it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptRecordError, ReadFailedError
from rocketstore.testing import ManualClock
from tests.services.test_transactions import HALF, OP, as_java, bodies
from tests.support.made_store import BODY_AT
from tests.support.small_store import everything, open_small
from tests.support.waiting import wait_until

#: One segment, so that a physical offset is a position in its file.
BIG: dict[str, Any] = {"commit_log_file_size_bytes": 1 << 16, "durability": "os"}


def damage(path: Path, record: Any, *, magic: bool = False) -> None:
    """Another byte in the body of a record, or in its magic: then nothing of it can be believed."""
    at = record.physical_offset + 4 if magic else record.physical_offset + record.size
    (segment,) = (path / "commitlog").iterdir()
    data = bytearray(segment.read_bytes())
    if not magic:
        at = record.physical_offset + BODY_AT
        assert data.startswith(bytes(record.body), at)
    data[at] ^= 0xFF
    segment.write_bytes(data)


def prepared(path: Path, count: int = 3) -> list[Any]:
    """Half messages of so many transactions that are open, in a store that is closed."""
    with open_small(path, **BIG) as store:
        for n in range(count):
            store.transactions.prepare("orders", b"body %d" % n, group="billing")
        return everything(store, HALF)


@pytest.mark.parametrize("magic", [False, True])
def test_the_others_are_listed_and_settled(
    tmp_path: Path, magic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first, bad, last = prepared(tmp_path)
    damage(tmp_path, bad, magic=magic)
    with open_small(tmp_path, **BIG) as store:
        listed = store.transactions.open()
        assert [one.id for one in listed] == [h.physical_offset for h in (first, bad, last)]
        assert [one.topic for one in listed] == ["orders", "", "orders"]
        assert (listed[0].error, listed[2].error) == (None, None)
        shown = listed[1]
        assert isinstance(shown.error, CorruptRecordError)
        assert (shown.queue_id, shown.age_s, shown.checks) == (-1, 0.0, 0)
        (error,) = store.transactions.errors
        assert isinstance(error, CorruptRecordError)
        assert (error.topic, error.queue_id, error.queue_offset) == (HALF, 0, 1)
        assert "cannot be read, see transactions.errors: 1, the last one" in caplog.text
        assert store.get(store.transactions.commit(first.physical_offset)).body == b"body 0"
        store.transactions.rollback(last.physical_offset)
        with pytest.raises(CorruptRecordError):
            store.transactions.commit(bad.physical_offset)
        assert [one.id for one in store.transactions.open()] == [bad.physical_offset]
    with open_small(tmp_path, **BIG) as store:
        assert [one.id for one in store.transactions.open()] == [bad.physical_offset]
        store.transactions.rollback(bad.physical_offset)
        assert (store.transactions.open(), store.transactions.errors) == ([], [])
    with open_small(tmp_path, **BIG) as store:
        assert (store.transactions.open(), store.transactions.errors) == ([], [])
        assert bodies(store) == [b"body 0"]


def test_a_settled_half_message_may_be_damaged(tmp_path: Path) -> None:
    halves = prepared(tmp_path)
    with open_small(tmp_path, **BIG) as store:
        store.transactions.commit(halves[1].physical_offset)
    damage(tmp_path, halves[1])
    with open_small(tmp_path, **BIG) as store:
        assert [one.id for one in store.transactions.open()] == [
            halves[n].physical_offset for n in (0, 2)
        ]
        assert store.transactions.errors == []


@pytest.mark.parametrize("changed", [b"TRANS_HALF", b"TRANS_OP_HALF"])
def test_a_changed_file_of_offsets_opens_no_settled_transaction(
    tmp_path: Path, changed: bytes
) -> None:
    """It has one offset of half messages and one of their ends, which are of one moment."""
    with open_small(tmp_path, **BIG) as store:
        for end in (store.transactions.rollback, store.transactions.commit):
            end(store.transactions.prepare("orders", b"x", group="billing").id)
        ends = len(everything(store, OP))
    path = tmp_path / "config/consumerOffset.json"
    text = path.read_bytes()
    assert text.count(b"RMQ_SYS_" + changed) == 1
    path.write_bytes(text.replace(b"RMQ_SYS_" + changed, b"RMQ_SYS_" + changed[:-1] + b"X"))
    with open_small(tmp_path, **BIG) as store:
        assert store.recovery.offsets_in_doubt
        assert store.transactions.open() == []
        assert len(everything(store, OP)) == ends
        assert [bytes(one.body) for one in everything(store, "orders")] == [b"x"]
    with open_small(tmp_path, **BIG) as store:
        assert not store.recovery.offsets_in_doubt
        assert store.transactions.open() == []


def test_check_back_goes_on_for_the_others(tmp_path: Path) -> None:
    first, bad, last = prepared(tmp_path)
    damage(tmp_path, bad)
    asked: list[bytes] = []

    def on_check(half: rocketstore.Message) -> Any:
        asked.append(half.body)
        return "commit"

    with open_small(tmp_path, **BIG) as store:
        store.transactions.check_back(on_check, immunity_s=0)
        wait_until(lambda: len(store.transactions.open()) == 1)
        assert sorted(asked) == [first.body, last.body]
        assert store.transactions.check_error is None
        assert [one.id for one in store.transactions.open()] == [bad.physical_offset]


def test_one_that_is_damaged_while_the_store_is_open_holds_up_no_other(tmp_path: Path) -> None:
    clock = ManualClock()
    asked: list[bytes] = []
    with open_small(tmp_path, clock=clock, **BIG) as store:
        for n in range(2):
            store.transactions.prepare("orders", b"body %d" % n, group="billing")
        first, last = everything(store, HALF)
        store.transactions.check_back(
            lambda half: asked.append(half.body), interval_s=1, max_checks=1
        )
        clock.advance(6)
        wait_until(lambda: len(asked) == 2)
        checks: Any = store.transactions._checks
        wait_until(lambda: not checks._questions)
        del first
        damage(tmp_path, everything(store, HALF)[0])
        clock.advance(1)  # both are given up now
        wait_until(lambda: len(store.transactions.open()) == 1)
        (left,) = store.transactions.open()
        assert left.id < last.physical_offset
        assert isinstance(left.error, CorruptRecordError)
        assert isinstance(store.transactions.check_error, CorruptRecordError)
        store.transactions.rollback(left.id)
        assert store.transactions.open() == []


def test_what_a_damaged_op_message_settled_is_open_unless_its_copy_is_there(
    tmp_path: Path,
) -> None:
    halves = prepared(tmp_path, 4)
    with open_small(tmp_path, **BIG) as store:
        store.transactions.commit(halves[1].physical_offset)
        store.transactions.rollback(halves[2].physical_offset)
        ops = everything(store, OP)
        store.put_message(
            "other", b"the last record says whether the log is the one that was closed"
        )
    for op in ops:
        damage(tmp_path, op)
    with open_small(tmp_path, **BIG) as store:
        assert [one.id for one in store.transactions.open()] == [
            halves[n].physical_offset for n in (0, 2, 3)
        ]
        assert [error.topic for error in store.transactions.errors] == [OP, OP]  # type: ignore[union-attr]
        store.transactions.rollback(halves[2].physical_offset)
        store.transactions.commit(halves[1].physical_offset)
        assert bodies(store) == [b"body 1"]


def test_a_damaged_message_of_the_topic_is_no_copy(tmp_path: Path) -> None:
    """It can be the copy that a crash left without an op message: then nobody was given it."""
    with open_small(tmp_path, **BIG) as store:
        half = as_java(store, b"paid", "u").physical_offset
        store.put_message(
            "orders", b"copy", queue_id=3, sys_flag=8, prepared_transaction_offset=half
        )
        other = as_java(store, b"other", "v").physical_offset
        copy = everything(store, "orders")[0]
    damage(tmp_path, copy)
    with open_small(tmp_path, **BIG) as store:
        assert [one.id for one in store.transactions.open()] == [half, other]
        store.transactions.commit(other)
        assert store.get(store.transactions.commit(half)).body == b"paid"


def test_what_the_disk_does_not_give_back_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocketstore.log.read import reader

    with open_small(tmp_path, **BIG) as store:
        half = as_java(store, b"paid", "u").physical_offset
        put = store.put_message(
            "orders", b"copy", queue_id=3, sys_flag=8, prepared_transaction_offset=half
        )

    def fails(source: Any, place: Any, count: int, *more: Any) -> Any:
        if place.topic in unreadable:
            raise ReadFailedError("EIO")
        return real(source, place, count, *more)

    real = reader.messages_at
    unreadable = {"orders", HALF}
    monkeypatch.setattr(reader, "messages_at", fails)
    with open_small(tmp_path, **BIG) as store:
        (listed,) = store.transactions.open()
        assert (listed.id, listed.topic) == (half, "")
        assert isinstance(listed.error, ReadFailedError)
        with pytest.raises(ReadFailedError, match="EIO"):  # whether it was delivered, nobody knows
            store.transactions.commit(half)
        assert store.transactions.open()[0].topic == "orders"
        unreadable.clear()
        assert store.transactions.commit(half) == put.physical_offset
        assert (store.transactions.open(), store.transactions.errors) == ([], [])


def test_a_copy_that_rocketmq_put_again_stands_for_a_damaged_first_one(tmp_path: Path) -> None:
    with open_small(tmp_path, **BIG) as store:
        as_java(store, b"first", "u")
        as_java(store, b"paid", "u", TRANSACTION_CHECK_TIMES="1", TRAN_PREPARED_QUEUE_OFFSET="0")
        first, again = everything(store, HALF)
    damage(tmp_path, first)
    with open_small(tmp_path, **BIG) as store:
        (listed,) = store.transactions.open()
        assert (listed.id, listed.topic, listed.error) == (again.physical_offset, "orders", None)
        store.transactions.commit(first.physical_offset)
        assert bodies(store) == [b"paid"]
        (op,) = everything(store, OP)
        assert op.body == b"1,0"
