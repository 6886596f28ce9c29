"""Signal handlers that come while their own thread holds a lock: none waits for itself, nothing is lost (K-01)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from rocketstore import BackpressureError, Store, StoreClosedError
from rocketstore._native.sync.durations import Durations
from rocketstore.consuming import consumer_offsets
from rocketstore.engine import tickets
from rocketstore.log.dispatch import arrival_notifier as arrivals
from rocketstore.log.dispatch import dispatcher
from rocketstore.log.queues import consume_queue_store, extension_units, put_states
from rocketstore.log.queues import mapping_cache as mapped_queues
from rocketstore.log.read import unique_ids
from rocketstore.stats import histogram, statistics
from tests.support.small_store import engine_of, everything, open_small
from tests.support.striking import at_each_line

pytestmark = pytest.mark.timeout(20)


def test_latencies_that_a_handler_counts_too() -> None:
    """A put of a handler is sampled while a put of its thread is."""
    counted = histogram.LatencyHistogram()
    lines = at_each_line(histogram, lambda: counted.record(5), lambda: counted.record(9))
    assert lines > 4
    found = counted.summary()
    assert (found.count, found.max_ns) == (lines + 1 + lines, 9)
    assert at_each_line(histogram, counted.summary, lambda: counted.record(12)) > 4
    assert counted.summary().max_ns == 12


def test_statistics_that_a_handler_asks_for() -> None:
    now_ms = 0

    def work() -> None:
        nonlocal now_ms
        now_ms += statistics.ROTATION_MS  # each time the minute is over
        seen.record_get(1, 7_000_000)
        seen.record_get(0)
        times.add(2_000_000)
        seen.record_put_failed()

    def handle() -> None:
        seen.record_get(1, 9_000_000)
        times.add(3_000_000)
        seen.snapshot()

    times = Durations(histogram.PUT_TIME_BOUNDS_NS)
    seen = statistics.StoreStatistics(dict, put_times=times.take, clock_ms=lambda: now_ms)
    lines = at_each_line(statistics, work, handle)
    assert lines > 15
    found = seen.snapshot()
    assert found.get_found == found.put_latency.count == 2 * lines + 1
    assert found.get_miss == found.put_failed == lines + 1
    assert (found.put_entire_time_max_ms, found.get_entire_time_max_ms) == (3, 9)
    assert seen._minute_began_ms == now_ms


def test_a_queue_that_a_handler_puts_to_first() -> None:
    """One state: two would give the same queue offset twice."""
    queues = put_states.PutStates(lambda topic, queue_id: 0, wide_topics=False)
    topics = map(str, itertools.count())
    topic, found = "", []

    def work() -> None:
        nonlocal topic
        topic = next(topics)
        found.append((topic, queues.state(topic, 0)))

    lines = at_each_line(put_states, work, lambda: found.append((topic, queues.state(topic, 0))))
    assert lines > 8
    assert all(state is queues.state(of, 0) for of, state in found)


@pytest.mark.parametrize("known", [False, True], ids=["a new queue", "one with a directory"])
@pytest.mark.store(durability="os")
def test_a_queue_that_a_handler_reads_first(known: bool, store: Store) -> None:
    """One object, which all readers share with the dispatcher."""
    queues: Any = engine_of(store)._queues
    numbers = itertools.count()
    number, found = 0, []

    def work() -> None:
        nonlocal number
        number = next(numbers)
        if known:
            queues._queues.setdefault("t", {})[number] = None
        found.append((number, queues.add("t", number)))

    def handle() -> None:
        found.append((number, queues.get("t", number) or queues.add("t", number)))
        queues.add("other", number)
        assert {"t", "other"} >= {*queues.topics()}

    assert at_each_line(consume_queue_store, work, handle) > 20
    assert all(queue is queues.get("t", n) for n, queue in found)
    assert not queues._making


@pytest.mark.store(durability="os")
def test_queues_that_a_handler_adds_while_they_are_gone_through(store: Store) -> None:
    queues: Any = engine_of(store)._queues

    def look() -> None:
        queues._queues.clear()
        queues.add("t", 0)
        queues.add("t", 1)
        assert {queue.queue_id for queue in queues.all()} >= {0, 1}
        assert len(queues.asked_for()) >= 2
        assert queues.digest()[0] >= 2

    lines = at_each_line(
        consume_queue_store, look, lambda: (queues.add("t", 2), queues.add("late", 0))
    )
    assert lines > 30
    queues.add("t", 3)
    assert queues.digest()[0] == len(queues) == 3


@pytest.mark.store(durability="os")
def test_a_handler_dispatches_nothing_inside_a_dispatch(store: Store) -> None:
    worker: Any = engine_of(store)._dispatcher
    worker.stop()
    topics = map(str, itertools.count())
    reached: list[int] = []

    def work() -> None:
        store.writer(next(topics)).put(b"x")
        assert worker.catch_up(store.end_offset) == store.end_offset
        reached.append(engine_of(store).positions.dispatched)

    def handle() -> None:
        with worker.service.turn() as inside:
            before = engine_of(store).positions.dispatched
        reached.append(worker.catch_up(store.end_offset))
        assert reached[-1] == (before if inside else store.end_offset)

    assert at_each_line(dispatcher, work, handle) > 30
    assert reached == sorted(reached)
    assert all(len(everything(store, topic)) == 1 for topic in store.topics())


def test_smaller_locks_that_a_handler_comes_inside_of(tmp_path: Path) -> None:
    class Queue:
        used = False

        def park(self) -> bool:
            return False

    order = mapped_queues.MappingCache()
    for wanted in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mapped_queues, "MANY_FILES", wanted)
            assert at_each_line(
                mapped_queues, lambda: order.mapped(Queue()), lambda: order.mapped(Queue())
            )

    units = extension_units.ExtensionUnits(tmp_path)
    (tmp_path / f"{0:020d}").write_bytes(bytes(4096))

    def unit() -> object:
        return units.unit(extension_units.LAST_ADDRESS)

    assert at_each_line(extension_units, lambda: (units.close(), unit()), unit) > 5

    heard: list[str] = []
    caller = arrivals.ArrivalNotifier(lambda topic, *_: heard.append(topic))
    lines = at_each_line(
        arrivals,
        lambda: caller.hand_over([("t", 0, 0, 0, 0)]),
        lambda: caller.hand_over([("handler", 0, 0, 0, 0)]),
    )
    caller.close()
    assert sorted(heard) == ["handler"] * lines + ["t"] * (lines + 1)


@pytest.mark.store(durability="os")
def test_a_handler_gives_a_group_back_inside_a_commit(store: Store) -> None:
    """As SIGTERM's handler does that closes the consumer: what was interrupted stores all or says that it stores
    nothing. A commit of the handler's own is refused, not lost."""
    for _ in range(8):
        store.writer("t").put_batch([b"x"] * 20)
    consumer = store.consumer("t", group="g")
    stored: Any = engine_of(store).offsets
    refused, kept = 0, 0
    stored_nothing, stored_all = 0, 0

    class Owner:
        pass

    def handle() -> None:
        nonlocal refused, kept
        owner = Owner()
        stored.claim("t", "other", owner)
        assert "other" not in stored.groups("t")
        stored.release("t", "other", owner)
        stored.release("t", "g", consumer)
        try:
            stored.commit("t", "mine", {0: kept + 1}, 0, lambda _: None)
            kept += 1
        except BackpressureError:
            refused += 1

    def work() -> None:
        nonlocal stored_nothing, stored_all
        stored.claim("t", "g", consumer)
        before = stored.get("t", "g")
        assert consumer.poll(1)
        try:
            consumer.commit()
        except StoreClosedError:
            assert stored.get("t", "g") == before
            stored_nothing += 1
        else:
            assert stored.get("t", "g") == consumer.positions
            stored_all += 1

    lines = at_each_line(consumer_offsets, work, handle)
    assert (refused > 10, kept > 10, refused + kept) == (True, True, lines)
    assert consumer.positions == {0: lines + 1}
    assert (stored_nothing > 10, stored_all > 10) == (True, True)
    assert stored.get("t", "mine") == {0: kept}
    consumer.close()


