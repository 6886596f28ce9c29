"""Options that change while the store is open, and those that do not."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, MessageTooLargeError, Store, StoreConfig
from rocketstore.engine.writing_engine import LIVE_PARTS
from tests.support.small_store import DAY_MS, STILL, open_small, parts, until


def test_message_size_changes_at_once(store: Store, writer: rocketstore.Writer) -> None:
    writer.put(b"x" * 100)
    assert store.configure(max_message_size_bytes=50).max_message_size_bytes == 50
    assert store.config.max_message_size_bytes == 50
    with pytest.raises(MessageTooLargeError):
        writer.put(b"x" * 51)
    writer.put(b"x" * 50)


def test_messages_stay_within_the_write_buffer(tmp_path: Path) -> None:
    """What is admitted fits: with room for a blank beside it, in a buffer that is made at open."""
    large = 6 << 20
    options: dict[str, Any] = {"durability": "disk", "commit_log_file_size_bytes": 1 << 25}
    with rocketstore.open(tmp_path / "default", **options) as store:
        before = store.config
        with pytest.raises(ConfigError, match="open the store with max_message_size_bytes") as info:
            store.configure(max_message_size_bytes=large)
        assert store.config is before
        most = int(info.value.allowed.split(" at most")[0].split()[-1])
        store.configure(max_message_size_bytes=most)
        for _ in range(8):  # over the end of a file, and of the buffer
            store.writer("orders").put(bytes(most), properties={"n": "x" * 30_000})
        with pytest.raises(ConfigError, match=f"{most} at most"):
            store.configure(max_message_size_bytes=most + 1)
    with rocketstore.open(tmp_path / "large", max_message_size_bytes=large, **options) as store:
        store.configure(max_message_size_bytes=100)
        store.configure(max_message_size_bytes=large)
        store.writer("orders").put(bytes(large))
    with open_small(
        tmp_path / "mapped", durability="os", commit_log_file_size_bytes=large
    ) as store:
        store.configure(max_message_size_bytes=5 << 20)
        store.writer("orders").put(bytes(5 << 20))


@pytest.mark.store(**STILL, durability="os")
def test_flush_options_count_from_the_next_round(store: Store) -> None:
    """S000-94: K-84: a few named options are read anew in each round, all others are frozen."""
    end = store.writer("orders").put(b"x").end_offset
    assert store.flushed_offset == 0
    store.configure(flush_interval_ms=1, flush_timed=False, flush_least_pages=0)
    parts(store).flusher.wake()
    until(store, lambda: store.flushed_offset == end)


@pytest.mark.store(**STILL, durability="memory")
def test_commit_options_too(store: Store) -> None:
    end = store.writer("orders").put(b"x").end_offset
    store.configure(commit_interval_ms=1, commit_least_pages=0)
    parts(store).committer.wake()
    until(store, lambda: store.visible_offset == end)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit_log_file_size_bytes", 8192),
        ("durability", "os"),
        ("record_crc", False),
        ("no_such_option", 1),
        ("flush_interval_ms", 0),
        ("max_message_size_bytes", DAY_MS),
    ],
)
def test_what_cannot_change(name: str, value: object, store: Store) -> None:
    before = store.config
    with pytest.raises(ConfigError, match=name):
        store.configure(flush_least_pages=1, **{name: value})
    assert store.config is before
    assert parts(store).flusher.least_pages == before.flush_least_pages


def test_each_live_option_reaches_a_part() -> None:
    assert sorted(option for option, _, _ in LIVE_PARTS) == sorted(StoreConfig.LIVE)


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.store("durability")
def test_live_options_arrive_where_they_are_read(durability: str, store: Store) -> None:
    """What is given at an open reaches the same attributes as what `configure` sets."""
    options: dict[str, Any] = {option: 7 for option, _, _ in LIVE_PARTS} | {
        "flush_timed": True,
        "max_message_size_bytes": 777,
    }
    store.configure(**options)
    for option, part_name, attribute in LIVE_PARTS:
        part = attrgetter(part_name)(parts(store))
        if part is None:
            assert part_name == "committer"
            assert durability != "memory"
        else:
            assert getattr(part, attribute) == options[option]
