"""A store with a message of every kind that its services make, chosen at random; and what each topic of
applications has then."""

from __future__ import annotations

import datetime
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Message, Store
from rocketstore.testing import ManualClock
from tests.support.small_store import everything
from tests.support.waiting import wait_until

__all__ = ["OF_ONE_STORE", "SYSTEM", "Put", "by_queue", "make", "messages_by_topic", "shown"]

NOW_MS = 1_800_000_000_000
SECOND, HOUR = datetime.timedelta(seconds=1), datetime.timedelta(hours=1)
#: Topics that services write, by hand: the list of the product is what is tested.
SYSTEM = {
    *("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "rmq_sys_rocketstore_transactions"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
}
#: Properties that a copy in another store has not.
OF_ONE_STORE = {
    *("REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "__transactionId__", "RS_TRANSACTION"),
    *("__DELAYED", "DELAY", "TIMER_OUT_MS", "TIMER_DELIVER_MS", "__CRC32#", "WAIT"),
}

#: Of a message, what every face has of it.
Put = tuple[bytes, str | None, tuple[str, ...], dict[str, str]]


class _Making:
    """`wanted`: bodies that each topic is to have, those of beats apart."""

    def __init__(self, store: Store, clock: ManualClock, rng: random.Random) -> None:
        self.store, self.clock, self.rng = store, clock, rng
        self.wanted: dict[str, Counter[bytes]] = defaultdict(Counter)
        self.number = 0

    def body(self) -> bytes:
        self.number += 1
        return b"%d " % self.number + self.rng.randbytes(self.rng.randrange(400))

    def fields(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "tags": rng.choice([None, "red", "blue"]),
            "keys": rng.choice([None, f"k{rng.randrange(9)}", ["a", f"b{rng.randrange(9)}"]]),
            "properties": rng.choice([None, {"n": f"{self.number}", "grün": "ü"}]),
        }

    def topic(self) -> str:
        return self.rng.choice(["orders", "audit", "%RETRY%work"])

    def put(self, *, comes: bool = True, **named: Any) -> Any:
        topic, body = self.topic(), self.body()
        writer = self.store.writer(topic, queue_id=self.rng.randrange(3))
        if comes:
            self.wanted[topic][body] += 1
        return writer.put(body, **self.fields(), **named)

    # ---- a method for each kind ----

    def plain(self) -> None:
        self.put(shard_key=self.rng.choice([None, "s"]))

    def delayed(self) -> None:
        soon = self.rng.random() < 0.6
        self.put(comes=soon, delay_level=self.rng.choice([1, 2]) if soon else 3)

    def timer(self) -> None:
        soon = self.rng.random() < 0.6
        self.put(comes=soon, deliver_after=self.rng.randint(1, 20) * (SECOND if soon else HOUR))

    def cancelled(self) -> None:
        assert self.store.delayed.cancel(self.put(comes=False, deliver_after=30 * SECOND))

    def rescheduled(self) -> None:
        soon = self.rng.random() < 0.6
        times = (HOUR, 3 * SECOND) if soon else (30 * SECOND, HOUR)
        put = self.put(comes=soon, deliver_after=times[0])
        assert self.store.delayed.reschedule(put, times[1])

    def beats(self) -> None:
        self.store.delayed.repeat("beats", self.body(), self.rng.randint(2, 9) * SECOND)

    def half(self) -> None:
        topic, body, end = self.topic(), self.body(), self.rng.choice(["commit", "rollback", ""])
        half = self.store.transactions.prepare(
            topic, body, group="g", queue_id=self.rng.randrange(3), **self.fields()
        )
        if end:
            getattr(half, end)()
        if end == "commit":
            self.wanted[topic][body] += 1

    def transaction(self) -> None:
        bodies = [(self.topic(), self.body()) for _ in range(self.rng.randint(1, 4))]
        commits = self.rng.random() < 0.7
        with self.store.consumer("first", group=f"g{self.number}") as consumer:
            transaction = self.store.transaction()
            for topic, body in bodies:
                transaction.put(topic, body, queue_id=self.rng.randrange(3), **self.fields())
            consumer.poll(1)
            transaction.commit_offsets(consumer)
            transaction.commit() if commits else transaction.rollback()
        for topic, body in bodies if commits else ():
            self.wanted[topic][body] += 1

    def of_a_broker(self) -> None:
        """What RocketMQ delivered keeps properties of its services; an old broker knew no timers."""
        topic, body = self.topic(), self.body()
        place = {"REAL_TOPIC": topic, "REAL_QID": "0", "UNIQ_KEY": f"id-{self.number}"}
        left = [
            {**place, "DELAY": "3"},
            {**place, "TIMER_OUT_MS": f"{NOW_MS}", "TIMER_DELIVER_MS": f"{NOW_MS}"},
            {"TIMER_DELIVER_MS": f"{NOW_MS - 5}", "x": "1"},
            {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "7", "WAIT": "true"},
        ]
        properties = self.rng.choice(left)
        self.store.put_message(topic, body, properties=properties, reconsume_times=2, flag=7)
        self.wanted[topic][body] += 1

    def time(self) -> None:
        self.clock.advance(self.rng.randint(1, 5))
        self.idle()

    def idle(self) -> None:
        """Waits until nothing is due any more."""
        wait_until(
            lambda: all(
                waiting.due_time.timestamp() * 1000 > self.clock.now_ms()
                for waiting in self.store.delayed
            )
        )


def make(path: Path, rng: random.Random, steps: int = 90) -> dict[str, Counter[bytes]]:
    """The bodies that each topic has at the end, those of "beats" apart."""
    clock = ManualClock(NOW_MS)
    with rocketstore.open(
        path,
        clock=clock,
        durability="os",
        delay_levels="2s 9s 1h",
        commit_log_file_size_bytes=1 << 15,
        max_message_size_bytes=1 << 13,
        index_slots=100,
        index_entries=400,
    ) as store:
        making = _Making(store, clock, rng)
        store.writer("first").put(b"first")
        making.wanted["first"][b"first"] += 1
        kinds: list[Callable[[], None]] = [
            *(making.plain, making.delayed, making.timer, making.cancelled, making.rescheduled),
            *(making.half, making.half, making.transaction, making.transaction),
            *(making.of_a_broker, making.time),
        ]
        making.beats()
        for kind in (*kinds, *(rng.choice(kinds) for _ in range(steps))):
            kind()
        clock.advance(60)
        making.idle()
        store.flush()
    return making.wanted


def messages_by_topic(path: Path) -> dict[str, list[Message]]:
    """What a consumer of each topic of applications is given, queue by queue."""
    with rocketstore.open(path, "r") as store:
        return {topic: everything(store, topic) for topic in store.topics()}


def shown(body: Any, tags: str | None, keys: str | None, properties: dict[str, str]) -> Put:
    """A message as every face can show it: properties without those of one store."""
    names = {*OF_ONE_STORE, "TAGS", "KEYS"}
    own = {name: value for name, value in properties.items() if name not in names}
    return bytes(body), tags or None, tuple((keys or "").split()), own


def by_queue(messages: dict[str, list[Message]]) -> dict[tuple[str, int], list[Put]]:
    """The messages of each queue in their order."""
    found: dict[tuple[str, int], list[Put]] = {}
    for topic, those in messages.items():
        for m in those:
            one = shown(m.body, m.tags, " ".join(m.keys), m.properties)
            found.setdefault((topic, m.queue_id), []).append(one)
    return found
