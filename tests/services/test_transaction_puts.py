"""Everything a put can do, in a transaction; and one id, one meaning, outside of it, too."""

from __future__ import annotations

import datetime
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstore import (
    MessageNotFoundError,
    MessageRejectedError,
    MessageTooLargeError,
    NewMessage,
    QueueOffsetMismatchError,
    Store,
)
from rocketstore.services.transactions import commits
from rocketstore.testing import ManualClock
from tests.power_loss.oracle import leave
from tests.support.small_store import engine_of, everything
from tests.support.transactions import RECORDS, Died, died, filled, open_small, record_alone
from tests.support.waiting import wait_until

HOUR = datetime.timedelta(hours=1)
BEGIN = 1_700_000_000_000


def bodies(store: Store, topic: str) -> list[bytes]:
    return sorted(bytes(message.body) for message in everything(store, topic))


def waiting(store: Store) -> list[tuple[str, bytes]]:
    return sorted((one.unique_id or "", bytes(one.message.body)) for one in store.delayed)


def clocked(path: Path, at_ms: int = BEGIN, **options: Any) -> tuple[Store, ManualClock]:
    clock = ManualClock(at_ms)
    return open_small(path, clock=clock, **options), clock


def all_kinds(tx: Any) -> None:
    tx.put("out", b"now", keys="k", tags="t")
    tx.put("out", b"timer", deliver_after=HOUR, unique_id="one", queue_id=2)
    tx.put("out", b"at", deliver_at=BEGIN + 7_200_000)
    tx.put("out", b"level", delay_level=3)
    tx.put_batch([NewMessage("log", b"a"), NewMessage("log", b"b", deliver_after=HOUR)])


def test_delays_are_part_of_it_and_results_say_where(tmp_path: Path) -> None:
    store, clock = clocked(tmp_path)
    with store, store.transaction() as tx:
        all_kinds(tx)
        assert (tx.results, len(store.delayed)) == ([], 0)
        tx.commit()
        now, timer, at, level, a, b = tx.results
        assert (now.queue_offset, now.due_time, now.id) == (0, None, None)
        assert (timer.id, timer.due_time) == ("one", moment(BEGIN + 3_600_000))
        assert at.due_time == moment(BEGIN + 7_200_000) and at.id
        assert level.due_time == moment(level.store_timestamp_ms + 10_000)
        assert (a.queue_offset, b.id is not None) == (0, True)
        assert all(one.durability == "disk" for one in tx.results)
        assert pickle.loads(pickle.dumps(timer)) == timer
        assert everything(store, "out")[0].physical_offset == now.physical_offset
        assert len(store.delayed) == 4
        assert store.delayed.cancel(at) and not store.delayed.cancel(at)
        clock.advance(2 * HOUR)
        wait_until(lambda: bodies(store, "out") == [b"level", b"now", b"timer"])
        wait_until(lambda: bodies(store, "log") == [b"a", b"b"])


