"""`put(unique_id=…)`: a second put with an id gives what the first one did, and stores nothing."""

from __future__ import annotations

import asyncio
import datetime
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    ConfigError,
    MessageRejectedError,
    QueueOffsetMismatchError,
    StoreBehindError,
    StoreClosedError,
)
from rocketstore.testing import crash_and_reopen, temporary_store
from tests.support.small_store import (
    STILL,
    dispatched,
    engine_of,
    no_dispatch,
    open_small,
    parts,
)

LATER = datetime.timedelta(hours=1)


def same_place(one: rocketstore.PutResult, other: rocketstore.PutResult) -> bool:
    names = "physical_offset end_offset queue_id queue_offset store_timestamp_ms count message_id"
    return all(getattr(one, name) == getattr(other, name) for name in names.split())


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
@pytest.mark.store("durability")
def test_the_second_put_gives_the_first_result(durability: Any, store: rocketstore.Store) -> None:
    writer = store.writer("t", queues=3)
    first = writer.put(b"a", unique_id="id-1", shard_key="x")
    assert not first.duplicate and store.writer("t").put(b"-").duplicate is False
    end = store.end_offset
    again = writer.put(b"other", unique_id="id-1", shard_key="y", tags="z")
    assert again.duplicate and same_place(first, again)
    assert store.end_offset == end
    assert "duplicate=True" in repr(again) and "duplicate" not in repr(first)
    assert again != first
    kept = pickle.loads(pickle.dumps(again))
    assert kept == again and kept.duplicate
    store.flush()
    message = store.get(first.physical_offset)
    assert (message.unique_id, message.body) == ("id-1", b"a")


@pytest.mark.parametrize("end", ["close", "crash"])
def test_it_holds_over_another_open(end: str, root: Path) -> None:
    with open_small(root) as store:
        firsts = [store.writer("t").put(b"%d" % n, unique_id=f"id-{n}") for n in range(100)]
        if end == "crash":
            store = crash_and_reopen(store)
        else:
            store.close()
            store = open_small(root)
        with store:
            again = [store.writer("t").put(b"x", unique_id=f"id-{n}") for n in range(100)]
            assert all(one.duplicate for one in again)
            assert all(map(same_place, firsts, again))
            assert len(list(store.consumer("t"))) == 100


@pytest.mark.store(**STILL, durability="disk")
def test_a_message_that_is_neither_flushed_nor_indexed_counts(store: rocketstore.Store) -> None:
    """In a store that syncs, the index has nothing before the flush; this one never flushes by itself."""
    writer = store.writer("t", durability="memory")
    first = writer.put(b"a", unique_id="id")
    again = writer.put(b"a", unique_id="id")
    assert again.duplicate and same_place(first, again)
    waited = writer.put(b"a", unique_id="id", durability="disk")
    assert waited.duplicate and waited.durability == "disk"
    assert store.flushed_offset >= first.end_offset  # a duplicate waits for its promise, too


def test_ids_of_other_puts_count(store: rocketstore.Store) -> None:
    """A UNIQ_KEY that came as a property: RocketMQ's clients give one to each message."""
    first = store.put_message("t", b"a", properties={"UNIQ_KEY": "id"})
    assert same_place(store.writer("t").put(b"b", unique_id="id"), first)
    second = store.writer("t").put(b"a", properties={"UNIQ_KEY": "other"})
    assert same_place(store.writer("t").put(b"b", unique_id="other"), second)


def test_only_the_id_counts_and_only_in_its_topic(store: rocketstore.Store) -> None:
    store.writer("t").put(b"a", keys="id")  # the index has the same key for it
    assert not store.writer("t").put(b"b", unique_id="id").duplicate
    assert not store.writer("u").put(b"b", unique_id="id").duplicate
    assert store.writer("t", queue_id=7).put(b"b", unique_id="id").duplicate  # any queue


def test_the_first_of_several_is_the_answer(store: rocketstore.Store) -> None:
    first, *_ = [store.put_message("t", b"%d" % n, properties={"UNIQ_KEY": "i"}) for n in range(3)]
    assert same_place(store.writer("t").put(b"x", unique_id="i"), first)


