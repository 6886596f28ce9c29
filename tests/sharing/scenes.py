"""What a program does with a store, as functions: each gives what it saw, without places in the log and times.

`test_pairs` plays each on a guest and on an ordinary store: both have to see the same.
"""

from __future__ import annotations

import asyncio
import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore
import rocketstore.aio
from rocketstore import Message, NewMessage, PutResult, Store
from tests.support.waiting import wait_until

__all__ = ["SCENES", "Scene", "seen"]

Scene = Callable[[Store, str], Any]
FAR = datetime.timedelta(days=300)
SOON = datetime.timedelta(milliseconds=1)
#: An id that a store makes.
MADE_ID = re.compile("[0-9A-F]{32}")
BORN_MS = 1_700_000_000_000


def told(result: PutResult) -> tuple[Any, ...]:
    """Without the offsets of what waits: in the timers' own queues what became due late is put again."""
    return (
        [*result.queue_ids],
        [*result.queue_offsets] if result.due_time is None else [],
        result.count,
        str(result.durability),
        result.duplicate,
        result.end_offset > result.physical_offset >= 0,
        result.due_time is not None,
    )


def shown(message: Message) -> tuple[Any, ...]:
    properties = {
        name: "an id" if MADE_ID.fullmatch(text) else text
        for name, text in message.properties.items()
        if name not in ("__DELAYED", "RS_TRANSACTION")
    }
    return (
        message.queue_id,
        message.queue_offset,
        message.body,
        message.tags,
        message.keys,
        message.flag,
        properties,
    )


def seen(store: Store, topic: str) -> list[tuple[Any, ...]]:
    """What is readable at once."""
    if topic not in store.topics():
        return []
    return [
        shown(message)
        for queue_id in store.queues(topic)
        for message in store.consumer(topic, queue_id=queue_id)
    ]


def error_of(call: Callable[[], object]) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


def columns_of(bodies: list[bytes]) -> tuple[list[int], bytes]:
    return [sum(map(len, bodies[:n])) for n in range(len(bodies) + 1)], b"".join(bodies)


# ---- puts ----


def put_each_durability(store: Store, topic: str) -> Any:
    writer = store.writer(topic)
    return [
        told(writer.put(b"x", durability=promise)) for promise in ("disk", "os", "memory", None)
    ]


def put_every_field(store: Store, topic: str) -> Any:
    writer = store.writer(topic, queues=3, properties={"all": "ö"}, tags="a", keys="k")
    return [
        told(writer.put(b"1", tags="red", keys=["a", "b"], properties={"p": "q"}, flag=7)),
        told(writer.put(b"2", shard_key="ada", born_time=BORN_MS)),
        told(writer.put(b"3")),
        told(writer.put(bytes(9000))),
    ]


def put_batch(store: Store, topic: str) -> Any:
    writer = store.writer(topic, queues=2)
    return [told(writer.put_batch([b"%d" % n for n in range(100)], tags="t", keys="k"))]


def put_many_topics(store: Store, topic: str) -> Any:
    made = [NewMessage(f"{topic}{n % 2}", b"%d" % n, queue_id=n % 3) for n in range(20)]
    return told(store.put_batch(made)), seen(store, f"{topic}0"), seen(store, f"{topic}1")


def put_columns(store: Store, topic: str) -> Any:
    columns = columns_of([b"%d" % n for n in range(50)])
    tags = [f"t{n % 2}" for n in range(50)]
    first = store.writer(topic).put_columns(columns, row_tags=tags)
    second = store.put_columns(columns, topics=[topic] * 50, queue_ids=[n % 3 for n in range(50)])
    return told(first), told(second)


def put_frames(store: Store, topic: str) -> Any:
    columns = columns_of([b"%d" % n for n in range(50)])
    frames, refused = rocketstore.encode_frames(columns, topics=[topic] * 50)
    result = store.put_frames(frames)
    return refused, result.count, str(result.durability), error_of(lambda: store.put_frames(b"no"))


