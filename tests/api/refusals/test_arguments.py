"""Arguments of the public calls: NumPy's numbers, texts of enums, and what is neither."""

from __future__ import annotations

import enum
import errno
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketstore import (
    DurabilityTimeoutError,
    MessageRejectedError,
    NewMessage,
    Store,
    encode_frames,
    scan,
)
from tests.support.small_store import dispatched, open_small, open_still, parts


class Topic(str, enum.Enum):  # noqa: UP042 - its str() is another text
    ORDERS = "orders"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_small(tmp_path) as opened:
        for number in range(5):
            opened.writer("orders").put(b"%d" % number, keys="k", born_time=1000 + number)
        dispatched(opened)
        yield opened


@pytest.mark.parametrize("name", [Topic.ORDERS, np.str_("orders")])
def test_a_topic_of_an_enum_or_of_numpy(store: Store, name: str) -> None:
    result = store.writer(name).put(b"5")
    dispatched(store)
    assert result.queue_offset == 5
    message = store.get(result.physical_offset)
    assert type(message.topic) is str
    consumer = store.consumer(name)
    assert (consumer.topic, len(consumer.poll())) == ("orders", 6)
    assert store.queues(name) == [0]
    assert store.max_queue_offset(name, 0) == 6
    assert len(store.query(name, "k")) == 5


def test_numbers_of_numpy(store: Store) -> None:
    three = np.int64(3)
    consumer = store.consumer("orders", queue_id=np.int32(0), offset=three)
    assert [m.body for m in consumer.poll(np.int64(1))] == [b"3"]
    consumer.seek(np.uint8(1))
    assert next(consumer).body == b"1"
    assert store.get(np.int64(0)).body == b"0"
    assert store.offset_at("orders", np.int64(0), np.int64(0)) == 0
    store.wait_flushed(np.int64(store.end_offset))
    assert store.trim(before_offset=np.int64(0)) == 0
    result = store.writer("orders").put(b"x", flag=np.int16(7), born_time=np.int64(12))
    message = store.get(result.physical_offset)
    assert (message.flag, message.born_timestamp_ms) == (7, 12)


def test_numbers_of_numpy_choose_messages_of_a_scan(store: Store) -> None:
    def bodies(**chosen: Any) -> list[bytes]:
        return [bytes(body) for columns in scan(store, **chosen) for body in columns["body"]]

    assert len(bodies(queues=np.int64(0))) == len(bodies(queues=np.array([0, 3]))) == 5
    assert bodies(queues=np.int64(1)) == []
    second = store.get(0).size
    assert bodies(begin_offset=np.int64(second), end_offset=np.int64(2 * second)) == [b"1"]


def test_as_many_as_there_are(store: Store) -> None:
    for most in (2**31 - 1, 2**63 - 1, 2**80):
        assert len(store.consumer("orders").poll(most)) == 5


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda s, x: s.get(x), "physical_offset"),
        (lambda s, x: s.wait_flushed(x), "end_offset"),
        (lambda s, x: s.trim(before_offset=x), "before_offset"),
        (lambda s, x: s.min_queue_offset("orders", x), "queue_id"),
        (lambda s, x: s.max_queue_offset("orders", x), "queue_id"),
        (lambda s, x: s.offset_at("orders", x, 0), "queue_id"),
        (lambda s, x: s.offset_at("orders", 0, x), "when"),
        (lambda s, x: s.query("orders", "k", limit=x), "limit"),
        (lambda s, x: s.consumer("orders", queue_id=x), "queue_id"),
        (lambda s, x: s.consumer("orders", queue_id=0).poll(x), "max_messages"),
        (lambda s, x: s.consumer("orders", queue_id=0)._prefetch(x), "max_messages"),
        (lambda s, x: scan(s, begin_offset=x), "begin_offset"),
        (lambda s, x: scan(s, end_offset=x), "end_offset"),
        (lambda s, x: scan(s, queues=[x]), "queues"),
        (lambda s, x: s.writer("orders").put(b"x", flag=x), "flag"),
        (lambda s, x: s.writer("orders").put(b"x", born_time=x), "born_time"),
        (lambda s, x: s.put_message("orders", b"x", sys_flag=x), "sys_flag"),
        (lambda s, x: s.put_message("orders", b"x", reconsume_times=x), "reconsume_times"),
    ],
)
@pytest.mark.parametrize("value", ["0", 1.0])
def test_what_is_no_number_is_named(store: Store, call: Any, name: str, value: object) -> None:
    end = store.end_offset
    with pytest.raises(TypeError, match=f"^{name} = {value!r}"):
        call(store, value)
    assert store.end_offset == end