def test_of_many_threads_one_stores(tmp_path: Path) -> None:
    results: list[rocketstore.PutResult] = []
    barrier = threading.Barrier(8)

    def put(writer: rocketstore.Writer) -> None:
        for number in range(50):
            barrier.wait(60)
            results.append(writer.put(b"x", unique_id=f"id-{number}"))

    with open_small(tmp_path, durability="os") as store:
        threads = [threading.Thread(target=put, args=(store.writer("t"),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(not result.duplicate for result in results) == 50
        assert len({result.physical_offset for result in results}) == 50
        assert len(list(store.consumer("t"))) == 50


def test_tasks_have_it_too(tmp_path: Path) -> None:
    async def scene() -> int:
        async with rocketstore.aio.open(tmp_path) as store:
            writer = store.writer("t")
            done = await asyncio.gather(*[writer.put(b"x", unique_id="id") for _ in range(5)])
            assert sum(not one.duplicate for one in done) == 1
            assert {one.durability for one in done} == {"disk"}
            return len([message async for message in store.consumer("t")])

    assert asyncio.run(scene()) == 1


@pytest.mark.store(durability="disk")
def test_a_ticket_of_a_duplicate_waits_for_the_first(store: rocketstore.Store) -> None:
    writer = store.writer("t")
    first = writer.submit(b"a", unique_id="id")
    again = writer.submit(b"a", unique_id="id").result()
    assert again.duplicate and again.durability == "disk"
    assert same_place(first.result(), again)


def test_an_id_is_free_again_once_its_message_is_trimmed() -> None:
    """The window is what the store still has."""
    with temporary_store() as store:
        writer = store.writer("t")
        writer.put(b"a", unique_id="old")
        for _ in range(20):
            writer.put(bytes(10_000))
        young = writer.put(b"a", unique_id="young")
        store.flush()
        sum(1 for _ in store.consumer("t"))
        store.trim(before_offset=young.physical_offset)
        assert store.begin_offset > 0
        assert writer.put(b"b", unique_id="young").duplicate
        assert not writer.put(b"b", unique_id="old").duplicate
        assert writer.put(b"b", unique_id="old").duplicate


def test_with_an_expected_offset_a_duplicate_comes_first(store: rocketstore.Store) -> None:
    """A put that is tried again gives the offset that the first try gave."""
    writer = store.writer("t")
    with pytest.raises(QueueOffsetMismatchError):
        writer.put(b"a", unique_id="id", expected_queue_offset=1)
    first = writer.put(b"a", unique_id="id", expected_queue_offset=0)
    assert same_place(writer.put(b"a", unique_id="id", expected_queue_offset=0), first)


@pytest.mark.parametrize("wrong", ["", "a\x01b", "a\x02b", "x" * 40_000])
def test_ids_that_no_property_can_have_are_refused(wrong: str, store: rocketstore.Store) -> None:
    with pytest.raises(MessageRejectedError):
        store.writer("t").put(b"a", unique_id=wrong)
    assert store.end_offset == 0


def test_wrong_types_are_refused(store: rocketstore.Store) -> None:
    for wrong in (1, b"id", ["id"]):
        with pytest.raises(TypeError, match="unique_id"):
            store.writer("t").put(b"a", unique_id=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unique_id"):
        store.writer("t").put_batch([b"a"], unique_id="id")  # type: ignore[call-arg]
    assert store.end_offset == 0


def test_an_id_is_given_once(store: rocketstore.Store) -> None:
    for writer, more in (
        (store.writer("t"), {"UNIQ_KEY": "b"}),
        (store.writer("t", properties={"a": "b", "UNIQ_KEY": "c"}), None),
    ):
        with pytest.raises(MessageRejectedError, match="give one of them"):
            writer.put(b"a", unique_id="a", properties=more)
    assert store.end_offset == 0


def test_a_refused_put_leaves_its_id_free(store: rocketstore.Store) -> None:
    writer = store.writer("t")
    with pytest.raises(MessageRejectedError):
        writer.put(bytes(1 << 16), unique_id="id")
    assert not writer.put(b"a", unique_id="id").duplicate


def test_a_store_without_an_index_cannot_tell(tmp_path: Path) -> None:
    with (
        open_small(tmp_path, index_enabled=False) as store,
        pytest.raises(ConfigError, match=r"index_enabled.*unique_id needs the index"),
    ):
        store.writer("t").put(b"a", unique_id="id")


def test_an_index_that_lacks_keys_cannot_tell(store: rocketstore.Store) -> None:
    writer = store.writer("t")
    writer.put(b"a", unique_id="known")
    assert writer.put(b"a", unique_id="known").duplicate
    parts(store).index.degrade(OSError(28, "full"))
    with pytest.raises(StoreBehindError, match="key index"):
        writer.put(b"a", unique_id="new")


@pytest.mark.store(durability="os")
def test_what_is_not_indexed_yet_is_kept_no_longer_than_that(store: rocketstore.Store) -> None:
    writer, ids = store.writer("t"), engine_of(store).unique_ids
    for number in range(1500):
        writer.put(b"a", unique_id=f"{number}")
    dispatched(store)
    writer.put(b"a", unique_id="last")
    assert list(ids.recent) == list(ids.order) == [("t", "last")]


@pytest.mark.parametrize(("durability", "slots"), [("os", 1000), ("disk", 1000), ("disk", 2)])
def test_each_id_has_one_message_whatever_else_is_put(
    durability: Any, slots: int, tmp_path: Path, rng: random.Random
) -> None:
    """Beside other puts, transactions, delays and cancels, over many index files, or long chains."""
    found: dict[str, rocketstore.PutResult] = {}
    with open_small(tmp_path, durability=durability, index_slots=slots, **STILL) as store:
        writers = {topic: store.writer(topic, durability="memory") for topic in "tu"}
        for _ in range(1500):
            topic = rng.choice("tu")
            name = f"{topic}-{rng.randrange(300)}"
            known, act = found.get(name), rng.randrange(12)
            if act < 2:
                result = store.put_message(
                    topic, b"-", properties={} if known else {"UNIQ_KEY": name}
                )
                found.setdefault(name, result)
            elif act == 2 and known and known.due_time:
                store.flush()
                store.delayed.cancel(name)
                del found[name]
            elif act == 3:
                with store.transaction() as tx:
                    tx.put(topic, b"x", unique_id=name)
                    tx.put(topic, b"x")
                assert tx.results[0].duplicate == bool(known)
                found.setdefault(name, tx.results[0])
            else:
                result = writers[topic].put(
                    b"x", unique_id=name, deliver_after=LATER if act == 4 else None
                )
                assert result.duplicate == bool(known) and same_place(result, known or result)
                found.setdefault(name, result)


@pytest.mark.store(durability="os", commit_log_file_size_bytes=1 << 20)
def test_a_new_id_is_looked_for_without_python(store: rocketstore.Store) -> None:
    """Also while nothing is dispatched: what this wrote last is all that the index lacks."""
    writer, ids = store.writer("t"), engine_of(store).unique_ids
    looked: list[Any] = []
    look = ids._look
    ids._look = lambda claim: looked.append(claim[1]) or look(claim)  # type: ignore[method-assign]
    with no_dispatch(store):
        assert not any(writer.put(b"a", unique_id=f"{n}").duplicate for n in range(500))
        assert looked == [] and len(ids.recent) == 500
        assert writer.put(b"a", unique_id="7").duplicate
        writer.put(b"a message that may have any id")
        assert not any(writer.put(b"a", unique_id=name).duplicate for name in ("new", "newer"))
    assert looked == ["7", "new", "newer"]


@pytest.mark.store(**STILL, durability="disk")
def test_an_append_that_was_interrupted_is_looked_for(store: rocketstore.Store) -> None:
    """A signal's handler may raise after the message came into the log; it is not indexed then."""
    writer = store.writer("t", durability="memory")
    ids = engine_of(store).unique_ids

    def interrupted() -> Any:
        writer._append_if(b"a", -1, "id")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ids.put("t", "id", interrupted)
    assert writer.put(b"a", unique_id="id").duplicate
    assert not ids.unsure and not ids.turns_taken


def test_a_put_within_the_put_of_its_id_does_not_wait_for_itself(store: rocketstore.Store) -> None:
    """As by a signal's handler, which the interrupted put would wait for."""
    writer, ids = store.writer("t"), engine_of(store).unique_ids

    def append() -> rocketstore.PutResult:
        with pytest.raises(BackpressureError, match="unique_id = 'a': this thread"):
            writer.put(b"inner", unique_id="a")
        assert not writer.put(b"other", unique_id="b").duplicate
        return writer.put(b"outer")

    ids.put("t", "a", append)
    assert [m.body for m in store.consumer("t")] == [b"other", b"outer"]


@pytest.mark.store(max_wait_ms=50)
def test_the_wait_for_another_thread_has_a_bound(store: rocketstore.Store) -> None:
    begun, go_on = threading.Event(), threading.Event()
    writer, ids = store.writer("t"), engine_of(store).unique_ids

    def append() -> rocketstore.PutResult:
        begun.set()
        assert go_on.wait(60)
        return writer._append_if(b"first", -1, "id")

    other = threading.Thread(target=ids.put, args=("t", "id", append))
    other.start()
    assert begun.wait(60)
    try:
        with pytest.raises(BackpressureError, match=r"'id': another .* max_wait_ms = 50; .*again"):
            writer.put(b"second", unique_id="id")
        assert not writer.put(b"x", unique_id="other").duplicate
    finally:
        go_on.set()
        other.join()
    assert writer.put(b"second", unique_id="id").duplicate
    assert not ids.turns_taken


@pytest.mark.store(max_wait_ms=50)
def test_the_bound_counts_over_all_threads_that_come_first(store: rocketstore.Store) -> None:
    """One that never gets the turn does not wait for each of them as long."""
    ids = engine_of(store).unique_ids
    ids.turns_taken["t", "id"] = SignalSafeLock("another thread is always first")
    with pytest.raises(BackpressureError, match="max_wait_ms = 50"):
        store.writer("t").put(b"a", unique_id="id")
    assert store.end_offset == 0


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("t")
    with pytest.raises(StoreClosedError):
        writer.put(b"a", unique_id="id")
    with pytest.raises(StoreClosedError):
        writer.put(b"a", expected_queue_offset=0)
