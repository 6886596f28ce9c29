"""Arguments of the public calls that are taken, at their edges; `table.py` has what is refused."""

from __future__ import annotations

import enum
import errno
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketstore import (
    DurabilityTimeoutError,
    NewMessage,
    OffsetOutOfRangeError,
    Store,
    encode_frames,
    scan,
)
from tests.support.small_store import dispatched, everything, open_small, open_still, parts


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


def test_a_late_flush_has_an_errno_like_other_timeouts() -> None:
    error = DurabilityTimeoutError("not known", None)
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert (same.errno, str(same), same.result) == (errno.ETIMEDOUT, "not known", None)


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
            lambda: orders.put_columns(([0, 1], b"a"), **options),
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


@pytest.mark.parametrize(("value", "error"), [("x", TypeError), (float("nan"), ValueError)])
def test_a_ticket_names_its_time_to_wait(store: Store, value: Any, error: type[Exception]) -> None:
    ticket = store.writer("t").submit(b"x")
    with pytest.raises(error, match=f"^timeout_s = {value!r}: ?."):
        ticket.result(value)


def test_equal_ends_are_an_empty_range(store: Store) -> None:
    assert store.query("t", "k", begin=10, end=10) == []
    assert list(scan(store, begin=10, end=10)) == []


def test_an_offset_in_front_of_a_scan_is_too_small(store: Store) -> None:
    for arguments in ({"begin_offset": -5}, {"begin_offset": 10, "end_offset": 5}):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            scan(store, **arguments)  # type: ignore[arg-type]
        assert caught.value.status == "OFFSET_TOO_SMALL"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        scan(store, begin_offset=store.end_offset + 1)
    assert caught.value.status == "OFFSET_OVERFLOW_BADLY"


def test_a_topic_that_is_not_there_is_empty(store: Store) -> None:
    """It may come: a consumer of all queues takes it up then."""
    consumer = store.consumer("later")
    assert (consumer.poll(), consumer.positions, store.queues("later")) == ([], {}, [])
    store.writer("later").put(b"x")
    dispatched(store)
    assert [m.body for m in consumer.poll()] == [b"x"]


def test_a_store_is_opened_and_not_made(tmp_path: Path) -> None:
    for words in ((tmp_path,), (tmp_path, "rw")):
        with pytest.raises(TypeError, match=r"^a Store is opened by rocketstore.open\(path\)$"):
            Store(*words)  # type: ignore[arg-type]


def test_what_a_recovery_reads_is_taken(store: Store) -> None:
    """Beside what the table refuses: delays, counts of an inner batch, its flag, a queue, a port."""
    for level in ("2147483647", "-2147483648", "0", "007", "+2"):
        store.put_message("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": level})
    for level in ("abc", "2147483648", "+-2", " 2", "٣", "1.0", "--1", "-"):
        store.put_message("orders", b"x", properties={"DELAY": level})
    assert len(everything(store, "SCHEDULE_TOPIC_XXXX")) == 5
    for number in ("x", "1", "32768"):
        store.put_message("orders", b"x", properties={"INNER_NUM": number})
    store.put_message("orders", b"x", properties={"INNER_NUM": "32767", "INNER_BASE": "-1"})
    assert store.put_message("flags", b"x", sys_flag=0x341).queue_offset == 0
    assert store.put_message("orders", b"x", queue_id=np.int64(3)).queue_id == 3
    for host in ("1.2.3.4:65535", "[::1]:65535"):
        store.put_message("orders", b"x", born_host=host, store_host=host)
        encode_frames((np.array([0, 1]), b"x"), topics=["t"], born_host=host)