@pytest.mark.parametrize(
    ("name", "value"),
    [("keys", 5), ("keys", object), ("properties", [("a", "b")]), ("properties", "a")],
)
def test_what_is_no_text_of_a_message_is_named(store: Store, name: str, value: Any) -> None:
    end = store.end_offset
    with pytest.raises(TypeError, match=f"^{name} = {re.escape(repr(value))}: expected"):
        store.writer("orders").put(b"x", **{name: value})
    assert store.end_offset == end


@pytest.mark.parametrize(
    "call",
    [
        lambda s, x: s.writer(x),
        lambda s, x: s.put_message(x, b"x"),
        lambda s, x: s.consumer(x),
        lambda s, x: s.query(x, "k"),
        lambda s, x: s.queues(x),
        lambda s, x: s.max_queue_offset(x, 0),
        lambda s, x: s.offset_at(x, 0, 0),
    ],
)
def test_what_is_no_topic_is_named(store: Store, call: Any) -> None:
    for value in (b"orders", None, 1):
        with pytest.raises(TypeError, match=f"^topic = {value!r}"):
            call(store, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flag", 2**31),
        ("flag", 2**70),
        ("sys_flag", 2**32),
        ("sys_flag", -1),
        ("reconsume_times", -(2**31) - 1),
        ("prepared_transaction_offset", 2**63),
        ("born_time", -(2**63)),  # none, natively
        ("born_time", 2**63),
    ],
)
def test_a_number_that_no_record_holds(store: Store, name: str, value: int) -> None:
    end = store.end_offset
    with pytest.raises(ValueError, match=f"^{name} = {value}"):
        store.put_message("orders", b"x", **{name: value})
    assert store.end_offset == end


def test_a_late_flush_has_an_errno_like_other_timeouts() -> None:
    error = DurabilityTimeoutError("not known", None)
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert (same.errno, str(same), same.result) == (errno.ETIMEDOUT, "not known", None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, r"body: expected bytes or a buffer, not NoneType; an empty body is b''"),
        ("text", r"body: expected bytes or a buffer, not str; .*\.encode\(\)"),
        ({"a": 1}, r"body: expected bytes or a buffer, not dict; .*json\.dumps"),
        (7, "body: expected bytes or a buffer, not int"),
        ([b"a"], "body: expected bytes or a buffer, not list"),
        (np.str_("text"), r"body: expected bytes or a buffer, not str_; .*\.encode\(\)"),
        (
            np.array(["a"], dtype=object),
            "body: expected bytes or a buffer, not an array of objects",
        ),
        (np.zeros(2, "i4, O"), "body: expected bytes or a buffer, not an array of objects"),
    ],
)
def test_a_body_is_bytes_or_a_buffer(store: Store, body: Any, said: str) -> None:
    end = store.end_offset
    orders = store.writer("orders")
    for put in (orders.put, orders.submit, lambda body: store.put_message("orders", body)):
        with pytest.raises(TypeError, match=said):
            put(body)
    with pytest.raises(TypeError, match=said):
        store.put_batch([NewMessage("orders", body)])
    with pytest.raises(TypeError, match=said.replace("body:", r"bodies\[1\]:")):
        orders.put_batch([b"a", body])
    assert store.end_offset == end


