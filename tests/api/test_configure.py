"""Options that change while the store is open, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore import ConfigError, MessageTooLargeError
from tests.small_store import DAY_MS, open_small, open_still, parts, until


def test_message_size_changes_at_once(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("orders")
        writer.put(b"x" * 100)
        assert store.configure(max_message_size_bytes=50).max_message_size_bytes == 50
        assert store.config.max_message_size_bytes == 50
        with pytest.raises(MessageTooLargeError):
            writer.put(b"x" * 51)
        writer.put(b"x" * 50)


def test_flush_options_count_from_the_next_round(tmp_path: Path) -> None:
    """S000-94: K-84: a few named options are read anew in each round, all others are frozen."""
    with open_still(tmp_path, "os") as store:
        end = store.writer("orders").put(b"x").end_offset
        assert store.flushed_offset == 0
        store.configure(flush_interval_ms=1, flush_timed=False, flush_least_pages=0)
        parts(store).flusher.wake()
        until(store, lambda: store.flushed_offset == end)


def test_commit_options_too(tmp_path: Path) -> None:
    with open_still(tmp_path, "memory") as store:
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
def test_what_cannot_change(tmp_path: Path, name: str, value: object) -> None:
    with open_small(tmp_path) as store:
        before = store.config
        with pytest.raises(ConfigError, match=name):
            store.configure(flush_least_pages=1, **{name: value})
        assert store.config is before
        assert parts(store).flusher.least_pages == before.flush_least_pages
