"""Loads the files of a store for an open: the log, the options that fit it, store.json, the index."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore.errors import ConfigError
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.store_json import (
    StoreState,
    load_store_state,
    new_store_state,
    save_store_state,
)
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.memory_log import MemoryLog
from rocketstore.log.mapped_files.second_names import SecondNames
from rocketstore.log.recovery import recovery
from rocketstore.log.recovery.missing_segments import queue_file_size

if TYPE_CHECKING:
    from rocketstore.config import StoreConfig
    from rocketstore.config.typed_options import StoreOptions
    from rocketstore.engine.open_options import Request
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["fit_config", "foreign_saver", "load_index", "load_log", "load_state"]


def load_log(request: Request) -> MappedFileQueue:
    layout, untrusted = request.layout, request.options.untrusted
    if request.lock is not None:
        SecondNames(layout).restore()
    log = (MemoryLog if untrusted else MappedFileQueue)(
        layout.logs[0],
        "private" if untrusted else request.access,
        file_size=None,
        name="commit log",
        tmp_directory=layout.tmp,
        more_directories=layout.logs[1:],
    )
    log.load()
    return log


def fit_config(request: Request, log: MappedFileQueue) -> StoreConfig:
    """Sizes are those of the files; one that was given and disagrees is an error."""
    config = request.options.config
    changes: StoreOptions = {}
    if log.files and log.file_size != config.commit_log_file_size_bytes:
        if "commit_log_file_size_bytes" in config.given:
            raise ConfigError(
                "commit_log_file_size_bytes",
                config.commit_log_file_size_bytes,
                f"the files of this store have {log.file_size}",
            )
        changes["commit_log_file_size_bytes"] = log.file_size or 0
    found = None if request.options.untrusted else queue_file_size(request.layout)
    if found is not None and found != config.consume_queue_file_size_bytes:
        if "consume_queue_file_size_bytes" in config.given:
            raise ConfigError(
                "consume_queue_file_size_bytes",
                config.consume_queue_file_size_bytes,
                f"the files of this store have {found}",
            )
        changes["consume_queue_file_size_bytes"] = found
    return config.replace(**changes) if changes else config


def load_state(request: Request) -> StoreState | None:
    """What store.json says; a writer makes one where there is none."""
    state = load_store_state(request.layout)
    if state is None and request.lock is not None:
        state = new_store_state(
            created_ms=time.time_ns() // 1_000_000, record_crc=request.options.config.record_crc
        )
        save_store_state(request.layout, state)
    return state


def foreign_saver(layout: StoreLayout) -> Callable[[int, int], None]:
    """Notes a range of the log that another program wrote in store.json."""

    def save(start: int, end: int) -> None:
        state = load_store_state(layout)
        if state is not None:
            save_store_state(layout, state.with_foreign(start, end))

    return save


def load_index(
    request: Request, config: StoreConfig, report: recovery.RecoveryReport
) -> IndexStore | None:
    if not config.index_enabled:
        return None
    index = IndexStore(request.layout, request.access, config.index_slots, config.index_entries)
    index.load()
    if report.mode != "clean" or report.index_start < report.end:
        index.reset_from(report.index_start)
    return index