@pytest.mark.parametrize(
    "body",
    [
        np.arange(10)[::2],
        np.arange(6, dtype=">i2").reshape(2, 3).T,
        memoryview(b"abcdef")[::-2],
        np.array([(1, 2)], [("Open", "i4"), ("x", "i8")]),
    ],
)
def test_a_body_is_what_tobytes_gives(store: Store, body: Any) -> None:
    orders = store.writer("orders")
    one = orders.put(body)
    several = orders.put_batch([b"a", body])
    mixed = store.put_batch([NewMessage("orders", body)])
    for offset in (one.physical_offset, several.physical_offsets[1], mixed.physical_offset):
        assert store.get(offset).body == body.tobytes()


def test_a_body_without_bytes_says_what_to_give(store: Store) -> None:
    end = store.end_offset
    closed = memoryview(b"abc")
    closed.release()
    for body in (np.array(["2026-01-01"], "M8[D]"), closed):
        with pytest.raises(
            MessageRejectedError, match=r"^body: .*; give its bytes, as by .tobytes"
        ):
            store.writer("orders").put(body)
        with pytest.raises(MessageRejectedError, match=r"^bodies\[0\]: .*; give its bytes"):
            store.writer("orders").put_batch([body])
    assert store.end_offset == end


@pytest.mark.parametrize("bodies", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc"])
def test_one_body_is_no_batch(store: Store, bodies: Any) -> None:
    with pytest.raises(TypeError, match="bodies: one .*, expected several bodies; one goes to put"):
        store.writer("orders").put_batch(bodies)


@pytest.mark.parametrize("bodies", [None, 5])
def test_a_batch_is_several_bodies(store: Store, bodies: Any) -> None:
    with pytest.raises(TypeError, match="bodies: expected several bodies, not"):
        store.writer("orders").put_batch(bodies)


def test_a_batch_may_be_of_arrays_or_of_a_generator(store: Store) -> None:
    orders = store.writer("orders")
    assert orders.put_batch(np.arange(6, dtype=np.uint8).reshape(2, 3)).count == 2
    result = orders.put_batch(bytearray(b"%d" % n) for n in range(3))
    found = [store.get(offset).body for offset in result.physical_offsets]
    assert found == [b"0", b"1", b"2"]


@pytest.mark.parametrize("timeout_s", [0, -1, -0.001, float("-inf")])
def test_a_time_below_nothing_is_nothing_in_every_call(tmp_path: Path, timeout_s: float) -> None:
    """What is left of a deadline may be negative: no call minds."""
    frames, _ = encode_frames(([0, 1], b"a"), topics=["orders"])
    options: dict[str, Any] = {"durability": "disk", "timeout_s": timeout_s}
    with open_still(tmp_path / "still", "os") as store, ExitStack() as closing:
        orders = store.writer("orders")
        puts: list[Callable[[], object]] = [
            lambda: orders.put(b"a", **options),
            lambda: orders.put_batch([b"a"], **options),
            lambda: orders.put_columns(b"a", [0, 1], **options),
            lambda: store.put_message("orders", b"a", **options),
            lambda: store.put_batch([NewMessage("orders", b"a")], **options),
            lambda: store.put_frames(frames, **options),
            lambda: store.put_columns(([0, 1], b"a"), topics=["orders"], **options),
        ]
        group = parts(store).commit_log.log.group
        group.take_turn()  # a wait asks the flusher, who may be as fast as this test
        closing.callback(group.give_turn)
        for put in puts:
            with pytest.raises(DurabilityTimeoutError, match="after 0 ms") as caught:
                put()
            assert caught.value.result is not None
            assert caught.value.result.end_offset == store.end_offset
        waits: list[Callable[[], object]] = [
            lambda: orders.submit(b"a", durability="disk").result(timeout_s),
            lambda: store.flush(timeout_s),
            lambda: store.wait_flushed(store.end_offset, timeout_s),
        ]
        for wait in waits:
            with pytest.raises(DurabilityTimeoutError, match="after 0 ms"):
                wait()
        consumer = store.consumer("nothing", queue_id=0)
        assert consumer.poll(timeout_s=timeout_s) == list(consumer.follow(timeout_s)) == []
        assert consumer.poll_columns(timeout_s=timeout_s).rows == 0
