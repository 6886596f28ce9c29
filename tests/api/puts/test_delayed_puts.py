"""Puts of delayed messages: where they go, and what they say there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import (
    Message,
    MessageRejectedError,
    NewMessage,
    PropertiesTooLargeError,
    PutResult,
    Store,
)
from tests.support.small_store import open_small

TOPIC = "SCHEDULE_TOPIC_XXXX"


def open_undelivered(path: Path, **options: Any) -> Store:
    return open_small(path, deliver_delayed=False, **options)


def stored(store: Store, result: PutResult) -> Message:
    message = store.get(result.physical_offset)
    assert (message.queue_id, message.queue_offset) == (result.queue_id, result.queue_offset)
    return message


@pytest.mark.quick
def test_a_delayed_message_waits_in_the_schedule_topic(tmp_path: Path) -> None:
    """S000-25 S000-26 S001-42: queue id = level - 1; the real place is kept as properties."""
    with open_undelivered(tmp_path) as store:
        writer = store.writer("orders", queues=4, keys="k", properties={"own": "1"})
        result = writer.put(b"x", tags="a", properties={"p": "q"}, delay_level=3, flag=7)
        message = stored(store, result)
        assert (message.topic, message.queue_id, message.queue_offset) == (TOPIC, 2, 0)
        assert message.properties == {
            "own": "1",
            "p": "q",
            "KEYS": "k",
            "TAGS": "a",
            "DELAY": "3",
            "REAL_TOPIC": "orders",
            "REAL_QID": "0",
        }
        assert (message.body, message.flag) == (b"x", 7)
        plain = stored(store, writer.put(b"y", delay_level=3))
        assert plain.properties == {
            "own": "1",
            "KEYS": "k",
            "DELAY": "3",
            "REAL_TOPIC": "orders",
            "REAL_QID": "1",
        }
        assert store.topics(system=True) == [TOPIC]


@pytest.mark.parametrize(("level", "queue_id"), [(1, 0), (18, 17), (19, 17), (10**9, 17)])
def test_a_level_above_the_highest_is_the_highest(
    tmp_path: Path, level: int, queue_id: int
) -> None:
    """S000-24: levels end with the table of the store."""
    with open_undelivered(tmp_path) as store:
        message = stored(store, store.writer("orders").put(b"x", delay_level=level))
        assert message.queue_id == queue_id
        assert message.properties["DELAY"] == f"{queue_id + 1}"
        given = store.put_message("orders", b"x", properties={"DELAY": f"{level}"})
        assert (given.queue_id, given.queue_offset) == (queue_id, 1)


def test_the_table_is_that_of_the_store(tmp_path: Path) -> None:
    with open_undelivered(tmp_path, delay_levels="1s 2h") as store:
        assert store.writer("orders").put(b"x", delay_level=3).queue_id == 1


def test_level_0_is_no_delay(tmp_path: Path) -> None:
    """S001-41: 0 is not delayed, above 0 is a level; nothing of a delay is in the record."""
    with open_undelivered(tmp_path) as store:
        message = stored(store, store.writer("orders").put(b"x", delay_level=0))
        assert (message.topic, message.properties) == ("orders", {})
        for level in ("0", "-1"):
            result = store.put_message("orders", b"x", properties={"DELAY": level})
            assert stored(store, result).topic == "orders"
        assert stored(store, store.put_message("orders", b"x", delay_level=0)).topic == "orders"


@pytest.mark.parametrize(
    ("level", "error"),
    [(-1, ValueError), ("3", TypeError), (1.5, TypeError), (True, TypeError)],
)
def test_what_is_no_level_is_refused(tmp_path: Path, level: Any, error: type) -> None:
    with open_undelivered(tmp_path) as store:
        writer = store.writer("orders")
        for put in (
            lambda: writer.put(b"x", delay_level=level),
            lambda: writer.submit(b"x", delay_level=level),
            lambda: store.put_message("orders", b"x", delay_level=level),
            lambda: store.put_batch([NewMessage("orders", b"x", delay_level=level)]),
        ):
            with pytest.raises(error, match="delay_level"):
                put()
        assert store.end_offset == 0


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_half_messages_are_not_delayed(tmp_path: Path, sys_flag: int) -> None:
    """S000-23 S001-40: only messages without a transaction and committed ones may be delayed."""
    with open_undelivered(tmp_path) as store:
        with pytest.raises(MessageRejectedError, match="half of a transaction"):
            store.put_message("orders", b"x", sys_flag=sys_flag, delay_level=1)
        assert store.end_offset == 0
        kept = store.put_message("orders", b"x", sys_flag=sys_flag, properties={"DELAY": "1"})
        assert stored(store, kept).topic == "orders"
        for allowed in (0, 8):
            result = store.put_message("orders", b"x", sys_flag=allowed, delay_level=1)
            assert stored(store, result).topic == TOPIC
            assert stored(store, result).sys_flag == allowed


def test_a_message_of_the_schedule_topic_is_not_delayed_again(tmp_path: Path) -> None:
    with open_undelivered(tmp_path) as store:
        with pytest.raises(MessageRejectedError, match="cannot be delayed"):
            store.put_message(TOPIC, b"x", delay_level=1)
        result = store.put_message(TOPIC, b"x", queue_id=5, properties={"DELAY": "1"})
        assert (result.queue_id, stored(store, result).properties) == (5, {"DELAY": "1"})


def test_a_copy_that_rocketmq_delivered_is_not_delayed_again(tmp_path: Path) -> None:
    """It keeps the properties of the schedule topic (K-62)."""
    properties = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "2"}
    with open_undelivered(tmp_path) as store:
        result = store.put_message("orders", b"x", queue_id=2, properties=properties)
        assert stored(store, result).topic == "orders"
        assert stored(store, result).properties == properties


def test_put_message_delays_by_argument_and_by_property(tmp_path: Path) -> None:
    with open_undelivered(tmp_path) as store:
        by_property = store.put_message(
            "orders", b"x", queue_id=7, properties={"DELAY": "2", "a": "b"}, born_time=5
        )
        by_argument = store.put_message(
            "orders", b"x", queue_id=7, properties={"DELAY": "9", "a": "b"}, delay_level=2
        )
        for result in (by_property, by_argument):
            message = stored(store, result)
            assert (message.topic, message.queue_id) == (TOPIC, 1)
            assert message.properties == {
                "a": "b",
                "DELAY": "2",
                "REAL_TOPIC": "orders",
                "REAL_QID": "7",
            }


def test_the_properties_that_a_delay_adds_count(tmp_path: Path) -> None:
    """K-64: what fits without a delay and not with one is refused at once, by its size."""
    with open_undelivered(tmp_path, commit_log_file_size_bytes=1 << 20) as store:
        writer = store.writer("orders")
        most = max(n for n in range(32700, 32767) if fits(writer, n))
        most -= len("DELAY 3 REAL_TOPIC orders REAL_QID 0 ")
        puts = [
            lambda n: writer.put(b"x", properties=p(n), delay_level=3),
            lambda n: writer.submit(b"x", properties=p(n), delay_level=3),
            lambda n: store.put_message("orders", b"x", properties=p(n), delay_level=3),
            lambda n: store.put_batch([NewMessage("orders", b"x", properties=p(n), delay_level=3)]),
        ]
        for put in puts:
            put(most)
            end = store.end_offset
            with pytest.raises(PropertiesTooLargeError):
                put(most + 1)
            assert store.end_offset == end


def p(size: int) -> dict[str, str]:
    return {"p": "v" * size}


def fits(writer: rocketstore.Writer, size: int) -> bool:
    try:
        writer.put(b"x", properties=p(size))
    except PropertiesTooLargeError:
        return False
    return True


def test_a_batch_has_messages_with_and_without_a_delay(tmp_path: Path) -> None:
    with open_undelivered(tmp_path) as store:
        result = store.put_batch(
            [
                NewMessage("orders", b"a"),
                NewMessage("orders", b"b", queue_id=3, tags="t", delay_level=2),
                NewMessage("orders", b"c", delay_level=0),
            ]
        )
        found = [store.get(at) for at in result.physical_offsets]
        assert [message.topic for message in found] == ["orders", TOPIC, "orders"]
        assert found[1].properties == {
            "TAGS": "t",
            "DELAY": "2",
            "REAL_TOPIC": "orders",
            "REAL_QID": "3",
        }
        assert result.queue_ids == [0, 1, 0]


def test_a_loop_puts_delayed_messages(tmp_path: Path) -> None:
    async def main() -> list[PutResult]:
        async with rocketstore.aio.open(tmp_path, deliver_delayed=False) as store:
            writer = store.writer("orders")
            first = await writer.put(b"a", delay_level=2)
            second = await writer.put(b"b", delay_level=2, tags="t")
            third = await (await writer.submit(b"c", delay_level=99))
            with pytest.raises(ValueError, match="delay_level"):
                await writer.put(b"d", delay_level=-1)
            return [first, second, third]

    results = asyncio.run(main())
    assert [(r.queue_id, r.queue_offset) for r in results] == [(1, 0), (1, 1), (17, 0)]
    with rocketstore.open(tmp_path, "r") as store:
        assert {m.body for m in store.consumer(TOPIC)} == {b"a", b"b", b"c"}


def test_property_delay_stays_reserved_in_puts_of_a_writer(tmp_path: Path) -> None:
    with (
        open_undelivered(tmp_path) as store,
        pytest.raises(MessageRejectedError, match="delay_level="),
    ):
        store.writer("orders").put(b"x", properties={"DELAY": "1"})


CONDITIONS: list[dict[str, Any]] = [
    {"expected_queue_offset": 0},
    {"expected_queue_offset": 0, "unique_id": "a"},
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_delay_and_a_condition_exclude_each_other(
    tmp_path: Path, condition: dict[str, Any]
) -> None:
    """Level 0 is no delay, so that it goes with a place."""
    name, value = next(iter(condition.items()))
    wrong = f"^{name} = {value!r} with delay_level = 2: .* give one of them$"
    with open_undelivered(tmp_path) as store:
        writer = store.writer("orders")
        for put in (writer.put, writer.submit):
            with pytest.raises(MessageRejectedError, match=wrong):
                put(b"x", delay_level=2, **condition)
        if "unique_id" not in condition:
            for delay in ({"delay_level": 2}, {"properties": {"DELAY": "2"}}):
                with pytest.raises(MessageRejectedError, match=wrong):
                    store.put_message("orders", b"x", **delay, **condition)
        assert store.end_offset == 0
        message = stored(store, writer.put(b"x", delay_level=0, **condition))
        assert (message.topic, message.unique_id) == ("orders", condition.get("unique_id"))


def test_a_loop_refuses_a_delay_with_a_condition(tmp_path: Path) -> None:
    async def main() -> None:
        async with await rocketstore.aio.open(tmp_path, deliver_delayed=False) as store:
            writer = store.writer("orders")
            with pytest.raises(MessageRejectedError, match="offset = 3 with delay_level = 1"):
                await writer.put(b"x", delay_level=1, expected_queue_offset=3)
            assert store.end_offset == 0

    asyncio.run(main())
