"""Loads the files of a store for an open: the log, the options that fit it, store.json, the index.

New queue and index files get the sizes of the files that are there, else those that `store.json`
remembers, else the configured ones. RocketMQ refuses queue files of another size than its own, and
finds no key in index files of another shape.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import resource
from collections.abc import Callable

from rocketstore.config import StoreConfig
from rocketstore.config.typed_options import StoreOptions
from rocketstore.engine.open_options import Request
from rocketstore.errors import ConfigError, ReadFailedError
from rocketstore.log.index.inspection import drop_all, has_tag_entries, was_cut_short
from rocketstore.log.index.segment import DEFAULT_SHAPE, Shape, is_index_name, open_segment
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.log_dirs import vanished_segments
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import StoreState, save_store_state
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.memory_log import MemoryLog
from rocketstore.log.mapped_files.second_names import SecondNames
from rocketstore.log.recovery import recovery

__all__ = [
    "check_file_limit",
    "fit_config",
    "fit_index_tags",
    "fit_shapes",
    "foreign_saver",
    "load_index",
    "load_log",
    "with_sizes",
]


def load_log(request: Request) -> tuple[MappedFileQueue, tuple[str, ...]]:
    """The log, and a sentence for each file that only its second name has kept: a writer links it
    back, and a reader uses that."""
    layout, untrusted = request.layout, request.options.untrusted
    vanished = vanished_segments(layout)
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
    log.opens = request.options.segment_files
    if request.lock is None and not untrusted:
        log.elsewhere = vanished
    log.load()
    notes = (
        f"{layout.commit_log / os.path.basename(path)} had vanished, and is linked back from {path}"
        for _, _, path in vanished
    )
    return log, tuple(notes)


def fit_config(
    request: Request, log: MappedFileQueue, state: StoreState | None, queue_file_bytes: int | None
) -> StoreConfig:
    """Sizes are those of the files; one that was given and disagrees is an error.
    `queue_file_bytes`: None where no queue file shows it."""
    config = request.options.config
    changes: StoreOptions = {}
    if not log.files:
        log.file_size = _size_of_an_empty_log(request, state)
    if log.file_size != config.commit_log_file_size_bytes:
        if "commit_log_file_size_bytes" in config.given:
            raise ConfigError(
                "commit_log_file_size_bytes",
                config.commit_log_file_size_bytes,
                f"the files of this store have {log.file_size}",
            )
        changes["commit_log_file_size_bytes"] = log.file_size or 0
    found = queue_file_bytes
    if found is not None and found != config.consume_queue_file_size_bytes:
        if "consume_queue_file_size_bytes" in config.given:
            raise ConfigError(
                "consume_queue_file_size_bytes",
                config.consume_queue_file_size_bytes,
                f"the files of this store have {found}",
            )
        changes["consume_queue_file_size_bytes"] = found
    return config.replace(**changes) if changes else config


def _size_of_an_empty_log(request: Request, state: StoreState | None) -> int:
    """The size of new segments: a log that was given up keeps the one it had."""
    config = request.options.config
    given = "commit_log_file_size_bytes" in config.given or request.options.untrusted
    remembered = 0 if state is None or given else state.log_file_bytes
    return remembered or config.commit_log_file_size_bytes


def foreign_saver(layout: StoreLayout, state: StoreState) -> Callable[[int, int], None]:
    """Notes the range of the log that another program wrote in store.json; each call a longer one
    than the call before."""
    return lambda start, end: save_store_state(layout, state.with_foreign(start, end))


def load_index(
    request: Request, config: StoreConfig, report: recovery.RecoveryReport, log: MappedFileQueue
) -> tuple[IndexStore | None, recovery.RecoveryReport]:
    """The index without what has to be made again, and the report that says from where on."""
    if not config.index_enabled:
        return None, report
    index = IndexStore(
        request.layout,
        request.access,
        config.index_slots,
        config.index_entries,
        tags=bool(config.index_tags),
    )
    index.load()
    if report.index_start <= report.begin < report.end:
        drop_all(index, request.layout, writes=request.lock is not None)
    if report.mode != "clean" or report.index_start < report.end:
        index.reset_from(report.index_start)
        if was_cut_short(log, index, report.index_start):
            drop_all(index, request.layout, writes=request.lock is not None)
            report = dataclasses.replace(report, index_start=report.begin)
            index.reset_from(report.begin)
    return index, report


# ---- sizes of new queue and index files ----


def fit_shapes(
    request: Request,
    config: StoreConfig,
    state: StoreState | None,
    queue_file_bytes: int | None,
    *,
    foreign: bool,
) -> tuple[StoreConfig, tuple[str, ...]]:
    """The options with the sizes that new files get, and a sentence for each size that is a guess.

    `foreign`: whether the log has records of another program, whose sizes matter then. Sizes that
    were given stay.
    """
    if request.options.untrusted:
        return config, ()
    changes: StoreOptions = {}
    guesses = []
    named = "consume_queue_file_size_bytes" in config.given
    if not named and queue_file_bytes is None:
        size = 0 if state is None else state.queue_file_bytes
        if size:
            changes["consume_queue_file_size_bytes"] = size
        elif foreign:
            size = config.consume_queue_file_size_bytes
            guesses.append(
                f"no queue file tells its size: new ones get {size} bytes; where the broker has "
                "another mappedFileSizeConsumeQueue, name its broker.conf (--config), or RocketMQ "
                "does not start"
            )
    if config.index_enabled and not {"index_slots", "index_entries"} & config.given:
        shape = _index_shape(request.layout, state)
        if shape is not None:
            changes["index_slots"], changes["index_entries"] = shape
        elif state is not None and state.index_slots:
            guesses.append(
                f"{request.layout.store_json} notes {state.index_slots} slots and "
                f"{state.index_entries} entries, and no index file has as many: new ones get "
                f"{config.index_slots} and {config.index_entries}; name index_slots and "
                "index_entries for more"
            )
        elif foreign:
            guesses.append(
                f"no index file tells its shape: new ones get {config.index_slots} slots and "
                f"{config.index_entries} entries; where the broker has another maxHashSlotNum or "
                "maxIndexNum, name its broker.conf (--config), or RocketMQ finds no key"
            )
    if not changes:
        return config, tuple(guesses)
    return config.replace(**changes), tuple(guesses)


def check_file_limit(config: StoreConfig) -> None:
    """Raises ConfigError where this process may not write files as long as the store makes them:
    the kernel would refuse them one by one, later."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    index = Shape(config.index_slots, config.index_entries).file_size if config.index_enabled else 0
    size = max(config.commit_log_file_size_bytes, config.consume_queue_file_size_bytes, index)
    if size > limit != resource.RLIM_INFINITY:
        raise ConfigError(
            "RLIMIT_FSIZE",
            limit,
            f"the store makes files of {size} bytes{' (its index)' * (size == index)}: raise it by "
            "ulimit -f, or make its files smaller",
        )


