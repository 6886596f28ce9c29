"""Messages of several queues and offsets of groups, all or none of them (decision 0038)."""

from __future__ import annotations

import importlib
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import (
    ConfigError,
    MessageRejectedError,
    MessageTooLargeError,
    NoGroupError,
    OffsetOutOfRangeError,
    Retention,
    StoreClosedError,
    StoreReadOnlyError,
    TransactionBusyError,
    TransactionSettledError,
)
from tests.support.small_store import engine_of, everything, open_still
from tests.support.transactions import (
    ALL,
    BIG,
    GROUP,
    NOTHING,
    RECORDS,
    filled,
    open_small,
    state,
    work,
)

commits: Any = importlib.import_module("rocketstore.services.transactions.commits")


def test_messages_and_offsets_are_there_after_the_end_and_never_before(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        consumer = store.consumer("in", group="work")
        end = store.end_offset
        with store.transaction() as tx:
            for message in consumer.poll(3):
                tx.put("out", b"from " + bytes(message.body), queue_id=message.queue_offset % 2)
                tx.put("log", memoryview(b"from " + bytes(message.body)), tags="t", keys="k")
            assert tx.commit_offsets(consumer) == {0: 4}
            assert (state(store), store.end_offset, tx.outcome) == (NOTHING, end, None)
        assert (state(store), tx.outcome) == (ALL, "commit")
        message = store.query("log", "k", order="oldest")[0]
        assert (message.tags, message.properties["RS_TRANSACTION"]) == ("t", f"{tx.id}.1")
        assert (message.sys_flag & 0xC, message.body) == (0, b"from 1")
        consumer.close()
    with open_small(tmp_path) as store:
        assert state(store) == ALL
        assert [m.body for m in store.consumer("in", group="work")] == [b"4"]
        assert len(everything(store, RECORDS)) == 1


def test_an_exception_leaves_no_trace(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        end = store.end_offset
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            tx.put("out", b"no")
            tx.commit_offsets(consumer, {0: 3}, allow_gap=True)
            raise ZeroDivisionError
        with store.transaction() as other:
            other.put("out", b"no")
            other.rollback()
            other.rollback()
        with store.transaction() as empty:
            pass
        assert (tx.outcome, other.outcome, empty.outcome) == ("rollback", "rollback", "commit")
        assert (state(store), store.end_offset) == (NOTHING, end)
        assert RECORDS not in store.topics(system=True)


def test_offsets_alone_and_messages_alone(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        with store.transaction() as tx:
            tx.put("out", b"1")
        with store.transaction() as tx:
            message = consumer.poll(3)[1]
            assert tx.commit_offsets(consumer, message) == {0: 3}
            assert tx.commit_offsets(consumer, {0: 2}) == {0: 2}
        assert state(store) == ([b"1"], [], 2)
        consumer.seek(1, queue_id=0)
        consumer.commit()
        assert state(store) == ([b"1"], [], 1)


def test_an_end_is_one(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        with store.transaction() as tx:
            tx.put("out", b"1")
            tx.commit()
            tx.commit()
            with pytest.raises(TransactionSettledError, match="was committed: put cannot follow"):
                tx.put("out", b"2")
        with pytest.raises(TransactionSettledError, match="was committed: rollback cannot"):
            tx.rollback()
        with pytest.raises(TransactionSettledError, match="was committed: with cannot"), tx:
            pass
        back = store.transaction()
        back.rollback()
        with pytest.raises(TransactionSettledError, match="rolled back: commit cannot follow"):
            back.commit()
        assert len(everything(store, "out")) == 1


def test_one_with_and_one_thread_at_a_time(tmp_path: Path) -> None:
    with open_small(tmp_path) as store, store.transaction() as tx:
        with pytest.raises(TransactionBusyError, match=rf"{tx.id}.*store\.transaction\(\)"), tx:
            pass
        with store.transaction() as inner:
            inner.put("out", b"inner")
        assert len(everything(store, "out")) == 1
        met: list[BaseException] = []

        class Slow(dict[str, str]):
            def __iter__(self) -> Any:
                thread = threading.Thread(target=other)
                thread.start()
                thread.join()
                return super().__iter__()

        def other() -> None:
            try:
                tx.put("out", b"x")
            except TransactionBusyError as error:
                met.append(error)

        tx.put("out", b"outer", properties=Slow({"a": "b"}))
        assert "give each thread its own" in str(met[0])
        tx.commit()
        assert [m.body for m in everything(store, "out")] == [b"inner", b"outer"]


@pytest.mark.parametrize(
    ("topic", "body", "named", "error", "text"),
    [
        (
            "out",
            b"x",
            {"properties": {"DELAY": "3"}},
            MessageRejectedError,
            "'DELAY'.*delay_level=",
        ),
        ("out", b"x", {"properties": {"TRAN_MSG": "true"}}, MessageRejectedError, "'TRAN_MSG'"),
        ("out", b"x", {"properties": {"TAGS": "t"}}, MessageRejectedError, "tags="),
        ("out", b"x", {"properties": {"RS_TRANSACTION": "1.0"}}, MessageRejectedError, "itself"),
        ("out", b"x", {"delay_level": -1}, ValueError, "delay_level"),
        (
            "out",
            b"x",
            {"properties": {"TIMER_DELAY_SEC": "1"}},
            MessageRejectedError,
            "deliver_after",
        ),
        (
            "out",
            b"x",
            {"properties": {"UNIQ_KEY": "a"}, "unique_id": "b"},
            MessageRejectedError,
            "one",
        ),
        ("SCHEDULE_TOPIC_XXXX", b"x", {}, MessageRejectedError, "SCHEDULE_TOPIC_XXXX.*delayed"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", b"x", {}, MessageRejectedError, "prepared"),
        (RECORDS, b"x", {}, MessageRejectedError, RECORDS),
        ("a/b", b"x", {}, MessageRejectedError, "a/b"),
        ("out", "text", {}, TypeError, "body"),
        ("out", b"x", {"queue_id": -1}, ConfigError, "queue_id = -1"),
        ("out", b"x", {"keys": "a b"}, MessageRejectedError, "blank"),
        (
            "out",
            bytes(3000),
            {},
            MessageTooLargeError,
            r"max_message_size_bytes = 3\d+, and there are 3000",
        ),
    ],
)
def test_what_cannot_be_part_of_one_is_refused_and_the_rest_goes_on(
    tmp_path: Path, topic: str, body: Any, named: Any, error: type[Exception], text: str
) -> None:
    with open_small(tmp_path, max_message_size_bytes=3000) as store:
        with store.transaction() as tx:
            with pytest.raises(error, match=text):
                tx.put(topic, body, **named)
            tx.put("out", b"kept")
        assert [m.body for m in everything(store, "out")] == [b"kept"]


def test_one_that_grows_too_large_says_so_and_can_still_be_committed(tmp_path: Path) -> None:
    with open_small(tmp_path, commit_log_file_size_bytes=8192) as store:
        with store.transaction() as tx:
            count = 0
            with pytest.raises(
                MessageTooLargeError, match=r"commit_log_file_size_bytes = \d+.* 8192"
            ):
                while True:
                    tx.put("out", bytes(200))
                    count += 1
        assert len(everything(store, "out")) == count > 5


def test_what_a_transaction_that_is_too_large_asks_for_is_enough(tmp_path: Path) -> None:
    """The error names an option and its value, until the transaction fits."""
    given: dict[str, Any] = {}
    asked = []
    while len(asked) < 5:
        with rocketstore.open(tmp_path, commit_log_file_size_bytes=64 << 20, **given) as store:
            try:
                with store.transaction() as tx:
                    for n in range(16):
                        tx.put("out", bytes([n]) * (1 << 20), queue_id=n % 3)
            except MessageTooLargeError as error:
                text = str(error)
                found = re.search(r"open the store with (\w+)=(\d+) or more", text)
                assert found is not None and "commit it in several transactions" in text
                given[found[1]] = int(found[2])
                asked.append(found[1])
                continue
            assert sorted(m.body[0] for m in everything(store, "out")) == list(range(16))
            break
    assert {"max_message_size_bytes", "write_buffer_bytes"} >= set(asked) and asked


def test_the_write_buffer_bounds_it_in_a_disk_store(tmp_path: Path) -> None:
    """With the options of a plain store, the messages that `put` took can be committed."""
    with rocketstore.open(tmp_path, commit_log_file_size_bytes=64 << 20) as store:
        with store.transaction() as tx:
            count = 0
            with pytest.raises(MessageTooLargeError, match="write_buffer_bytes = "):
                while True:
                    tx.put("out", bytes(100_000))
                    count += 1
        assert len(everything(store, "out")) == count
        assert count * 100_000 > 1_900_000


def test_consumers_that_cannot_take_part(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as store, filled(tmp_path / "b") as other:
        strange = other.consumer("in", group="work")
        with store.transaction() as tx:
            with pytest.raises(ConfigError, match=r"consumer = .*of another store"):
                tx.commit_offsets(strange)
            with pytest.raises(NoGroupError, match="group="):
                tx.commit_offsets(store.consumer("in"))
            with pytest.raises(TypeError, match="expected a Consumer, not str"):
                tx.commit_offsets("work")  # type: ignore[arg-type]
            with store.consumer("in", group="work") as consumer:
                with pytest.raises(OffsetOutOfRangeError):
                    tx.commit_offsets(consumer, {0: 6})
                tx.put("out", b"1")
                tx.commit_offsets(consumer, {0: 5}, allow_gap=True)
            with pytest.raises(StoreClosedError, match=r"consumer of in@work was closed"):
                tx.commit()
            assert tx.outcome is None
            tx.rollback()
        strange.close()
        assert state(store) == NOTHING


def test_a_store_that_only_reads_and_a_closed_one(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        with (
            open_small(tmp_path, "r") as reader,
            pytest.raises(StoreReadOnlyError, match="transaction: the store was opened with"),
        ):
            reader.transaction()
        with pytest.raises(ConfigError, match="durability"):
            store.transaction(durability="never")  # type: ignore[arg-type]
        tx = store.transaction()
        tx.put("out", b"1")
    for act in (tx.commit, lambda: tx.put("out", b"2"), store.transaction):
        with pytest.raises(StoreClosedError):
            act()
    with open_small(tmp_path) as store:
        assert state(store) == NOTHING


def test_without_offsets_a_commit_promises_what_the_store_does(tmp_path: Path) -> None:
    store = open_still(tmp_path, "os", **BIG)
    with store.transaction() as tx:
        tx.put("out", b"1")
    assert [m.body for m in everything(store, "out")] == [b"1"]
    assert store.flushed_offset < store.end_offset
    with store.transaction(durability="disk") as tx:
        tx.put("out", b"2")
    assert store.flushed_offset == store.end_offset
    store.close()
    with open_small(tmp_path) as store:
        assert engine_of(store).offsets.get(RECORDS, GROUP) == {0: 2}


def test_a_trim_makes_offsets_durable_that_the_log_still_has(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        work(store)
        assert engine_of(store).offsets.unsynced
        store.trim(before_offset=0)
        assert not engine_of(store).offsets.unsynced


def test_commit_records_do_not_hold_the_log(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        work(store)
        with store.consumer("in", group="work") as consumer:
            consumer.poll()
            consumer.commit()
        rule = Retention(max_bytes=1, keep_unconsumed_by="all")
        assert not any(GROUP in str(one) for one in store.retention.plan(rule).segments)


def test_readers_of_other_processes_see_all_of_it(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        work(store)
        with open_small(tmp_path, "r") as reader:
            assert state(reader) == ALL
