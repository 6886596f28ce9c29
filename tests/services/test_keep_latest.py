"""`Retention(keep_latest_of=…)`: what is put again before its segment goes, and what never is."""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, Retention, Store
from rocketstore._native.append.key_watch import KeyWatch
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.puts.put_message import put_message
from rocketstore.services.retention.latest import LatestMessages
from tests.services.latest_tools import RULE, first_segments_go, latest_of, messages, put
from tests.support.retention_tools import NEVER, fill
from tests.support.small_store import SEGMENT, dispatched, engine_of, open_small
from tests.support.waiting import wait_until


def later_than(store: Store, begin: int) -> bool:
    return store.begin_offset > begin


@pytest.mark.quick
def test_two_keys_survive_100_trims(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put(store, "a", b"once", 3, born_time=1234, flag=7, reconsume_times=2)
        first = messages(store)[0]
        for n in range(100):
            put(store, "b", b"%d" % n)
            fill(store, 30)
            store.retention.run(RULE)
            assert latest_of(dispatched(store)) == {"a": b"once", "b": b"%d" % n}
        assert store.begin_offset > 100 * 2 * SEGMENT
        assert len(messages(store)) < 6
        kept = next(message for message in messages(store) if message.keys == ("a",))
        for name in ("properties", "body", "born_timestamp_ms", "born_host", "flag", "queue_id",
                     "reconsume_times", "sys_flag"):  # fmt: skip
            assert getattr(kept, name) == getattr(first, name)
        assert kept.queue_offset > first.queue_offset
        store.compact("config", into=tmp_path / "compacted")
        assert [one.body for one in store.query("config", "a")] == [b"once"]


def test_by_itself(tmp_path: Path) -> None:
    """The store's own rule, in its thread."""
    rule = Retention(max_bytes=4 * SEGMENT, check_every=NEVER, keep_latest_of=("config",))
    with open_small(tmp_path, retention=rule) as store:
        put(store, "a", b"1")
        for _ in range(5):
            begin = store.begin_offset
            fill(store, 100)
            wait_until(partial(later_than, store, begin))
        assert latest_of(dispatched(store)) == {"a": b"1"}
        assert store.retention.last_error is None


def test_what_is_not_put_again(tmp_path: Path) -> None:
    """Tombstones with what they delete, messages without a key, other topics, records of no consumer."""
    with open_small(tmp_path) as store:
        put(store, "gone", b"1")
        put(store, "gone", b"")
        put(store, None, b"no key")
        put(store, " ", b"blank key")
        put(store, "half", b"prepared", sys_flag=4)
        store.put_message("other", b"x", properties={"KEYS": "a"})
        put(store, "a", b"1")
        fill(store)
        end = store.end_offset
        first_segments_go(store)
        assert latest_of(store) == {"a": b"1"}
        assert store.end_offset - end < 300
        assert store.begin_offset > SEGMENT


def test_segments_with_little_else_stay(tmp_path: Path) -> None:
    """Nothing is put again and again where nobody puts: copies are at most half of what goes."""
    with open_small(tmp_path) as store:
        for n in range(60):
            put(store, f"k{n}", b"x" * 300)
        fill(store, 3)
        end = store.end_offset
        plan = store.retention.plan(RULE)
        assert plan.count == 0
        assert "more than half of them is the latest of its key, of config" in str(plan)
        for _ in range(3):
            assert store.retention.run(RULE) == plan
        assert store.end_offset == end
        with open_small(tmp_path, "r") as reader:
            assert "more than half of them" in str(reader.retention.plan(RULE))
        fill(store, 120)
        assert store.retention.plan(RULE).count > 0
        appended, rounds = store.end_offset, 0
        while store.retention.run(RULE).count:
            rounds += 1
        assert rounds < 10
        assert store.end_offset - appended < appended
        assert len(latest_of(dispatched(store))) == 60


def newer_first(monkeypatch: pytest.MonkeyPatch, keys: dict[str, bytes], queue_id: int) -> None:
    """Another put of each of the keys comes right before its copy."""
    real = LatestMessages._put

    def put_late(self: LatestMessages, engine: WritingEngine, offset: int) -> bool:
        key = engine.reader.get(offset).keys[0]
        if key in keys:
            store_put(engine, key, keys.pop(key), queue_id)
        return real(self, engine, offset)

    monkeypatch.setattr(LatestMessages, "_put", put_late)


def store_put(engine: WritingEngine, key: str, body: bytes, queue_id: int) -> None:
    put_message(
        *(engine, "config", body, queue_id, {"KEYS": key}), flag=0, sys_flag=0, born_time=None,
        born_host=None, store_host=None, reconsume_times=0, prepared_transaction_offset=0,
        delay_level=None, durability=None, timeout_s=None, expected=None,
    )  # fmt: skip


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.parametrize("queue_id", [0, 1])
def test_a_copy_hides_no_put_that_comes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, queue_id: int
) -> None:
    """In the same queue and in another one; the segment stays for a moment. A tombstone counts."""
    with open_small(tmp_path, durability=durability) as store:
        for key in "abc":
            put(store, key, b"old")
        fill(store)
        newer_first(monkeypatch, {"a": b"new", "c": b""}, queue_id)
        plan = store.retention.run(RULE)
        assert plan.count == 0
        assert "a key in it is put at this moment" in str(plan)
        assert store.begin_offset == 0
        store.flush()
        found = [(one.keys[0], one.body) for one in messages(dispatched(store))]
        assert found[3:] == [("a", b"new"), ("b", b"old"), ("c", b"")]
        first_segments_go(store)
        assert latest_of(store) == {"a": b"new", "b": b"old", "c": b""}
        assert store.begin_offset > 0