def _index_shape(layout: StoreLayout, state: StoreState | None) -> Shape | None:
    """The shape of the newest index file that shows it, else the remembered one.

    One that is larger than usual counts only where a file has it: the slots of a new file take disk
    from the start, a gigabyte by two numbers in a small file that nothing else confirms.
    """
    known = Shape(state.index_slots, state.index_entries) if state and state.index_slots else None
    try:
        paths = sorted(path for path in layout.index.iterdir() if is_index_name(path.name))
    except FileNotFoundError:
        paths = []
    for path in reversed(paths):
        try:
            if known is not None and path.lstat().st_size == known.file_size:
                return known
            segment = open_segment(path, "read", known or DEFAULT_SHAPE)
            segment.file.close()
            return segment.shape
        except (OSError, ReadFailedError, ValueError):
            continue
    usual = known is not None and all(map(operator.le, known, DEFAULT_SHAPE))
    return known if usual else None


def fit_index_tags(
    request: Request, config: StoreConfig, log: MappedFileQueue, noted: bool | None, *, ours: bool
) -> StoreConfig:
    """The options with `index_tags` as the store has it, unless it was given.

    `noted`: what store.json says; after another writer (not `ours`) the index says more.
    """
    if config.index_tags is not None or not config.index_enabled or request.options.untrusted:
        return config
    found = noted
    if noted is None or not ours:
        shape = config.index_slots, config.index_entries
        told = has_tag_entries(request.layout, shape, log.find)
        found = noted if told is None else told
    return config if found is None else config.replace(index_tags=found)


def with_sizes(state: StoreState, config: StoreConfig) -> StoreState:
    """The state with the sizes, for an open that finds no file to take them from."""
    changed = dataclasses.replace(
        state,
        log_file_bytes=config.commit_log_file_size_bytes,
        queue_file_bytes=config.consume_queue_file_size_bytes,
    )
    if config.index_enabled:
        changed = dataclasses.replace(
            changed, index_slots=config.index_slots, index_entries=config.index_entries
        )
        if config.index_tags is not None:
            changed = dataclasses.replace(changed, index_tags=config.index_tags)
    return changed
