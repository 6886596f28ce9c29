"""Many threads in one store, with a change of thread every 10 µs."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore import Store, StoreClosedError, Writer
from tests.process.other_process import open_small
from tests.support.waiting import wait_until

WRITERS = 4
EACH = 400
DURABILITIES = ("os", "disk", "memory")


class Crew:
    """Threads whose first error fails the test."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, function: Callable[..., object], *arguments: object) -> None:
        def run() -> None:
            try:
                function(*arguments)
            except BaseException as error:
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            if self._errors:
                raise self._errors[0]
            assert not thread.is_alive(), "a thread hangs"


def body_of(writer: int, number: int) -> bytes:
    return b"%d %d " % (writer, number) + bytes(number * 31 % 500)


def put_all(writer: Writer, name: int, seed: int) -> None:
    """Numbers 0 ... EACH - 1 in order: one by one, several at once, or with a ticket."""
    rng = random.Random(seed)
    number = 0
    tickets = []
    while number < EACH:
        way = rng.choice(("put", "batch", "submit"))
        many = min(rng.randrange(1, 6), EACH - number) if way == "batch" else 1
        bodies = [body_of(name, number + n) for n in range(many)]
        key = f"{name}-{number}"
        if way == "put":
            assert writer.put(bodies[0], keys=key).count == 1
        elif way == "batch":
            assert writer.put_batch(bodies, keys=key).count == many
        else:
            tickets.append(writer.submit(bodies[0], keys=key))
        number += many
    for ticket in tickets:
        assert ticket.result(30.0).end_offset == ticket.end_offset


def read_all(store: Store) -> None:
    """Every message once, in order within each writer, unharmed; each is found by its offset."""
    expected = [0] * WRITERS
    offsets: Counter[int] = Counter()
    for message in store.consumer("Orders").follow(30.0):
        writer, number, _ = bytes(message.body).split(b" ", 2)
        assert bytes(message.body) == body_of(int(writer), int(number))
        assert int(number) == expected[int(writer)]
        expected[int(writer)] += 1
        assert message.queue_offset == offsets[message.queue_id]
        offsets[message.queue_id] += 1
        if sum(expected) % 50 == 0:
            assert bytes(store.get(message.physical_offset).body) == bytes(message.body)
        if sum(expected) == WRITERS * EACH:
            break
    assert expected == [EACH] * WRITERS


def query_all(store: Store) -> None:
    """The first message of each writer is found by its key, sooner or later."""
    for name in range(WRITERS):
        wait_until(lambda key=f"{name}-0": bool(store.query("Orders", key, limit=8)))
        found = store.query("Orders", f"{name}-0", limit=8)
        assert all(bytes(m.body).startswith(b"%d " % name) for m in found)


def count_all(store: Store) -> None:
    """What was put is counted, and where the next message goes is known, without a lock."""
    before = 0
    while before < WRITERS * EACH:
        totals = store.stats().topics.get("Orders")
        counted = totals.messages if totals else 0
        assert counted >= before
        before = counted


@pytest.mark.usefixtures("small_switch_interval")
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("queues", ["own", "shared"])
def test_nothing_is_lost_doubled_or_out_of_order(
    tmp_path: Path, durability: str, queues: str, random_seed: int
) -> None:
    """D-32 D-33 S000-28 S000-30: put, put_batch and submit beside consumers, get, query and stats, while
    segments roll every few dozen messages."""
    with open_small(tmp_path, durability=durability) as store:
        shared = store.writer("Orders", queue_id=0)
        crew = Crew()
        for name in range(WRITERS):
            writer = shared if queues == "shared" else store.writer("Orders", queue_id=name)
            crew.start(put_all, writer, name, random_seed + name)
        crew.start(read_all, store)
        crew.start(read_all, store)
        crew.start(query_all, store)
        crew.start(count_all, store)
        crew.join()
        times = [m.store_timestamp_ms for m in store.consumer("Orders", queue_id=0)]
        assert times == sorted(times)
        assert store.end_offset > 2 * store.config.commit_log_file_size_bytes
    with open_small(tmp_path, durability=durability) as store:
        assert store.recovery.mode == "clean"
        read_all(store)


@pytest.mark.usefixtures("small_switch_interval")
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_close_in_the_middle_of_puts(tmp_path: Path, durability: str) -> None:
    """D-36 K-38: puts either succeed or hear StoreClosedError; every one that succeeded is there."""
    store = open_small(tmp_path, durability=durability)
    done = [0] * WRITERS
    running = threading.Barrier(WRITERS + 1)

    def put_until_closed(name: int) -> None:
        writer = store.writer("Orders", queue_id=name)
        running.wait(20)
        with contextlib.suppress(StoreClosedError):
            while True:
                writer.put(body_of(name, done[name] % 500))
                done[name] += 1

    crew = Crew()
    for name in range(WRITERS):
        crew.start(put_until_closed, name)
    running.wait(20)
    wait_until(lambda: min(done) >= 20)
    store.close()
    crew.join()
    with open_small(tmp_path, durability=durability) as store:
        assert store.recovery.mode == "clean"
        for name in range(WRITERS):
            found = [bytes(m.body) for m in store.consumer("Orders", queue_id=name)]
            # A put that waited for the disk when the store closed is stored, but heard an error.
            assert len(found) in (done[name], done[name] + 1)
            assert found == [body_of(name, n % 500) for n in range(len(found))]