def put_message(store: Store, topic: str) -> Any:
    result = store.put_message(
        topic, b"x", queue_id=2, properties={"TAGS": "t"}, flag=3, sys_flag=0, born_time=BORN_MS,
        born_host="10.0.0.1:80", store_host="10.0.0.2:81", reconsume_times=4,
    )  # fmt: skip
    message = store.get(result.physical_offset)
    return told(result), message.born_host, message.store_host, message.reconsume_times


def submit(store: Store, topic: str) -> Any:
    writer = store.writer(topic)
    tickets = [writer.submit(b"%d" % n) for n in range(20)]
    called: list[Any] = []
    tickets[0].add_done_callback(called.append)
    results = [told(ticket.result(20.0)) for ticket in tickets]
    wait_until(lambda: bool(called))
    assert called == tickets[:1]
    return results, [ticket.done() for ticket in tickets], told(tickets[3].future().result(20.0))


def conditions(store: Store, topic: str) -> Any:
    writer = store.writer(topic, queue_id=1)
    found = [told(writer.put(b"0", expected_queue_offset=0))]
    found.append(told(writer.submit(b"1", expected_queue_offset=1).result()))
    return found, error_of(lambda: writer.put(b"x", expected_queue_offset=7))


def unique_ids(store: Store, topic: str) -> Any:
    writer = store.writer(topic)
    first, again = writer.put(b"x", unique_id="one"), writer.put(b"y", unique_id="one")
    other = writer.put(b"z", unique_id="two", durability="os")
    assert (first.id, first.physical_offset) == (again.id, again.physical_offset)
    late = writer.put(b"l", unique_id="late", deliver_after=FAR)
    late_again = writer.put(b"l", unique_id="late")
    found = [m.body for m in store.query(topic, "two")]
    return [told(put) for put in (first, again, other, late, late_again)], found


def refusals(store: Store, topic: str) -> Any:
    writer = store.writer(topic)
    return [
        error_of(call)
        for call in (
            lambda: writer.put(bytes(1 << 20)),
            lambda: writer.put_batch([b"a", bytes(1 << 20)]),
            lambda: writer.put(b"", properties={"a": "b" * 40000}),
            lambda: writer.put(b"", properties={"TAGS": "x"}),
            lambda: writer.put(b"", durability="replicas(1)"),  # type: ignore[arg-type]
            lambda: store.writer("no.dots"),
            lambda: store.writer(topic, queue_id=-1),
            lambda: store.put_message("no.dots", b""),
            lambda: store.put_message(topic, b"", queue_id=1 << 40),
            lambda: writer.put(b"", deliver_after=FAR * 9),
            lambda: writer.put("text"),  # type: ignore[arg-type]
        )
    ]


# ---- services ----


def delays(store: Store, topic: str) -> Any:
    writer = store.writer(topic)
    soon = [writer.put(b"soon", deliver_after=SOON), writer.put(b"level", delay_level=1)]
    far = [writer.put(b"%d" % n, deliver_after=FAR, unique_id=f"{topic}{n}") for n in range(3)]
    wait_until(lambda: len(seen(store, topic)) == 2, lambda: f"{seen(store, topic)}")
    wait_until(lambda: store.delayed.count(topic) == 3, lambda: f"{store.delayed}")
    waiting = [
        (one.topic, one.unique_id, one.message.body) for one in store.delayed.messages(topic)
    ]
    ended = [store.delayed.cancel(far[0]), store.delayed.cancel(far[0])]
    moved = store.delayed.reschedule(f"{topic}1", SOON)
    wait_until(lambda: len(seen(store, topic)) == 3, lambda: f"{seen(store, topic)}")
    there = store.delayed.get(f"{topic}2")
    assert there is not None
    left = store.delayed.cancel(there), store.delayed.count(topic)
    told_all = [told(put) for put in (*soon, *far)]
    bodies = sorted(row[2] for row in seen(store, topic))
    return told_all, sorted(waiting, key=str), ended, moved, left, bodies


