"""The one judge of every image: opens it, and says what is wrong.

acknowledged ⊆ recovered ⊆ sent, in order, without holes; queues and index agree with the log; stored offsets
are those that were committed; a second recovery changes no byte; the store takes messages again.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import rocketstore
from rocketstore import Message, Store
from rocketstore.engine.engine import CloseMode
from rocketstore.log.commitlog.checkpoint import OwnCheckpoint
from rocketstore.log.layout.positions_page import PositionsPage
from rocketstore.log.worker import Worker
from rocketstore.testing import ManualClock
from rocketstore.tools.verify import verify
from tests.power_loss.expectation import (
    AGAIN,
    BATCH,
    DELAYED,
    KEYED,
    LATE,
    Expectation,
    body_of,
    keys_of,
    tags_of,
)
from tests.support.checkpoints import own_checkpoint, rocketmq_times
from tests.support.small_store import engine_of

__all__ = ["Wrong", "judge", "leave", "quiet", "stored_offsets"]


#: What a transaction of the store puts for itself.
COMMIT_RECORDS = "rmq_sys_rocketstore_transactions"
#: Where transactions move what waits, ms.
MOVED_MS = 4_000_000_000_000
#: All is due then, ms.
LATEST_MS = 2_000_000_000_000
#: Of the images, so many take a message after the second recovery, are closed and verified.
GOES_ON = 0.3


class Wrong(AssertionError):
    """An image that a loss of power may leave, and a promise that it breaks."""


def check(holds: bool, text: object) -> None:
    if not holds:
        raise Wrong(str(text))


def judge(root: Path, expected: Expectation, *, killed: bool, rng: random.Random) -> None:
    """Recovers the store in `root` twice; puts to it and closes it, at times.

    Raises:
        Wrong: with the promise that does not hold.
    """
    try:
        judge_store(root, expected, killed=killed, rng=rng)
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {error}") from error


def judge_store(root: Path, expected: Expectation, *, killed: bool, rng: random.Random) -> None:
    check_lengths(root, expected)
    known, times = own_checkpoint(root), rocketmq_times(root)
    queues = len(list((root / "consumequeue").glob("*/*")))
    # What recovery alone has done: read before any worker acts.
    with mock.patch.object(Worker, "start"):
        store = rocketstore.open(root, "rw", **expected.options)
    try:
        check_progress(store, known, queues)
        last = store.recovery.last_store_timestamp_ms
        check(max(times[:3]) <= last, f"RocketMQ would skip records after {last}: {times}")
        messages = check_messages(store, expected, killed=killed)
        check_places(store, expected, messages)
        check_offsets(store, expected, killed=killed)
        check_transactions(store, expected, messages)
        check_keys(store, expected, killed=killed)
        offsets = stored_offsets(store)
        check_index(store, messages, rng)
        ends = queue_ends(store)
        end = store.end_offset
    finally:
        leave(store)
    before = log_bytes(root)
    goes_on = rng.random() < GOES_ON
    with contextlib.nullcontext() if goes_on else mock.patch.object(Worker, "start"):
        again = rocketstore.open(root, "rw", **expected.options)
    try:
        check(again.end_offset == end, f"a second recovery ends at {again.end_offset}, not {end}")
        check(queue_ends(again) == ends, "a second recovery gives other queues")
        check(stored_offsets(again) == offsets, "a second recovery gives other stored offsets")
        check(log_bytes(root) == before, "a second recovery changes bytes of the log")
        if goes_on:
            put_again(again, ends, rng)
            again.close()
    finally:
        leave(again)
    if expected.late:
        check_delayed(root, expected, killed=killed)
    if goes_on:
        shape = {name: expected.options[name] for name in ("index_slots", "index_entries")}
        report = verify(root, **shape)
        check(report.ok, f"verify: {report}: {'; '.join(map(str, report.faults[:3]))}")


def check_lengths(root: Path, expected: Expectation) -> None:
    """Every file that has its name has its length: RocketMQ loads nothing else (D-06)."""
    options = expected.options
    slots, entries = options["index_slots"], options["index_entries"]
    lengths = {
        "commitlog": options["commit_log_file_size_bytes"],
        "consumequeue": options["consume_queue_file_size_bytes"],
        "index": 40 + 4 * slots + 20 * entries,
    }
    for directory, wanted in lengths.items():
        for path in (root / directory).rglob("*"):
            size = path.stat().st_size
            check(
                path.is_dir() or size == wanted,
                f"{path.relative_to(root)} has {size} bytes, not {wanted}",
            )


def check_progress(store: Store, known: OwnCheckpoint | None, queues: int) -> None:
    """What our checkpoint calls dispatched and indexed is not done again, however long that would take: it speaks
    of no queue and no index file that a loss of power takes (D-18). Among more queues than it counts, one that
    was emptied and filled again may look like a new one."""
    report = store.recovery
    if known is None or known.flushed > report.end:
        return
    start, wanted = report.dispatch_start, known.dispatched
    check(start >= wanted or queues > known.queue_count, f"dispatched from {start}, not {wanted}")
    start, wanted = report.index_start, known.indexed
    check(start >= wanted, f"indexed from {start}, not {wanted}")


def leave(store: Store) -> None:
    """Gives the store up as a process that dies does: no mark says that all is well, and the page of positions
    goes on to say what it had synced (D-23)."""
    with mock.patch.object(PositionsPage, "end"):
        engine_of(store)._close(CloseMode(clean=False))


def check_messages(store: Store, expected: Expectation, *, killed: bool) -> list[Message]:
    """Each queue is a prefix of what was sent to it, and all that was promised is there."""
    promised = expected.in_system if killed else expected.on_disk
    check(store.end_offset >= promised, f"ends at {store.end_offset}, promised up to {promised}")
    report = store.recovery
    check(not report.damage, f"damage: {report.damage}")
    begin = store.begin_offset
    low, high = expected.begin, max(expected.begin, expected.begin_wanted)
    check(low <= begin <= high, f"begins at {begin}, allowed {low} … {high}")
    messages: list[Message] = []
    for topic in store.topics(system=True):
        for queue_id in () if topic in (*DELAYED, KEYED, COMMIT_RECORDS) else store.queues(topic):
            found = list(store.consumer(topic, queue_id=queue_id))
            check_queue(f"{topic}/{queue_id}", found, expected)
            last = found[-1].queue_offset + 1 if found else 0
            highest = store.max_queue_offset(topic, queue_id)
            check(not found or highest == last, f"{topic}/{queue_id} ends at {highest}, not {last}")
            messages += found
    messages.sort(key=lambda message: message.physical_offset)
    return messages


def check_queue(name: str, found: list[Message], expected: Expectation) -> None:
    lives = expected.lives.get(name, [])
    first = found[0].queue_offset if found else 0
    for number, message in enumerate(found, first):
        check(message.queue_offset == number, f"{name}: a hole in front of {message.queue_offset}")
        check(number < len(lives), f"{name}: {number} was never sent")
        head = message.body.split(b":", 3)
        life, _, size = map(int, head[:3])
        check(life == lives[number], f"{name}: {number} is of life {life}, not {lives[number]}")
        check(message.body == body_of(life, number, size), f"{name}: {number} has another body")
        given = (message.tags, message.keys)
        check(given in (BATCH, (tags_of(number), keys_of(number))), f"{name}: {number} has {given}")


def check_places(store: Store, expected: Expectation, messages: list[Message]) -> None:
    """Every message whose place is known, below the end, is at that place: no holes."""
    found = {
        message.physical_offset: (f"{message.topic}/{message.queue_id}", message.queue_offset)
        for message in messages
    }
    for place, (queue, number, _) in expected.places.items():
        if store.begin_offset <= place < store.end_offset:
            there = found.get(place)
            check(there == (queue, number), f"{queue} {number} at {place}: there is {there}")


def check_delayed(root: Path, expected: Expectation, *, killed: bool) -> None:
    """Once all are due, each that was acknowledged is delivered once, and none that was cancelled."""
    promised = expected.in_system if killed else expected.on_disk
    clock = ManualClock(LATEST_MS)
    store = rocketstore.open(
        root, "rw", **{**expected.options, "deliver_delayed": True}, clock=clock
    )
    try:
        deadline = time.monotonic() + 20
        while any(waiting.due_time <= clock.now for waiting in store.delayed):
            check(time.monotonic() < deadline, f"{store.delayed} wait for ever")
            time.sleep(0.002)
        store.flush()
        found = Counter(message.body.decode().rstrip(".") for message in store.consumer(LATE))
        times = sum("__EVERY" in message.properties for message in store.consumer(DELAYED[-1]))
        again = sum(1 for _ in store.consumer(AGAIN))
        waits = len(store.delayed)
    finally:
        leave(store)
    check(waits == (1 if times else 0), f"{waits} wait of what comes again")
    check(again == times - waits, f"{again} deliveries of {times} times, {waits} to come")
    lost = expected.repeated is not None and expected.repeated <= promised and not times
    check(not lost, "what comes again was acknowledged and is not there")
    twice = {body: count for body, count in found.items() if count > 1}
    check(not twice, f"delivered more than once: {twice}")
    check(not found.keys() - expected.late.keys(), f"never sent: {found.keys() - expected.late}")
    for body, at in expected.late.items():
        gone = expected.cancelled.get(body)
        if gone is not None and 0 <= gone <= promised:
            check(body not in found, f"{body} was cancelled and is delivered")
        elif gone is None and 0 <= at <= promised:
            check(body in found, f"{body} was acknowledged and is not delivered")


def check_offsets(store: Store, expected: Expectation, *, killed: bool) -> None:
    """Stored offsets are what was committed last and durably, or what was committed since or was being committed;
    never beyond the queue, to whose end recovery sets those back that did not wait for the log. Those of a queue that
    is not there stay: its first message gets no offset before them (D-17)."""
    check(not store.recovery.offsets_in_doubt, f"in doubt: {store.recovery.offsets_in_doubt}")
    stored = stored_offsets(store)
    committed = expected.offsets_in_system if killed else expected.offsets
    ends = queue_ends(store)
    for name, allowed in committed.items():
        offset = stored.get(name, -1)
        topic, queue_id = name.split(" ")[1].split("/")
        end = ends.get((topic, int(queue_id)))
        ahead = expected.ahead.get(name, ())
        kept = ahead if end is None else [end for one in ahead if one > end]
        check(
            offset in [*allowed, *kept],
            f"{name}: stored offset {offset}, committed {allowed}, the queue ends at {end}",
        )
        if end is not None:
            check(offset <= end, f"{name}: stored offset {offset} beyond the queue's end {end}")
    unknown = stored.keys() - committed.keys()
    check(not unknown, f"offsets that nobody committed: {sorted(unknown)}")


def check_transactions(store: Store, expected: Expectation, messages: list[Message]) -> None:
    """All of a transaction is there, offsets as well, or nothing of it."""
    there = {(f"{message.topic}/{message.queue_id}", message.queue_offset) for message in messages}
    stored = stored_offsets(store)
    waits = {one.unique_id: one.due_time for one in store.delayed if expected.transactions}
    moved = datetime.datetime.fromtimestamp(MOVED_MS / 1000, datetime.UTC)
    wanted: dict[str | None, bool] = {}
    for (puts, offsets), (timer, ended, later) in zip(
        expected.transactions, expected.timers, strict=True
    ):
        found = [tuple(put) in there for put in puts]
        check(all(found) or not any(found), f"transaction of {puts}: {found} are there")
        for name, offset in offsets.items():
            done = stored.get(name, -1) >= offset
            check(not puts or done == found[0], f"{name} {offset}: stored {done}, puts {found[0]}")
        if all(found):
            wanted |= {timer: False} | ({later: True} if later else {})
            wanted.pop(ended, None)
    known = {timer for timer, *_ in expected.timers}
    waits_so = {name: due == moved for name, due in waits.items() if name in known}
    check(waits_so == wanted, f"{waits_so} wait, not {wanted}: True is moved")


def latest_of(store: Store) -> dict[str, str]:
    """The body of the latest message of each key."""
    found = store.consumer(KEYED) if KEYED in store.topics() else ()
    messages = sorted(found, key=lambda message: message.physical_offset)
    return {message.keys[0]: message.body.decode().rstrip(".") for message in messages}


def check_keys(store: Store, expected: Expectation, *, killed: bool) -> None:
    """Each key has the latest body that was acknowledged, or one that was put after it. Stores of
    compactions that returned are there, and all that are there have what they are made of."""
    promised = expected.in_system if killed else expected.on_disk
    found = latest_of(store)
    for key, known in expected.keyed.items():
        kept = [n for n, (_, at) in enumerate(known) if 0 <= at <= promised]
        allowed = [body for body, _ in known[kept[-1] if kept else 0 :]]
        check(found.get(key) in (allowed if kept else [*allowed, None]), f"{key}: {found}, {known}")
    for name, wanted in expected.compactions.items():
        path = Path(store.path).with_name(name)
        check(path.exists() or name not in expected.compacted, f"the compaction {name} is lost")
        if path.exists():
            with rocketstore.open(path, "r") as made:
                check(latest_of(made) == wanted, f"{name} has {latest_of(made)}, not {wanted}")


def stored_offsets(store: Store) -> dict[str, int]:
    """ "group topic/id" → next offset, of what programs commit."""
    offsets = engine_of(store).offsets
    return {
        f"{group} {topic}/{queue_id}": offset
        for topic in set(store.topics(system=True)) - {COMMIT_RECORDS}
        for group in offsets.groups(topic)
        for queue_id, offset in offsets.get(topic, group).items()
    }


def check_index(store: Store, messages: list[Message], rng: random.Random) -> None:
    """One key of one topic: the index gives exactly its messages."""
    if not messages:
        return
    one = rng.choice(messages)
    key = rng.choice(one.keys)
    wanted = [m.physical_offset for m in messages if m.topic == one.topic and key in m.keys]
    found = sorted(m.physical_offset for m in store.query(one.topic, key, limit=10_000))
    check(found == wanted, f"index of {one.topic} {key}: {found}, not {wanted}")


def queue_ends(store: Store) -> dict[tuple[str, int], int]:
    return {
        (topic, queue_id): store.max_queue_offset(topic, queue_id)
        for topic in store.topics(system=True)
        for queue_id in store.queues(topic)
    }


def log_bytes(root: Path) -> list[tuple[str, bytes]]:
    """The log, without zeros at the end of its files: a new segment is none yet."""
    files = sorted((root / "commitlog").iterdir())
    found = [(path.name, path.read_bytes().rstrip(b"\0")) for path in files]
    return [pair for pair in found if pair[1]]


def put_again(store: Store, ends: dict[tuple[str, int], int], rng: random.Random) -> None:
    """The log takes messages, and their numbers go on where the queue ended."""
    ends = {queue: end for queue, end in ends.items() if queue[0] not in DELAYED}
    topic, queue_id = rng.choice(sorted(ends)) if ends else ("orders", 0)
    result = store.writer(topic, queue_id=queue_id).put(b"again", keys="k0")
    expected = ends.get((topic, queue_id), 0)
    check(result.queue_offset == expected, f"put to {topic}/{queue_id}: {result}, not {expected}")
    store.wait_flushed(result.end_offset)
    check(store.get(result.physical_offset).body == b"again", "a put after recovery")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Recovery tells what it cuts; of a thousand images nobody wants to read it."""
    logger = logging.getLogger("rocketstore")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
