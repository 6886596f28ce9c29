"""The process whose file operations are recorded: runs one workload after the other, as it is told.

Started with the recorder preloaded. Reads jobs from standard input, one JSON object a line, and says
"done" for each, or what went wrong as its last word.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import rocketstore
from rocketstore import Durability, Retention, Store
from rocketstore.services.delay.rolling import roll
from rocketstore.testing import ManualClock
from tests.power_loss import workloads
from tests.power_loss.expectation import AGAIN, DELAYED, KEYED, LATE, body_of, keys_of, tags_of
from tests.power_loss.oracle import MOVED_MS, latest_of, leave, quiet, stored_offsets
from tests.power_loss.small_steps import small_steps
from tests.support.small_store import dispatched, engine_of, parts

#: A time that no run waits for.
FAR = datetime.timedelta(days=300)

__all__ = ["Run"]


class Run:
    """One recorded store and what its writer says about it."""

    def __init__(self, root: Path, options: dict[str, Any], seed: int, life: int) -> None:
        self.root = root
        self.options = options
        self.rng = random.Random(seed)
        self.life = life
        self.clock = ManualClock(1_700_000_000_000)
        self._recorder = ctypes.CDLL(None)
        #: The host, while a guest puts.
        self.shares: Store | None = None

    # ---- the recorder ----

    def record(self, trace: str, limit_bytes: int) -> None:
        self._recorder.record_begin.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64]
        begun = self._recorder.record_begin(
            str(self.root.parent).encode(), trace.encode(), limit_bytes
        )
        assert begun == 0, f"{trace} cannot be recorded"

    def end(self) -> None:
        self._recorder.record_end()

    def mark(self, what: str, **details: Any) -> None:
        data = json.dumps({"what": what, **details}).encode()
        self._recorder.record_mark(data, ctypes.c_size_t(len(data)))

    def fail_syncs(self, path: Path, count: int) -> None:
        """The next syncs of a file fail, and the kernel gives its dirty pages up."""
        number = ctypes.c_int64(path.stat().st_ino)
        self._recorder.record_fail_syncs(number, ctypes.c_int64(count))

    def slow_syncs(self, microseconds: int) -> None:
        self._recorder.record_slow_syncs(microseconds)

    # ---- the store ----

    def open(self, **given: Any) -> Store:
        self.life += 1
        self.store = store = rocketstore.open(self.root, "rw", **{**self.options, **given})
        self.mark(
            "opened",
            begin=store.begin_offset,
            end=store.end_offset,
            queues={
                f"{topic}/{queue_id}": store.max_queue_offset(topic, queue_id)
                for topic in store.topics(system=True)
                for queue_id in store.queues(topic)
            },
            offsets=stored_offsets(store),
        )
        self.numbers: dict[tuple[str, int], int] = {}
        self.base: Path | None = None  # what was compacted last in this life
        self.timer: str | None = None  # what waits of the last transaction of this life
        return store

    @contextlib.contextmanager
    def as_guest(self, shared: Literal[True, "guest"] = "guest") -> Iterator[Store]:
        """A guest of this store puts meanwhile; the host is given, whose files are what is recorded."""
        self.shares = host = self.store
        with rocketstore.open(self.root, shared=shared, **self.options) as self.store:
            yield host
            self.mark("flushed", end=self.store.flush())
        self.store, self.shares = host, None

    def close(self) -> None:
        end = self.store.end_offset
        self.store.close()
        self.mark("closed", end=end)

    def die(self) -> None:
        """The store stays as a process leaves it that dies, more or less: the log is flushed."""
        leave(self.store)

    def next_number(self, topic: str, queue_id: int, count: int) -> int:
        number = self.numbers.get((topic, queue_id))
        if number is None:
            number = 0
            if topic in self.store.topics(system=True) and queue_id in self.store.queues(topic):
                number = self.store.max_queue_offset(topic, queue_id)
        self.numbers[topic, queue_id] = number + count
        self.mark("sending", queue=f"{topic}/{queue_id}", life=self.life, count=count)
        return number

    def done(self, topic: str, queue_id: int, result: Any) -> None:
        self.mark(
            "put",
            queue=f"{topic}/{queue_id}",
            first=result.queue_offset,
            places=list(result.physical_offsets),
            end=result.end_offset,
            durability=str(result.durability),
        )

    def put(self, topic: str, queue_id: int, size: int, **options: Any) -> Any:
        """One message, with its marks before and after."""
        number = self.next_number(topic, queue_id, 1)
        result = self.store.writer(topic, queue_id=queue_id).put(
            body_of(self.life, number, size), tags=tags_of(number), keys=keys_of(number), **options
        )
        self.done(topic, queue_id, result)
        return result

    def delay(self, **when: Any) -> None:
        """One message that is due later, with its marks before and after."""
        self.number = getattr(self, "number", 0) + 1
        body = f"{self.life}:{self.number}"
        self.mark("delaying", body=body)
        result = self.store.writer(LATE).put(
            body.encode() + b"." * self.rng.choice((0, 300, 1500)), **when
        )
        self.mark("delayed", body=body, end=result.end_offset, durability=str(result.durability))

    def repeat(self) -> None:
        """A message comes again and again, as each life wants it that says so."""
        step = datetime.timedelta(milliseconds=900)
        self.store.delayed.repeat(AGAIN, b"again", step, unique_id="again")
        durability = self.options.get("durability", "disk")
        self.mark("repeated", end=self.store.end_offset, durability=durability)

    def cancel(self) -> None:
        """One that waits for a time of its own is cancelled, another gets another time."""
        waiting = [found for found in self.store.delayed if not found.level and not found.every]
        if len(waiting) < 2:
            return
        gone, moved = self.rng.sample(waiting, 2)
        body = gone.message.body.decode().rstrip(".")
        self.mark("cancelling", body=body)
        self.store.delayed.cancel(gone)
        durability = self.options.get("durability", "disk")
        self.mark("cancelled", body=body, end=self.store.end_offset, durability=durability)
        self.store.delayed.reschedule(moved, self.clock.now_ms() + 1500)

    def roll(self) -> None:
        """Timers are put again, and the log goes that lies before what was delivered, and before
        what comes again."""
        self.store.flush()
        engine = engine_of(dispatched(self.store))
        there = (topic for topic in (LATE, DELAYED[-1]) if topic in self.store.topics(system=True))
        found = (message for topic in there for message in self.store.consumer(topic))
        first = [
            one.physical_offset for one in found if one.topic == LATE or "__EVERY" in one.properties
        ]
        below = min([self.store.visible_offset, *first])
        roll(engine, below, 1 << 10)
        below = min([below, *(at for _, at in engine.guests.holds())])
        self.mark("trimming", before=below)
        self.mark("trimmed", begin=self.store.trim(before_offset=below))

    def pass_time(self, seconds: float) -> None:
        """What is due meanwhile is delivered."""
        self.clock.advance(seconds)
        now, deadline = self.clock.now, time.monotonic() + 60
        while any(waiting.due_time <= now for waiting in self.store.delayed):
            assert time.monotonic() < deadline, "what is due is not delivered"
            time.sleep(0.002)

    def flush(self) -> None:
        end = self.store.end_offset
        self.store.wait_flushed(end)
        self.mark("flushed", end=end)

    def save_checkpoint(self) -> None:
        """What the checkpointer does each second."""
        parts(self.store).checkpointer.save(derived=self.rng.random() < 0.7)

    def trim(self) -> None:
        """All but the newest segments go: several at once."""
        before = self.store.end_offset - self.rng.randrange(
            self.options["commit_log_file_size_bytes"]
        )
        self.mark("trimming", before=before)
        self.mark("trimmed", begin=self.store.trim(before_offset=before))

    def retain(self, rule: Retention) -> None:
        """What goes by a rule, in a moment in which all of the log is on the disk and in its
        queues."""
        self.store.flush()
        plan = dispatched(self.store).retention.plan(rule)
        most = self.store.end_offset if rule.keep_latest_of else plan.new_begin_offset
        self.mark("trimming", before=most)
        self.mark("trimmed", begin=self.store.retention.run(rule).new_begin_offset)

    def commit(
        self,
        topic: str,
        group: str,
        upto: dict[int, int] | None = None,
        durability: Literal["disk", "os"] = "disk",
    ) -> None:
        """A group takes some messages and stores where it is, or stores `upto`."""
        with self.store.consumer(topic, group=group) as consumer:
            if upto is None:
                consumer.poll(max_messages=self.rng.randrange(1, 9))
                upto = consumer.positions
            offsets = {f"{group} {topic}/{q}": at for q, at in upto.items()}
            self.mark("committing", offsets=offsets, durability=durability)
            consumer.commit(upto, durability=durability)
            self.mark("committed", offsets=offsets, durability=durability)

    def transact(self, sizes: list[int], *, group: str | None, durability: Durability) -> None:
        """A group takes some messages, and what comes of them is put with its offset. One message waits
        for long; that of the transaction before is cancelled or moved, at times."""
        timer = f"{self.life}-{self.numbers.get(('later', 0), 0)}"
        with self.store.consumer("in", group=group) as consumer:
            with self.store.transaction(durability=durability) as tx:
                taken = tx.consume(consumer, max_messages=len(sizes)) if group else []
                puts: list[tuple[str, int, int]] = []
                for size in sizes:
                    topic, queue_id = self.rng.choice((("out", 0), ("out", 1), ("log", 0)))
                    number = self.next_number(topic, queue_id, 1)
                    puts.append((topic, queue_id, number))
                    body = body_of(self.life, number, size)
                    named = {"tags": tags_of(number), "keys": keys_of(number)}
                    tx.put(topic, body, queue_id=queue_id, **named)  # type: ignore[arg-type]
                tx.put("later", b"", unique_id=timer, deliver_after=FAR)
                what = self.rng.choice(("", "ended", "moved")) if self.timer else ""
                if self.timer and what:
                    way = (
                        tx.cancel(self.timer)
                        if what == "ended"
                        else tx.reschedule(self.timer, MOVED_MS)
                    )
                    assert way
                offsets = tx.commit_offsets(consumer) if taken else {}
                named_offsets = {f"{group} in/{q}": at for q, at in offsets.items()}
                queues = [[f"{topic}/{queue_id}", number] for topic, queue_id, number in puts]
                about = {"timer": timer, "ended": None, "moved": None}
                about |= {what: self.timer} if what else {}
                self.mark("transacting", puts=queues, offsets=named_offsets, **about)
            self.timer = timer
            self.numbers["later", 0] = self.numbers.get(("later", 0), 0) + 1
            self.mark("transacted", offsets=named_offsets)
        if durability == "disk" or offsets:
            self.mark("flushed", end=self.store.flushed_offset)

    def set_keys(self, count: int) -> None:
        """Messages with keys, of a topic of which the latest of each is kept."""
        for key in self.rng.choices("abcdefgh", k=count):
            self.number = getattr(self, "number", 0) + 1
            body = f"{self.life}:{self.number}"
            self.mark("setting", key=key, body=body)
            sized = body.encode() + b"." * self.rng.choice((0, 300, 900))
            put = self.store.writer(KEYED, queue_id=self.rng.randrange(2)).put(sized, keys=key)
            self.mark("set", key=key, body=body, end=put.end_offset, durability=str(put.durability))

    def compact(self) -> None:
        """The latest of each key goes to a store next to this one, which begins with the one before."""
        self.store.flush()
        latest = latest_of(dispatched(self.store))
        name = f"{self.life}-{self.store.end_offset}"
        self.mark("compacting", name=name, latest=latest)
        self.store.compact(KEYED, into=self.root.with_name(name), base=self.base)
        self.base = self.root.with_name(name)
        self.mark("compacted", name=name)

    def merge_commits(self) -> None:
        """What a worker does every few seconds."""
        engine_of(self.store).offsets.merge()


def run(job: dict[str, Any]) -> None:
    """Records one workload on one directory."""
    workload = workloads.WORKLOADS[job["workload"]]
    recorded = Run(Path(job["root"]), workload.options, job["seed"], job["life"])
    recorded.record(job["trace"], workload.limit_bytes if job["fresh"] else -1)
    try:
        recorded.slow_syncs(workload.slow_sync_us)
        (workload.run if job["fresh"] else workloads.go_on)(recorded)
    finally:
        recorded.end()


def main() -> None:
    for line in sys.stdin:
        try:
            run(json.loads(line))
        except Exception as error:
            print(f"{type(error).__name__}: {error}".replace("\n", "; "), flush=True)
            os._exit(1)  # threads of the store are still at work
        print("done", flush=True)


if __name__ == "__main__":
    with quiet(), small_steps():
        main()