@pytest.mark.parametrize("how", ["batch", "frames", "columns", "transaction"])
def test_each_kind_of_put_is_noted(tmp_path: Path, how: str) -> None:
    with open_small(tmp_path) as store:
        engine = engine_of(store)
        with KeyWatch(engine.commit_log.log, 7):
            writer = store.writer("config")
            if how == "batch":
                writer.put_batch([b"1", b"2"], keys="a")
            elif how == "columns":
                rows = column([b"1", b"2"])
                store.put_columns(rows, topics=["config"] * 2, keys=column([b"x", b"a"]))
            elif how == "frames":
                frames, _ = rocketstore.encode_frames(
                    column([b"1", b"2"]), topics=["config"] * 2, keys=column([b"x", b"a"])
                )
                store.put_frames(frames)
            else:
                with store.transaction() as transaction:
                    transaction.put("config", b"1", keys="a")
            end = store.end_offset
            assert not again(engine, "a")
            assert store.end_offset == end
            assert again(engine, "b")
            assert not again(engine, "b")
            assert not again(engine, None)  # nothing says that it is the latest
        assert not again(engine, "c")  # nobody notes what is put
        watch = KeyWatch(engine.commit_log.log, 8)
        watch.__enter__()
        del watch  # as after an exception of a signal's handler
        assert not again(engine, "c")


def test_light_queues_take_no_number_of_what_is_refused(tmp_path: Path) -> None:
    light = {"KEYS": "a", "INNER_MULTI_DISPATCH": "%LMQ%one"}
    options: dict[str, Any] = {"multi_dispatch_enabled": True, "light_queue_enabled": True}
    with open_small(tmp_path, **options) as store:
        store.put_message("config", b"1", properties=light)
        fill(store)
        newer = put_message_like(engine_of(store), light)
        assert newer.count == 0
        store.put_message("config", b"2", properties=light)
        store.flush()
        found = list(dispatched(store).consumer("%LMQ%one"))
        assert [message.body for message in found] == [b"1", b"2"]
        first_segments_go(store)
        assert latest_of(store) == {"a": b"2"}


def column(rows: list[bytes]) -> Any:
    import numpy as np

    return np.cumsum([0, *map(len, rows)]).astype(np.int64), b"".join(rows)


def again(engine: WritingEngine, key: str | None) -> bool:
    put = put_message_like(engine, {} if key is None else {"KEYS": key})
    assert (put.count > 0) == (put.end_offset > 0)
    return put.count > 0


def put_message_like(engine: WritingEngine, properties: dict[str, str]) -> rocketstore.PutResult:
    return put_message(
        *(engine, "config", b"x", 0, properties), flag=0, sys_flag=0,
        born_time=None, born_host=None, store_host=None, reconsume_times=0, timeout_s=None,
        prepared_transaction_offset=0, delay_level=0, durability="memory", expected=None,
        only_latest=True,
    )  # fmt: skip


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_puts_of_all_queues_race_with_copies(tmp_path: Path, durability: str) -> None:
    """Values of a key rise: in the order of the log they never fall, whoever put them."""
    rand, ended = random.Random(5), threading.Event()
    newest: dict[str, int] = {}
    with open_small(tmp_path, durability=durability) as store:
        put(store, "still", b"0", 2)

        def write() -> None:
            for n in range(1, 600):
                key = f"k{rand.randrange(6)}"
                put(store, key, b"%d" % n, rand.randrange(4))
                newest[key] = n
                if n % 4 == 0:
                    store.put_message("orders", b"x" * 300)
            ended.set()

        thread = threading.Thread(target=write)
        thread.start()
        rounds = 0
        while not ended.is_set() or rounds < 3:
            rounds += ended.is_set()
            try:
                store.retention.run(RULE)
            except rocketstore.OffsetOutOfRangeError:
                continue
            seen: dict[str, int] = {}
            for message in messages(store):
                value = int(message.body)
                assert seen.get(message.keys[0], 0) <= value
                seen[message.keys[0]] = value
        thread.join()
        fill(store)
        first_segments_go(store)
        wanted = {"still": b"0", **{key: b"%d" % n for key, n in newest.items()}}
        assert latest_of(store) == wanted
        assert store.begin_offset > 0


@pytest.mark.parametrize(
    "wrong", ["config", [], [""], [1], b"x", {"a": 1}, ["SCHEDULE_TOPIC_XXXX"]]
)
def test_names_that_are_none(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="keep_latest_of"):
        Retention(max_bytes=1, keep_latest_of=wrong)