def repeats(store: Store, topic: str) -> Any:
    name = store.delayed.repeat(
        topic, b"again", datetime.timedelta(milliseconds=5), unique_id=topic
    )
    wait_until(lambda: len(seen(store, topic)) >= 2)
    assert name == topic
    ended = store.delayed.cancel(topic)
    return ended, {row[2] for row in seen(store, topic)}


def seen_of(store: Store, name: str) -> list[tuple[Any, ...]]:
    """What came in the end; how often a message came again is of the clock."""
    return seen(store, name)[: 2 if name == "repeats" else None]


def transactions_of_the_store(store: Store, topic: str) -> Any:
    store.writer(topic).put_batch([b"%d" % n for n in range(9)])
    out, found = f"{topic}out", []
    for count in (4, 5, 3):
        with store.consumer(topic, group="g") as consumer, store.transaction() as tx:
            for message in tx.consume(consumer, max_messages=count):
                tx.put(out, b"of " + message.body, queue_id=message.queue_offset % 2, tags="t")
        found.append((tx.outcome, [told(put) for put in tx.results]))
    with store.transaction(durability="os") as tx:
        tx.put_batch([NewMessage(out, b"a"), NewMessage(out, b"b", queue_id=1)])
        tx.put(out, b"once", unique_id="once")
        tx.put(out, b"late", deliver_after=FAR, unique_id=f"{topic}late")
    with store.transaction() as tx:
        tx.put(out, b"once", unique_id="once")
        assert tx.cancel(f"{topic}late")
    found.append((tx.outcome, [told(put) for put in tx.results]))
    tx = store.transaction()
    tx.put(out, b"never")
    tx.rollback()
    mismatch = store.transaction()
    mismatch.put(out, b"never", expected_queue_offset=0)
    wrong = error_of(mismatch.commit)
    bodies = [(row[0], row[1], row[2]) for row in seen(store, out)]
    return found, tx.outcome, wrong, bodies, store.committed(topic, "g")


def a_transaction_that_fails(store: Store, topic: str) -> Any:
    store.writer(topic).put_batch([b"%d" % n for n in range(9)])
    tx = store.transaction()
    with store.consumer(topic, group="g") as consumer:
        try:
            with tx:
                tx.consume(consumer, max_messages=4)
                tx.put(f"{topic}out", b"never")
                raise KeyError("as a user's program does")
        except KeyError:
            positions = consumer.positions
    return tx.outcome, positions, seen(store, f"{topic}out"), store.committed(topic, "g")


def half_messages(store: Store, topic: str) -> Any:
    def ids() -> list[tuple[str, str]]:
        return sorted(
            (one.group, one.topic) for one in store.transactions.open() if one.topic == topic
        )

    first = store.transactions.prepare(topic, b"yes", group="g", tags="t")
    second = store.transactions.prepare(topic, b"no", group="g", keys="k")
    store.transactions.prepare(topic, b"open", group="g")
    before = ids()
    first.commit()
    second.rollback()
    wait_until(lambda: len(seen(store, topic)) == 1)
    return before, ids(), [row[2] for row in seen(store, topic)], error_of(first.rollback)[0]


def groups(store: Store, topic: str) -> Any:
    store.writer(topic, queues=2).put_batch([b"%d" % n for n in range(10)])
    found: list[Any] = []
    with store.consumer(topic, group="g") as consumer:
        found.append(sorted(m.body for m in consumer.poll(4)))
        found.append(consumer.commit())
        found.append(consumer.lag())
        found.append(error_of(lambda: store.consumer(topic, group="g"))[0])
        found.append(error_of(lambda: consumer.commit({0: 99}))[0])
        consumer.seek("earliest")
        found.append(consumer.commit({0: 1}, durability="os"))
    with store.consumer(topic, group="g") as consumer:
        found.append(consumer.positions)
    with (
        store.consumer(topic, group="h", queue_id=0) as one,
        store.consumer(topic, group="h", queue_id=1) as two,
    ):
        found += [len(one.poll()), len(two.poll()), one.commit(), two.commit()]
    found += [store.groups(topic), store.committed(topic, "g"), store.committed(topic, "h")]
    return found