def moment(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


@pytest.mark.parametrize("step", ["record", "all"])
def test_delays_survive_a_crash_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The record alone reaches the disk, or all of it; what was cancelled stays cancelled."""
    store, _ = clocked(tmp_path)
    store.writer("out").put(b"old", deliver_after=HOUR, unique_id="old")
    store.writer("out").put(b"moved", deliver_after=HOUR, unique_id="moved")
    with monkeypatch.context() as patch:
        if step == "record":
            patch.setattr(commits, "append_batch", record_alone)
        patch.setattr(commits.Commits, "wait", died)
        with pytest.raises(Died), store.transaction() as tx:
            all_kinds(tx)
            assert tx.cancel("old") and tx.reschedule("moved", 2 * HOUR)
        engine_of(store).guests._made.clear()
        leave(store)
    for _ in range(2):
        store, _ = clocked(tmp_path)
        with store:
            assert [name for name, _ in waiting(store) if name in ("old", "moved", "one")] == [
                *("moved", "one")
            ]
            assert len(store.delayed) == 5
            assert len(everything(store, "out")) == 1
            moved = next(one for one in store.delayed if one.unique_id == "moved")
            assert moved.due_time == moment(BEGIN + 7_200_000)
    store, clock = clocked(tmp_path)
    with store:
        clock.advance(3 * HOUR)
        wait_until(lambda: bodies(store, "out") == [b"at", b"level", b"moved", b"now", b"timer"])
        assert len(store.delayed) == 0


def test_a_cancel_is_all_or_nothing(tmp_path: Path) -> None:
    store, clock = clocked(tmp_path)
    with store:
        writer = store.writer("out")
        writer.put(b"1", deliver_after=HOUR, unique_id="a")
        writer.put(b"2", deliver_after=HOUR, unique_id="b")
        with store.transaction() as tx:
            assert not tx.cancel("never there")
            assert tx.cancel("a")
            with pytest.raises(MessageRejectedError, match="ends it already"):
                tx.reschedule("a", HOUR)
            tx.put("paid", b"a")
            assert len(store.delayed) == 2
        assert waiting(store) == [("b", b"2")]
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            assert tx.cancel("b")
            raise ZeroDivisionError
        late = store.transaction()
        assert late.cancel("b")
        late.put("paid", b"b")
        clock.advance(HOUR)
        wait_until(lambda: bodies(store, "out") == [b"2"])
        with pytest.raises(MessageNotFoundError, match="'b': it was delivered"):
            late.commit()
        assert (late.outcome, bodies(store, "paid")) == (None, [b"a"])
        late.rollback()


def test_a_message_moves_to_another_time(tmp_path: Path) -> None:
    store, clock = clocked(tmp_path)
    with store:
        put = store.writer("out").put(b"1", deliver_after=HOUR, unique_id="a")
        with store.transaction() as tx:
            assert tx.reschedule("a", 3 * HOUR)
        clock.advance(2 * HOUR)
        assert store.delayed.next_due_time == moment(BEGIN + 10_800_000)
        with store.transaction() as tx:
            assert tx.reschedule("a", BEGIN + 9_000_000)
        assert store.delayed.reschedule(put, 2 * HOUR)
        clock.advance(2 * HOUR)
        wait_until(lambda: bodies(store, "out") == [b"1"])


def test_one_id_one_message_waiting_or_delivered(tmp_path: Path) -> None:
    """Feature: a unique id with a delay."""
    store, clock = clocked(tmp_path)
    with store:
        writer = store.writer("out")
        first = writer.put(b"1", deliver_after=HOUR, unique_id="a")
        assert (first.id, first.duplicate) == ("a", False)
        puts: list[Callable[[], Any]] = [
            lambda: writer.put(b"2", unique_id="a"),
            lambda: writer.put(b"2", unique_id="a", deliver_after=2 * HOUR),
            lambda: writer.put(b"2", unique_id="a", delay_level=2),
        ]
        for again in puts:
            result = again()
            assert (result.duplicate, result.id) == (True, "a")
            assert result.due_time == first.due_time
        level = writer.put(b"level", unique_id="l", delay_level=3)
        assert (level.id, level.due_time is not None) == ("l", True)
        other = store.writer("other")
        assert not other.put(b"other", unique_id="a", deliver_after=3 * HOUR).duplicate
    store, clock = clocked(tmp_path)
    with store:
        writer = store.writer("out")
        assert writer.put(b"2", unique_id="a").due_time == first.due_time
        assert writer.put(b"2", unique_id="l", deliver_after=HOUR).duplicate
        clock.advance(HOUR)
        wait_until(lambda: bodies(store, "out") == [b"1", b"level"])
        result = writer.put(b"2", unique_id="a", deliver_after=HOUR)
        assert (result.duplicate, result.due_time) == (True, None)
        with store.transaction() as tx:
            tx.put("out", b"2", unique_id="a")
            tx.put("out", b"3", unique_id="new", deliver_after=HOUR)
            with pytest.raises(MessageRejectedError, match="already"):
                tx.put("out", b"4", unique_id="new")
        assert [one.duplicate for one in tx.results] == [True, False]
        with store.transaction() as tx:
            tx.put("out", b"3", unique_id="new")
        assert [one.duplicate for one in tx.results] == [True]
        assert bodies(store, "out") == [b"1", b"level"]


def test_an_id_that_was_cancelled_is_free_again(tmp_path: Path) -> None:
    store, _ = clocked(tmp_path)
    with store:
        writer = store.writer("out")
        for n in range(2):
            assert not writer.put(b"%d" % n, unique_id="a", deliver_after=HOUR).duplicate
            assert store.delayed.cancel("a")
        writer.put(b"2", unique_id="b", deliver_after=HOUR)
        store.flush()
        with store.transaction() as tx:
            assert tx.cancel("b")
    store, _ = clocked(tmp_path)
    with store:
        for name in ("a", "b"):
            assert not store.writer("out").put(b"3", unique_id=name).duplicate
        assert bodies(store, "out") == [b"3", b"3"]


NEW: Any = {"unique_id": "a", "deliver_after": 2 * HOUR}


@pytest.mark.parametrize(
    "both",
    [
        lambda tx: (tx.cancel("a"), tx.put("out", b"new", **NEW)),
        lambda tx: (tx.put("out", b"new", **NEW), tx.cancel("a")),
    ],
)
def test_a_cancel_takes_no_message_of_its_own_transaction_along(tmp_path: Path, both: Any) -> None:
    """A put that counts as a duplicate of what the same commit cancels would be lost."""
    store, _ = clocked(tmp_path)
    with store:
        store.writer("out").put(b"old", unique_id="a", deliver_after=HOUR)
        tx = store.transaction()
        assert True in both(tx)
        with pytest.raises(MessageRejectedError, match="'a': the transaction cancels .* 'out'"):
            tx.commit()
        assert (tx.outcome, waiting(store)) == (None, [("a", b"old")])
        with store.transaction() as tx:
            assert tx.cancel("a")
            tx.put("log", b"new", unique_id="a")  # of another topic
        assert (waiting(store), bodies(store, "log")) == ([], [b"new"])


def test_an_offset_that_is_expected(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        with store.transaction() as tx:
            tx.put("in", b"5", expected_queue_offset=5)
            tx.put("in", b"6", expected_queue_offset=6)
        end = store.end_offset
        with (
            store.consumer("in", group="work") as consumer,
            pytest.raises(QueueOffsetMismatchError) as met,
            store.transaction() as tx,
        ):
            tx.consume(consumer)
            tx.put("out", b"x")
            tx.put("in", b"7", expected_queue_offset=8)
        assert (met.value.topic, met.value.queue_id) == ("in", 0)
        assert (met.value.expected, met.value.actual) == (8, 7)
        assert (tx.outcome, store.end_offset) == ("rollback", end)
        with store.transaction() as tx:
            with pytest.raises(MessageRejectedError, match="no place"):
                tx.put("in", b"7", expected_queue_offset=7, deliver_after=HOUR)
            with pytest.raises(ValueError, match="expected_queue_offset"):
                tx.put("in", b"7", expected_queue_offset=-1)


def test_a_commit_that_is_tried_again_puts_the_rows_that_are_new(tmp_path: Path) -> None:
    """What is left out, refused or taken back moves no other message's offset, id and delay."""
    with filled(tmp_path) as store:
        store.writer("out").put(b"old", unique_id="a")
        tx = store.transaction()
        tx.put("out", b"again", unique_id="a")
        with pytest.raises(MessageRejectedError, match="control character"):
            tx.put("out", b"refused", unique_id="r", properties={"p": "\1"})
        tx.put("in", b"6", expected_queue_offset=6)
        tx.put("out", b"later", unique_id="d", deliver_after=HOUR)
        with pytest.raises(MessageTooLargeError, match="with 2 messages more it needs"):
            tx.put_batch([NewMessage("out", bytes(1 << 14))] * 2)
        tx.put("out", b"r", unique_id="r")
        with pytest.raises(QueueOffsetMismatchError):
            tx.commit()
        store.writer("in").put(b"5")
        tx.commit()
        again, six, later, free = tx.results
        assert (again.duplicate, again.queue_offset, six.queue_offset) == (True, 0, 6)
        assert (later.id, later.due_time is not None, free.queue_offset) == ("d", True, 1)
        assert bodies(store, "in")[-2:] == [b"5", b"6"]
        found = [one.properties["RS_TRANSACTION"] for one in everything(store, "in")[6:]]
        assert found == [f"{tx.id}.1"]


def test_the_record_has_the_bytes_of_the_format(tmp_path: Path) -> None:
    """Section 11.5, whatever encodes them."""
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        tx = store.transaction()
        tx.put("out", b"1", queue_id=2, keys="k", tags="t", flag=-3, born_time=BEGIN)
        tx.put("empty", b"", properties={"p": "q"}, born_time=0)
        tx.commit_offsets(consumer, {0: 4}, allow_gap=True)
        tx.commit()
        (record,) = everything(store, RECORDS)
    rows = [
        ("out", 2, -3, 0, BEGIN, f"KEYS\1k\2TAGS\1t\2RS_TRANSACTION\1{tx.id}.0\2", b"1"),
        ("empty", 0, 0, 0, 0, f"p\1q\2RS_TRANSACTION\1{tx.id}.1\2", b""),
    ]
    wanted = b"RSTX" + bytes.fromhex(tx.id) + struct.pack("<II", 1, 2)
    wanted += struct.pack("<HIqq", 7, 0, 1, 4) + b"in@work"
    for topic, queue_id, flag, sys_flag, born_ms, text, body in rows:
        name, texts = topic.encode(), text.encode()
        sizes = len(texts), len(body)
        wanted += struct.pack("<HiiIqHI", len(name), queue_id, flag, sys_flag, born_ms, *sizes)
        wanted += name + texts + body
    assert bytes(record.body) == wanted


def test_a_batch_is_added_as_a_whole(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        with store.transaction() as tx:
            with pytest.raises(MessageRejectedError) as met:
                tx.put_batch([NewMessage("out", b"1"), NewMessage("a/b", b"2")])
            assert met.value.__notes__ == ["messages[1]; none was added"]
            with pytest.raises(TypeError, match="expected NewMessage, not bytes"):
                tx.put_batch([b"1"])  # type: ignore[list-item]
            tx.put_batch([NewMessage("out", b"1"), NewMessage("out", b"2", queue_id=1)])
        assert [(one.queue_id, one.queue_offset) for one in tx.results] == [(0, 0), (1, 0)]


def test_a_retry_and_its_ack_are_one_record(tmp_path: Path) -> None:
    store, clock = clocked(tmp_path)
    with store, store.consumer("jobs", group="work") as consumer:
        store.writer("jobs").put(b"job", unique_id="j")
        for attempt in range(3):
            wait_until(lambda: consumer.lag() == 1)
            with store.transaction() as tx:
                (job,) = tx.consume(consumer)
                tx.put("jobs", job.body, unique_id=f"j{attempt}", deliver_after=HOUR)
            assert len(everything(store, RECORDS)) == attempt + 1
            clock.advance(HOUR)
        wait_until(lambda: consumer.lag() == 1)
        assert len(everything(store, "jobs")) == 4


def test_a_record_of_an_older_release_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its form was a line of JSON, and the bodies."""
    store = filled(tmp_path)
    line = (
        b'{"version": 1, "id": "00112233445566aa", "offsets": [["in@work", 0, 1, 3]], "messages": '
        b'[["out", 1, "t", ["a", "b"], {"p": "q"}, 3, 1700000000000, "s", 4], '
        b'["log", 0, null, null, {}, 0, 1700000000001, null, 2]]}\n'
    )
    store.put_message(RECORDS, line + b"onetwo")
    store.put_message(RECORDS, line.replace(b"aa", b"bb") + b"onetw")
    leave(store)
    for _ in range(2):
        with open_small(tmp_path) as store:
            (one,), (two,) = everything(store, "out"), everything(store, "log")
            assert (bytes(one.body), bytes(two.body)) == (b"onet", b"wo")
            assert (one.queue_id, one.tags, list(one.keys), one.flag) == (1, "t", ["a", "b"], 3)
            assert one.properties["__SHARDINGKEY"] == "s" and one.properties["p"] == "q"
            assert one.properties["RS_TRANSACTION"] == "00112233445566aa.0"
            assert store.committed("in", "work") == {0: 3}
