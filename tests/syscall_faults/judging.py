"""The oracle: what a store must hold after a run, whatever failed in it, once calls work again."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocketstore import CorruptRecordError, Store
from rocketstore._native.os.mapping import mapped_files
from rocketstore.tools import verify
from tests.support.small_store import SMALL, open_small
from tests.support.transactions import RECORDS
from tests.syscall_faults.journal import (
    BASED,
    COMPACTED,
    KEYED,
    LATER,
    PATIENCE,
    Ack,
    Journal,
    is_typed,
    name_of,
    where,
)

__all__ = ["held", "judge", "left_behind"]

TIMERS = "rmq_sys_wheel_timer"
SHAPE = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}


def held(root: Path) -> list[str]:
    """Every body that a store gives back; for what a scene finds before anything fails."""
    with open_small(root) as store:
        return [body for _, _, _, body in stored(store)]


def stored(store: Store) -> Iterator[tuple[str, int, int, str]]:
    """Topic, queue, queue offset and body of all that can be read; steps over damage."""
    for topic in store.topics(system=True):
        if topic in (RECORDS, TIMERS):
            continue  # a commit record has the bodies of its messages together
        for queue_id in store.queues(topic):
            with store.consumer(topic, queue_id=queue_id) as consumer:
                while True:
                    try:
                        for message in consumer:
                            body = bytes(message.body).decode(errors="replace")
                            yield topic, queue_id, message.queue_offset, body
                        break
                    except CorruptRecordError:
                        consumer.seek(consumer.positions[queue_id] + 1, queue_id=queue_id)


def judge(root: Path, journal: Journal, options: dict[str, Any], *, damaged: bool) -> list[str]:
    """What is wrong, in sentences. acked ⊆ recovered ⊆ sent, and the store is whole again.

    A message with the promise `memory` has to be there only when its process stopped cleanly.
    """
    wrong: list[str] = []
    if journal.destroyed:
        journal.acks.clear()
    clean = not (root / "abort").exists() and journal.ended
    options = {**PATIENCE, **options}
    try:
        with open_small(root, **options) as store:
            wrong += _check_messages(store, journal, clean=clean)
            wrong += _check_groups(store, journal)
            wrong += _check_transactions(store, journal) + _check_kept(store, journal)
            store.writer("after").put(b"works", durability="disk")
            with store.consumer("after") as consumer:
                if [bytes(message.body) for message in consumer.poll(1, timeout_s=10)] != [
                    b"works"
                ]:
                    wrong.append("a put after recovery is not read")
        with open_small(root, **options) as store:
            if store.recovery.mode != "clean":
                wrong.append(f"a clean stop after recovery is a {store.recovery.mode} one")
    except Exception as error:
        kind = "" if is_typed(error) else " (not a typed error)"
        return [*wrong, f"the healed store does not work{kind}: {error!r} {where(error)}"]
    report = verify(root, **SHAPE)
    if not damaged:
        wrong += [f"verify: {fault}" for fault in report.faults[:3]]
    return wrong + _check_names(root) + _check_compacted(root, journal)


def _check_messages(store: Store, journal: Journal, *, clean: bool) -> list[str]:
    wrong = []
    sent = set(journal.sent)
    found: dict[tuple[str, int, int], str] = {}
    seen: set[str] = set()
    for topic, queue_id, queue_offset, body in stored(store):
        if (topic, queue_id, queue_offset) in found:
            wrong.append(f"{topic}/{queue_id} goes back at {queue_offset}")
        found[topic, queue_id, queue_offset] = body
        if topic != "after" and (body not in sent or (body in seen and topic != KEYED)):
            wrong.append(f"never sent, or twice there: {topic} {body[:20]}")
        seen.add(body)
    for ack in journal.acks:
        if ack.level == "memory" and not clean:
            continue
        wrong += _check_ack(store, ack, found, journal.trimmed)
    return wrong


def _check_ack(
    store: Store, ack: Ack, found: dict[tuple[str, int, int], str], trimmed: int
) -> list[str]:
    place = (ack.topic, ack.queue_id, ack.queue_offset)
    if found.get(place) != ack.body:
        if trimmed and ack.queue_offset < store.min_queue_offset(ack.topic, ack.queue_id):
            return []
        return [f"acknowledged ({ack.level}) and lost: {place} {ack.body[:20]}"]
    if ack.physical_offset >= 0 and bytes(store.get(ack.physical_offset).body).decode() != ack.body:
        return [f"another message at {ack.physical_offset} than was acknowledged"]
    if (
        ack.key
        and store.config.index_enabled
        and not any(m.queue_offset == ack.queue_offset for m in store.query(ack.topic, ack.key))
    ):
        return [f"acknowledged, but not found by its key: {place}"]
    return []


def _check_groups(store: Store, journal: Journal) -> list[str]:
    """A stored group offset never falls, and never points beyond its queue (D-17)."""
    wrong = []
    with store.consumer("orders", group="billing") as consumer:
        stored = consumer.positions
    for queue_id, offset in stored.items():
        if offset > store.max_queue_offset("orders", queue_id):
            wrong.append(f"a group waits beyond queue {queue_id}, at {offset}")
    for commit in journal.commits[-1:]:
        for queue, offset in commit.items():
            if stored.get(int(queue), 0) < offset:
                wrong.append(f"a committed offset is lost: {queue} {offset}, now {stored}")
    return wrong


def _check_transactions(store: Store, journal: Journal) -> list[str]:
    """All of each transaction, or nothing of it; and all of one whose commit returned."""
    found = {body for _, _, _, body in stored(store)}
    wrong, timers = [], list[str]()
    for bodies in journal.transactions:
        there = len(found.intersection(bodies))
        if there not in (0, len(bodies)):
            wrong.append(f"{there} of {len(bodies)} messages of a transaction: {bodies[0][:20]}")
        if bodies in journal.committed and not there:
            wrong.append(f"a committed transaction is lost: {bodies[0][:20]}")
        timers += [name_of(bodies[0])] if there else []
    waits = [one.unique_id for one in store.delayed.messages(LATER)]
    if timers and waits != timers[:-3:-1]:
        wrong.append(f"{waits} wait, not the last two of {timers}")
    return wrong


def _check_kept(store: Store, journal: Journal) -> list[str]:
    """What waits does so once; a key whose message was put again may have it twice."""
    waits = Counter(one.unique_id for one in store.delayed.messages(LATER))
    keys = {name_of(body) for topic, _, _, body in stored(store) if topic == KEYED}
    return [
        f"{name} waits {waits[name]} times, and is no key"
        for name in journal.kept
        if waits[name] != 1 and name not in keys
    ]


def _check_compacted(root: Path, journal: Journal) -> list[str]:
    """A new store has its name once it is whole; what is left of another one says that it is not."""
    wrong, names = [], {path.name for path in root.parent.iterdir()} - {root.name, "trace"}
    for name in (COMPACTED, BASED):
        into = root.with_name(name)
        names -= {name, f".{name}.compacting"}
        if into.exists():
            found = held(into)
            wrong += [f"verify of {name}: {fault}" for fault in verify(into, **SHAPE).faults[:3]]
            wrong += [f"never sent: {body[:20]}" for body in found if body not in journal.sent]
        if name in journal.compacted and not (into.exists() and found):
            wrong.append(f"{name} is not there")
    return wrong + [f"a stray name: {name}" for name in names]


def _check_names(root: Path) -> list[str]:
    """D-06: no name that RocketMQ would stumble over, nothing left in the directory for the unfinished."""
    wrong = [
        f"a stray name: {path.name}"
        for path in (root / "commitlog").iterdir()
        if len(path.name) != 20 or not path.name.isdigit()
    ]
    return wrong + [f"left over: {path.name}" for path in (root / "rocketstore" / "tmp").iterdir()]


def left_behind(descriptors: int) -> list[str]:
    """What a process still has after its stores are closed."""
    gc.collect()
    wrong = []
    open_now = os.listdir("/proc/self/fd")
    if (now := len(open_now)) > descriptors:
        names = [_target(fd) for fd in open_now]
        wrong.append(f"{now - descriptors} descriptors more than before: {names[-6:]}")
    if mapped_files():
        wrong.append(f"{mapped_files()} files are still mapped")
    threads = [t.name for t in threading.enumerate() if t.name.startswith("rocketstore")]
    if threads:
        wrong.append(f"threads that go on: {threads}")
    return wrong


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "?"
