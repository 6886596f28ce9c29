"""One rule for wrong arguments: options are a ConfigError, the rest a TypeError or ValueError that names the
argument, its value and what is allowed."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import (
    ConfigError,
    MessageRejectedError,
    OffsetOutOfRangeError,
    RocketStoreError,
    Store,
    StoreConfig,
    encode_frames,
    scan,
    shard_queue_id,
    tools,
)
from tests.support.small_store import dispatched, open_small

Call = Callable[[Store, Any], object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_small(tmp_path / "store") as opened:
        opened.writer("t").put(b"x", keys="k")
        yield dispatched(opened)


COLUMN = ([0, 1], b"x")


def broker(**properties: Any) -> StoreConfig:
    return StoreConfig.from_rocketmq(properties)


OPTIONS: dict[str, tuple[list[object], Call]] = {
    "path": (["", 5, b"store", "a\0b"], lambda s, x: rocketstore.open(x)),
    "mode": (["w", 5, []], lambda s, x: rocketstore.open("x", x)),
    "config": ([{"a": 1}, "x"], lambda s, x: rocketstore.open("x", config=x)),
    "force": (["yes", 1], lambda s, x: rocketstore.open("x", force=x)),
    "untrusted": (["yes", 1], lambda s, x: rocketstore.open("x", "r", untrusted=x)),
    "on_arrival": ([5], lambda s, x: rocketstore.open("x", on_arrival=x)),
    "on_recovery": ([5], lambda s, x: rocketstore.open("x", on_recovery=x)),
    "durability": (["none", 5], lambda s, x: s.writer("t", durability=x)),
    "queues": ([0, "4", 65537], lambda s, x: s.writer("t", queues=x)),
    "queue_id": ([-1, "0"], lambda s, x: s.writer("t", queue_id=x)),
    "visible": (["soon", 5], lambda s, x: rocketstore.open("x", visible=x)),
    "properties": ([5, None, ["a=b"]], lambda s, x: StoreConfig.from_rocketmq(x)),
    "maxMessageSize": ([5, None, True], lambda s, x: broker(maxMessageSize=x)),
    "unknownOfBroker": ([5], lambda s, x: broker(unknownOfBroker=x)),
    "flush_interval_ms": ([0, "5"], lambda s, x: s.configure(flush_interval_ms=x)),
    "index_slots": ([0, 10**20, 1.5, "x"], lambda s, x: tools.verify(".", index_slots=x)),
    "index_entries": ([1, -1, 10**20, True], lambda s, x: tools.verify(".", index_entries=x)),
    "commit_log_dir": ([5, None], lambda s, x: tools.verify(".", commit_log_dir=x)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_option_is_a_config_error(
    store: Store, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a ValueError; nothing is made on disk."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    values, call = OPTIONS[name]
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name} = {re.escape(repr(value))}: ") as caught:
            call(store, value)
        assert isinstance(caught.value, ValueError)
        assert (caught.value.field, caught.value.value) == (name, value)
    assert os.listdir() == []


def test_a_queue_number_says_what_it_must_be(store: Store) -> None:
    with pytest.raises(
        ConfigError, match="^queue_id = '0': must be a whole number, 0 … 2147483647"
    ):
        store.writer("t", queue_id="0")  # type: ignore[arg-type]


#: Name as in the message, a value, the call.
WRONG_TYPES: list[tuple[str, object, Call]] = [
    ("timeout_s", "x", lambda s, x: s.writer("t").put(b"x", durability="memory", timeout_s=x)),
    ("timeout_s", [], lambda s, x: s.wait_flushed(0, x)),
    ("timeout_s", "x", lambda s, x: s.flush(x)),
    ("timeout_s", "x", lambda s, x: s.consumer("t").poll(timeout_s=x)),
    ("timeout_s", "x", lambda s, x: s.consumer("t").poll_columns(timeout_s=x)),
    ("timeout_s", "x", lambda s, x: next(s.consumer("t").follow(x))),
    ("tags", 5, lambda s, x: s.consumer("t", tags=x)),
    ("tags", ["a"], lambda s, x: s.writer("t").put(b"x", tags=x)),
    ("keys", 5, lambda s, x: s.writer("t").put(b"x", keys=x)),
    ("keys", 5, lambda s, x: s.writer("t").put(b"x", keys=["a", x])),
    ("shard_key", 5, lambda s, x: s.writer("t").put(b"x", shard_key=x)),
    ("message", b"body", lambda s, x: rocketstore.decompress(x)),
    ("born_host", 5, lambda s, x: s.put_message("t", b"x", born_host=x)),
    ("tags", b"paid", lambda s, x: s.consumer("t", tags=x)),
    ("tags", 5, lambda s, x: scan(s, tags=x)),
    ("group", 5, lambda s, x: s.consumer("t", group=x)),
    ("queue_id", "x", lambda s, x: s.consumer("t").seek("earliest", queue_id=x)),
    ("offset", [], lambda s, x: s.consumer("t", queue_id=0).seek(x)),
    ("max_messages", "x", lambda s, x: s.consumer("t").poll_columns(x)),
    ("columns", 5, lambda s, x: s.consumer("t").poll_columns(columns=x)),
    ("columns", "body", lambda s, x: scan(s, columns=x)),
    ("topics", 5, lambda s, x: scan(s, topics=x)),
    ("topic_pattern", 5, lambda s, x: scan(s, topic_pattern=x)),
    ("chunk_bytes", "x", lambda s, x: scan(s, chunk_bytes=x)),
    ("threads", 1.5, lambda s, x: scan(s, threads=x)),
    ("split_bytes", "x", lambda s, x: scan(s).split(x)),
    ("queues", "4", lambda s, x: shard_queue_id("a", x)),
    ("shard_key", b"a", lambda s, x: shard_queue_id(x, 4)),
    ("workers", "4", lambda s, x: tools.rebuild(".", workers=x)),
    ("workers", True, lambda s, x: tools.rebuild(".", workers=x)),
]

WRONG_VALUES: list[tuple[str, object, Call]] = [
    ("born_host", "here", lambda s, x: s.put_message("t", b"x", born_host=x)),
    ("store_host", "[1.2.3.4]:5", lambda s, x: s.put_message("t", b"x", store_host=x)),
    ("born_host", "1.2.3:4", lambda s, x: encode_frames(COLUMN, topics=["t"], born_host=x)),
    ("timeout_s", float("nan"), lambda s, x: s.flush(x)),
    ("durability", "none", lambda s, x: s.writer("t").put(b"x", durability=x)),
    ("durability", 3, lambda s, x: s.writer("t").put(b"x", durability=x)),
    ("durability", b"disk", lambda s, x: s.writer("t").submit(b"x", durability=x)),
    ("queue_id", -1, lambda s, x: s.consumer("t", queue_id=x)),
    ("queue_id", -1, lambda s, x: s.min_queue_offset("t", x)),
    ("queue_id", -1, lambda s, x: s.max_queue_offset("t", x)),
    ("queue_id", -1, lambda s, x: s.offset_at("t", x, 0)),
    ("queue_id", 9, lambda s, x: s.consumer("t").seek("earliest", queue_id=x)),
    ("boundary", "middle", lambda s, x: s.offset_at("t", 0, 0, x)),
    ("boundary", 3, lambda s, x: s.offset_at("t", 0, 0, x)),
    ("end_offset", -1, lambda s, x: s.wait_flushed(x)),
    ("before_offset", -1, lambda s, x: s.trim(before_offset=x)),
    ("limit", 0, lambda s, x: s.query("t", "k", limit=x)),
    ("end", 5, lambda s, x: s.query("t", "k", begin=10, end=x)),
    ("offset", "first", lambda s, x: s.consumer("t", offset=x)),
    ("offset", 3, lambda s, x: s.consumer("t", offset=x)),
    ("offset", "first", lambda s, x: s.consumer("t").seek(x)),
    ("reset", "first", lambda s, x: s.consumer("t", reset=x)),
    ("reset", [], lambda s, x: s.consumer("t", reset=x)),
    ("tags", [], lambda s, x: s.consumer("t", tags=x)),
    ("max_messages", 65537, lambda s, x: s.consumer("t").poll_columns(x)),
    ("topic_pattern", "(", lambda s, x: scan(s, topic_pattern=x)),
    ("verify", [], lambda s, x: scan(s, verify=x)),
    ("on_damage", "ignore", lambda s, x: scan(s, on_damage=x)),
    ("on_damage", 3, lambda s, x: scan(s, on_damage=x)),
    ("chunk_bytes", 0, lambda s, x: scan(s, chunk_bytes=x)),
    ("threads", 65, lambda s, x: scan(s, threads=x)),
    ("end", 5, lambda s, x: scan(s, begin=10, end=x)),
    ("queues", 0, lambda s, x: shard_queue_id("a", x)),
    ("workers", 257, lambda s, x: tools.rebuild(".", workers=x)),
    ("workers", 10**20, lambda s, x: tools.rebuild(".", workers=x)),
]


@pytest.mark.parametrize(("error", "cases"), [(TypeError, WRONG_TYPES), (ValueError, WRONG_VALUES)])
def test_other_arguments_are_named(
    store: Store, error: type[Exception], cases: list[tuple[str, object, Call]]
) -> None:
    for name, value, call in cases:
        end = store.end_offset
        with pytest.raises(error, match=f"^{name} = {re.escape(repr(value))}: ?.") as caught:
            call(store, value)
        assert not isinstance(caught.value, RocketStoreError), name
        assert store.end_offset == end


@pytest.mark.parametrize(("value", "error"), [("x", TypeError), (float("nan"), ValueError)])
def test_a_ticket_names_its_time_to_wait(store: Store, value: Any, error: type[Exception]) -> None:
    ticket = store.writer("t").submit(b"x")
    with pytest.raises(error, match=f"^timeout_s = {value!r}: ?."):
        ticket.result(value)


@pytest.mark.parametrize("argument", ["tags", "keys", "shard_key"])
@pytest.mark.parametrize("value", ["", "a\x01", "\ud800"])
def test_a_text_that_cannot_be_stored_is_named_as_it_was_given(
    store: Store, argument: str, value: str
) -> None:
    """They were told of the property KEYS, which they had not given."""
    given: dict[str, Any] = {argument: value}
    end = store.end_offset
    with pytest.raises(MessageRejectedError, match=rf"^{argument} = {re.escape(repr(value))}: "):
        store.writer("t", queues=2).put(b"x", **given)
    assert store.end_offset == end


def test_a_naive_datetime_is_named(store: Store) -> None:
    naive = datetime.datetime(2026, 1, 1)
    with pytest.raises(ValueError, match=r"^begin = datetime.*has no time zone"):
        store.query("t", "k", begin=naive)
    with pytest.raises(ValueError, match=r"^when = datetime.*has no time zone"):
        store.consumer("t").seek(when=naive)


def test_equal_ends_are_an_empty_range(store: Store) -> None:
    assert store.query("t", "k", begin=10, end=10) == []
    assert list(scan(store, begin=10, end=10)) == []


def test_a_column_that_there_is_not_brings_the_one_that_is_meant() -> None:
    """Python itself refuses no keyword of a call that takes columns by name."""
    said = r"^encode_frames\(\) has no argument 'topic'; did you mean topics\?"
    with pytest.raises(TypeError, match=said):
        rocketstore.encode_frames([b"a"], topic=["t"])  # type: ignore[call-arg]


def test_an_offset_in_front_of_a_scan_is_too_small(store: Store) -> None:
    for arguments in ({"begin_offset": -5}, {"begin_offset": 10, "end_offset": 5}):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            scan(store, **arguments)  # type: ignore[arg-type]
        assert caught.value.status == "OFFSET_TOO_SMALL"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        scan(store, begin_offset=store.end_offset + 1)
    assert caught.value.status == "OFFSET_OVERFLOW_BADLY"


def test_a_topic_that_is_not_there_is_empty(store: Store) -> None:
    """It may come: a consumer of all queues takes it up then."""
    consumer = store.consumer("later")
    assert (consumer.poll(), consumer.positions, store.queues("later")) == ([], {}, [])
    store.writer("later").put(b"x")
    dispatched(store)
    assert [m.body for m in consumer.poll()] == [b"x"]


def test_a_store_is_opened_and_not_made(tmp_path: Path) -> None:
    for words in ((tmp_path,), (tmp_path, "rw")):
        with pytest.raises(TypeError, match=r"^a Store is opened by rocketstore.open\(path\)$"):
            Store(*words)  # type: ignore[arg-type]