def test_callbacks_that_a_handler_asks_for(tmp_path: Path) -> None:
    """Each is called once, and one thread calls them."""
    asked: list[tickets.Ticket] = []
    called: list[tickets.Ticket] = []
    with open_small(tmp_path, durability="os") as store:
        writer = store.writer("t")

        def work() -> None:
            completions.close()  # its thread is started each time
            completions._closed, completions._thread = False, None
            asked.append(writer.submit(b"x"))
            asked[-1].add_done_callback(called.append)

        def handle() -> None:
            if asked:
                asked.append(asked[-1])
                asked[-1].add_done_callback(called.append)

        completions: Any = writer._completions
        assert at_each_line(tickets, work, handle) > 30
    assert sorted(map(id, called)) == sorted(map(id, asked))
    assert not any(ticket._callbacks for ticket in asked)


@pytest.mark.store(commit_log_file_size_bytes=1 << 16)
def test_ids_that_a_handler_puts_too(store: Store) -> None:
    """The same id is refused where its own thread is putting it; any other is stored."""
    writer = store.writer("t", durability="memory")
    numbers = itertools.count()
    number, refused, inner = 0, 0, 0

    def work() -> None:
        nonlocal number
        number = next(numbers)
        writer.put(b"x", unique_id=f"id-{number}")

    def handle() -> None:
        nonlocal refused, inner
        try:
            writer.put(b"x", unique_id=f"id-{number}")
        except BackpressureError:
            refused += 1
        inner += 1
        assert not writer.put(b"x", unique_id=f"inner-{inner}").duplicate

    lines = at_each_line(unique_ids, work, handle)
    assert lines > 8 and 0 < refused < lines
    store.flush()
    found = [message.unique_id for message in everything(store, "t")]
    assert len(set(found)) == len(found) == number + 1 + inner
    assert not engine_of(store).unique_ids.turns_taken
