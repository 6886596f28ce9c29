"""The fields of `StoreConfig` as keyword arguments, for type checkers and editors.

`StoreConfig` says what each of them does and checks it; a test keeps the names and types alike.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from rocketstore.values.durability import Durability

__all__ = ["LiveOptions", "OpenOptions", "StoreOptions", "Visible"]

#: How far readers see.
Visible = Literal["auto", "flushed", "committed"]


class LiveOptions(TypedDict, total=False):
    """What `Store.configure` takes."""

    max_message_size_bytes: int
    flush_interval_ms: int
    flush_timed: bool
    flush_least_pages: int
    flush_thorough_interval_ms: int
    commit_interval_ms: int
    commit_least_pages: int
    commit_thorough_interval_ms: int
    consume_queue_flush_interval_ms: int


class OpenOptions(LiveOptions, total=False):
    """What `rocketstore.open` takes as options; it names `durability` itself."""

    commit_log_file_size_bytes: int
    consume_queue_file_size_bytes: int
    commit_log_dir: str
    read_only_commit_log_dirs: str
    auto_wide_topic: bool
    store_host: str
    visible: Visible
    max_unflushed_bytes: int
    max_undispatched_bytes: int
    max_wait_ms: int
    sync_flush_timeout_ms: int
    allow_network_file_system: bool
    record_crc: bool
    check_crc_on_recover: bool
    write_buffer_bytes: int
    prewrite: bool
    lock_segments: bool
    populate_window_bytes: int
    transient_pool_buffers: int
    transient_pool_fast_fail: bool
    wake_flush_on_put: bool
    wake_commit_on_put: bool
    index_enabled: bool
    index_slots: int
    index_entries: int
    multi_dispatch_enabled: bool
    light_queue_enabled: bool
    max_light_queues: int
    delay_levels: str
    deliver_delayed: bool
    index_tags: bool | None


class StoreOptions(OpenOptions, total=False):
    """What `StoreConfig` takes."""

    durability: Durability