# ---- reads ----


def reads(store: Store, topic: str) -> Any:
    writer = store.writer(topic)
    for n in range(30):
        writer.put(b"%d" % n, tags=("red", "blue")[n % 2], keys=f"k{n}", properties={"n": str(n)})
    columns = store.consumer(topic).poll_columns(columns=["queue_offset", "body"])
    return (
        [m.body for m in store.consumer(topic, tags="red")],
        [m.body for m in store.consumer(topic, where="n > 25 AND TAGS = 'blue'")],
        [m.body for m in store.query(topic, "k17")],
        columns["queue_offset"].tolist(),
        store.min_queue_offset(topic, 0),
        store.max_queue_offset(topic, 0),
        store.offset_at(topic, 0, 0),
        len(store.consumer(topic).poll(7)),
        next(store.consumer(topic, offset="latest").follow(0.01), None),
    )


def scans(store: Store, topic: str) -> Any:
    store.writer(topic, queues=2).put_batch([b"%d" % n for n in range(100)], tags="t")
    store.flush()
    rows = 0
    offsets: list[int] = []
    for chunk in rocketstore.scan(store, columns=["queue_offset", "body"], topics=topic):
        rows += chunk.rows
        offsets += chunk["queue_offset"].tolist()
    return rows, sorted(offsets)


def compacts(store: Store, topic: str) -> Any:
    writer = store.writer(topic)
    for n in range(20):
        writer.put(b"%d" % n, keys=f"k{n % 3}")
    store.flush()
    into = Path(f"{store.path}-{topic}")
    report = store.compact(topic, into=into)
    with rocketstore.open(into, "r", index_slots=100, index_entries=400) as made:
        return report.kept, report.keys, [m.body for m in made.consumer(topic)]


def flushes(store: Store, topic: str) -> Any:
    put = store.writer(topic).put(b"x", durability="os")
    store.wait_flushed(put.end_offset)
    assert store.flushed_offset >= put.end_offset
    assert store.flush() >= put.end_offset
    return error_of(lambda: store.wait_flushed(1 << 60))[0]


def holds(store: Store, topic: str) -> Any:
    store.retention.hold(topic, 0)
    held = dict(store.retention.holds)[topic]
    plan = store.retention.plan(rocketstore.Retention(max_bytes=1 << 60))
    released = store.retention.release(topic), store.retention.release(topic)
    return held, plan.bytes, released, topic in store.retention.holds


def tasks(store: Store, topic: str) -> Any:
    async def work() -> Any:
        async with rocketstore.aio.attach(store) as mine:
            writer = mine.writer(topic)
            puts = await asyncio.gather(*(writer.put(b"%d" % n) for n in range(50)))
            batch = await writer.put_batch([b"a", b"b"])
            async with mine.transaction() as tx:
                await tx.put(f"{topic}out", b"x")
            async with mine.consumer(topic, group="g") as consumer:
                bodies = [m.body for m in await consumer.poll(100, timeout_s=5)]
                committed = await consumer.commit()
            return sorted(put.queue_offset for put in puts), told(batch), sorted(bodies), committed

    return asyncio.run(work())


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        put_each_durability, put_every_field, put_batch, put_many_topics, put_columns, put_frames,
        put_message, submit, conditions, unique_ids, refusals, delays, repeats,
        transactions_of_the_store, a_transaction_that_fails, half_messages, groups, reads, scans,
        compacts, flushes, holds, tasks,
    )
}  # fmt: skip
