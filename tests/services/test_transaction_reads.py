"""A transaction owns what it read: it is committed with it, and comes again after a rollback."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from rocketstore import (
    BackpressureError,
    Consumer,
    CorruptRecordError,
    DiskFullError,
    NoGroupError,
    OffsetGapError,
    Store,
    StoreClosedError,
)
from rocketstore.services.transactions.commits import Commits
from tests.support.small_store import everything
from tests.support.transactions import filled, open_small, state


def bodies(messages: Any) -> list[bytes]:
    return [bytes(message.body) for message in messages]


def committed(store: Store) -> dict[int, int]:
    return dict(store.committed("in", "work"))


def pass_on(tx: Any, messages: Any) -> list[bytes]:
    for message in messages:
        tx.put("out", message.body)
    return bodies(messages)


def test_what_was_read_is_committed_and_comes_again_after_a_rollback(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        found = consumer.positions
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            assert pass_on(tx, tx.consume(consumer, 2)) == [b"1", b"2"]
            assert pass_on(tx, tx.consume(consumer, 1)) == [b"3"]
            assert consumer.positions == {0: 4}
            raise ZeroDivisionError
        assert (consumer.positions, committed(store)) == (found, {0: 1})
        with store.transaction() as tx:
            assert pass_on(tx, tx.consume(consumer, 2)) == [b"1", b"2"]
            assert pass_on(tx, tx.consume(consumer, 1)) == [b"3"]
        assert committed(store) == {0: 4}
        with store.transaction() as tx:
            tx.consume(consumer)
            assert tx.consume(consumer) == []
            tx.rollback()
        assert bodies(consumer.poll()) == [b"4"]
        assert bodies(everything(store, "out")) == [b"1", b"2", b"3"]


def test_a_loop_that_goes_on_after_an_error_skips_nothing(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for n in range(10):
            store.writer("in", queue_id=n % 3).put(b"%d" % n)
        failures = [DiskFullError("once"), ValueError("once"), BackpressureError("once")]
        with store.consumer("in", group="work") as consumer:
            while consumer.lag():
                try:
                    with store.transaction() as tx:
                        pass_on(tx, tx.consume(consumer, 4))
                        if failures:
                            raise failures.pop()
                except (OSError, ValueError, BackpressureError):
                    assert committed(store) == {}
        assert sorted(bodies(everything(store, "out"))) == [b"%d" % n for n in range(10)]
        assert committed(store) == {0: 4, 1: 3, 2: 3}


def test_a_commit_that_stores_nothing_takes_the_consumer_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFullError("no room")

    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(Commits, "_append", full)
            with pytest.raises(DiskFullError), store.transaction() as tx:
                pass_on(tx, tx.consume(consumer, 3))
        assert (tx.outcome, consumer.positions) == ("rollback", {0: 1})
        with store.transaction() as tx:
            pass_on(tx, tx.consume(consumer))
        assert state(store) == ([b"1", b"2", b"3", b"4"], [], 5)


def test_a_damaged_message_is_met_again_after_a_rollback(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        place = everything(store, "in")[3].physical_offset
    segment = tmp_path / "commitlog" / f"{0:020}"
    data = bytearray(segment.read_bytes())
    data[data.index(b"3", place + 84)] ^= 1
    segment.write_bytes(data)
    with open_small(tmp_path) as store, store.consumer("in", group="work") as consumer:
        for _ in range(2):
            with pytest.raises(CorruptRecordError), store.transaction() as tx:
                assert pass_on(tx, tx.consume(consumer)) == [b"1", b"2"]
                tx.consume(consumer)
            assert consumer.positions == {0: 1}
        with store.transaction() as tx:
            pass_on(tx, tx.consume(consumer))
        consumer.seek(4, queue_id=0)
        with store.transaction() as tx:
            with pytest.raises(OffsetGapError):
                tx.consume(consumer)
            pass_on(tx, tx.consume(consumer, allow_gap=True))
        assert state(store) == ([b"1", b"2", b"4"], [], 5)


def test_offsets_step_over_no_message_that_nobody_has_read(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        consumer.poll(2)
        one = consumer.poll(1)[0]
        with store.transaction() as tx:
            for upto in (None, one, {0: 4}, {0: 2}):
                with pytest.raises(OffsetGapError, match="messages 1 to"):
                    tx.commit_offsets(consumer, upto)
            with pytest.raises(OffsetGapError) as met:
                tx.consume(consumer)
            error = pickle.loads(pickle.dumps(met.value))
            found = (error.topic, error.queue_id, error.group, error.committed, error.begin)
            assert found == ("in", 0, "work", 1, 4)
            text = str(met.value)
            for said in ("'in', queue 0", "'work'", "up to 1", "allow_gap=True", "tx.consume("):
                assert said in text
            assert tx.commit_offsets(consumer, {0: 1}) == {0: 1}
            assert tx.commit_offsets(consumer, allow_gap=True) == {0: 4}
            assert bodies(tx.consume(consumer)) == [b"4"]
        assert committed(store) == {0: 5}


def test_what_the_last_poll_gave_and_a_message_in_hand_are_read(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        for message in consumer:
            with store.transaction() as tx:
                tx.put("out", message.body)
                tx.commit_offsets(consumer, message)
                if message.body == b"2":
                    break
        consumer.rewind()
        messages = consumer.poll(2)
        for _ in range(2):
            with store.transaction() as tx:
                tx.commit_offsets(consumer, messages[-1])
        assert committed(store) == {0: 5}
        consumer.commit({0: 1})
        consumer.rewind()
        next(consumer)
        next(consumer)
        with store.transaction() as tx, pytest.raises(OffsetGapError):
            tx.commit_offsets(consumer)
        consumer.rewind()
        with store.transaction() as tx:
            consumer.poll(1)
            for message in consumer:
                if message.body == b"2":
                    break
            consumer.poll(1)
            assert tx.commit_offsets(consumer) == {0: 4}
            next(consumer)
        with store.transaction() as tx, pytest.raises(OffsetGapError):
            tx.commit_offsets(consumer)


def test_a_filter_and_a_trim_leave_no_gap(tmp_path: Path) -> None:
    with open_small(tmp_path, commit_log_file_size_bytes=16384) as store:
        writer = store.writer("in")
        for n in range(400):
            writer.put(b"%d" % n, tags="odd" if n % 2 else "even")
        with store.consumer("in", group="work", tags="odd", reset="earliest") as consumer:
            with store.transaction() as tx:
                tx.commit_offsets(consumer, consumer.poll(1)[0])
            for _ in range(2):
                with store.transaction() as tx:
                    pass_on(tx, consumer.poll(2))
                    tx.commit_offsets(consumer)
            store.trim(before_offset=store.end_offset - 16384)
            with store.transaction() as tx:
                assert len(pass_on(tx, tx.consume(consumer, 20))) == 20
            consumer.seek("latest")
            consumer.commit()
        with store.consumer("in", group="new", offset="latest") as consumer:
            writer.put(b"new")
            with store.transaction() as tx:
                assert bodies(tx.consume(consumer)) == [b"new"]


def test_two_transactions_of_one_group(tmp_path: Path) -> None:
    """The second may not be committed before the first; a rollback of the first undoes both."""
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        one, two = store.transaction(), store.transaction()
        pass_on(one, one.consume(consumer, 2))
        with pytest.raises(OffsetGapError):
            two.consume(consumer, 1)
        one.commit()
        three = store.transaction()
        pass_on(two, two.consume(consumer, 1))
        three.commit_offsets(consumer, {0: 4})
        two.rollback()
        assert consumer.positions == {0: 3}
        with pytest.raises(OffsetGapError, match="messages 3 to 3"):
            two_later(store, consumer)
        assert committed(store) == {0: 3}
        three.rollback()
        consumer.rewind()
        with store.transaction() as tx:
            pass_on(tx, tx.consume(consumer))
        assert state(store)[0] == [b"1", b"2", b"3", b"4"]


def two_later(store: Store, consumer: Consumer) -> None:
    consumer.poll(1)
    messages = consumer.poll(1)
    with store.transaction() as tx:
        pass_on(tx, messages)
        tx.commit_offsets(consumer)


def test_what_was_read_before_is_committed_first(tmp_path: Path) -> None:
    """The commit looks again: the group may have been set back since the messages were read."""
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        consumer.commit({0: 3})
        consumer.seek("committed")
        tx = store.transaction()
        pass_on(tx, tx.consume(consumer))
        consumer.commit({0: 1})
        with pytest.raises(OffsetGapError, match="messages 1 to 2"):
            tx.commit()
        assert (tx.outcome, committed(store)) == (None, {0: 1})
        tx.rollback()
        assert consumer.positions == {0: 3}
        consumer.rewind()
        assert bodies(consumer.poll()) == [b"1", b"2", b"3", b"4"]


def test_back_to_what_the_group_has_committed(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.writer("in", queue_id=1).put(b"other")
        with store.consumer("in", group="work") as consumer:
            assert len(consumer.poll()) == 5
            consumer.seek("committed", queue_id=0)
            assert consumer.positions == {0: 1, 1: 1}
            consumer.rewind()
            assert consumer.positions == {0: 1, 1: 0}
        with store.consumer("in") as consumer:
            for act in (consumer.rewind, lambda: consumer.seek("committed")):
                with pytest.raises(NoGroupError, match="group="):
                    act()
        with store.transaction() as tx:
            with pytest.raises(StoreClosedError):
                tx.consume(consumer)
            with pytest.raises(NoGroupError):
                tx.consume(store.consumer("in"))
            with pytest.raises(TypeError, match="expected a Consumer, not str"):
                tx.consume("in")  # type: ignore[arg-type]


def test_a_consumer_that_was_closed_is_no_hindrance_to_a_rollback(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            with store.consumer("in", group="work") as consumer:
                pass_on(tx, tx.consume(consumer))
            raise ZeroDivisionError
        assert tx.outcome == "rollback"
        with store.consumer("in", group="work") as consumer:
            assert consumer.positions == {0: 1}
