"""Opens a store for writing without believing its queues and its index. A callable that the caller
gives builds both in a work directory; then they replace the old ones.

A stop before the first rename leaves the old ones. A stop between two renames leaves none, and the
next open rebuilds them.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketstore._native.os import syscalls
from rocketstore.config import StoreConfig
from rocketstore.engine.open import open_for_writing
from rocketstore.engine.open_options import Options, Request
from rocketstore.engine.phases import Recovered
from rocketstore.engine.preflight import preflight
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError, CorruptRecordError, ReadFailedError
from rocketstore.log.layout import destroy
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.ownership import make_directories, make_like
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import sync_file_system
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.saved_ends import drop_queue_ends
from rocketstore.values.arguments import Progress

logger = logging.getLogger(__name__)

__all__ = ["Derived", "rebuild_engine"]

#: Work directory below the store's own: what is being built, and until its removal what that has
#: replaced.
WORK: Final = "rebuild"
REPLACED: Final = "replaced"


@dataclass(frozen=True, slots=True)
class Derived:
    """What has to be built from the log of `layout`."""

    layout: StoreLayout
    #: Where to build: laid out like a store, with its directories.
    root: StoreLayout
    config: StoreConfig
    #: The log's range, physical offsets.
    begin: int
    end: int
    #: Begin and end of each segment within that range.
    segments: tuple[tuple[int, int], ...]
    #: Sum of the sizes of all files of the log.
    log_bytes: int
    #: Called with (what, bytes done, bytes in all).
    told: Progress | None


def rebuild_engine(path: str, options: Options, make: Callable[[Derived], None]) -> WritingEngine:
    """The engine of a store that is open for writing, with queues and index that `make` built.

    Raises:
        StoreLockedError, MissingSegmentsError, OSError: as for any open.
        CorruptRecordError: the log is damaged.
        ConfigError: queues or index lie on another disk than the store.
        Whatever `make` raises; queues and index are the old ones then.
    """
    layout = preflight(path, "r+", options.config)
    make_directories(layout)
    lock = StoreLock.acquire(layout)
    rebuild = _Rebuild(make)
    try:
        destroy.finish_removal(layout)
        check_disks(layout)
        remove_work(layout)
        request = Request(path, layout, options, "write", lock)
        return open_for_writing(request, rebuild.replace_derived)
    except BaseException:
        try:
            if not rebuild.replacing:
                remove_work(layout)
        finally:
            lock.release()
        raise


class _Rebuild:
    """One rebuild. `make` is called once, when the log is recovered."""

    def __init__(self, make: Callable[[Derived], None]) -> None:
        self._make = make
        #: Whether the renames have begun: from then on a stop may leave no queues, or no index,
        #: under their names.
        self.replacing = False

    def replace_derived(self, recovered: Recovered) -> Recovered:
        """The store with the rebuilt queues, loaded, and a report with nothing left to dispatch."""
        report, config = recovered.report, recovered.config
        layout, positions = recovered.request.layout, recovered.positions
        # Queues and index stay what they are, whatever they lack.
        recovered.stop.recovered(unchanged=report.mode == "clean" and report.cut is None)
        work = self._build(recovered)
        drop_queue_ends(layout)
        recovered.stop.changes()
        self.replacing = True
        replace(layout, work, index=config.index_enabled)
        fresh = ConsumeQueueStore(
            layout,
            recovered.request.access,
            config.consume_queue_file_size_bytes,
            lambda: positions.minimum,
        )
        fresh.load()
        found = dataclasses.replace(report, dispatch_start=report.end, index_start=report.end)
        return dataclasses.replace(recovered, queues=fresh, report=found, compared_to=0)

    def _build(self, recovered: Recovered) -> StoreLayout:
        """The work directory, with queues and index whole and on the disk (D-18)."""
        layout, report = recovered.request.layout, recovered.report
        if report.damage:
            first = report.damage[0]
            raise CorruptRecordError(
                first.start,
                f"{first.reason}; `rocketstore verify` names all damage, "
                "`rocketstore repair` repairs it",
            )
        work = make_work(layout)
        segments = tuple(
            (max(file.start_offset, report.begin), min(file.end_offset, report.end))
            for file in recovered.log.files
            if file.end_offset > report.begin and file.start_offset < report.end
        )
        log_bytes = sum(file.size for file in recovered.log.files)
        self._make(
            Derived(
                layout,
                work,
                recovered.config,
                report.begin,
                report.end,
                segments,
                log_bytes,
                recovered.told,
            )
        )
        keep_ended(work, recovered.queues, report.begin)
        recovered.queues.close()
        sync_file_system(work.root)
        return work


def check_disks(layout: StoreLayout) -> None:
    """A name can only take the place of another on the same disk."""
    own = layout.own.stat().st_dev
    for directory in (layout.consume_queue, layout.index):
        if directory.is_symlink() or directory.stat().st_dev != own:
            raise ConfigError(
                "path",
                os.fspath(layout.root),
                f"{directory} is a link, or on another disk: remove what is in it, and the next "
                "open makes it again",
            )


# ---- the work directory ----


def make_work(layout: StoreLayout) -> StoreLayout:
    """A directory laid out like a store, on the same disk; its directories inherit the old
    owners."""
    work = StoreLayout(layout.own / WORK)
    made = (
        (work.root, layout.own),
        (work.consume_queue, layout.consume_queue),
        (work.index, layout.index),
        (work.own, layout.own),
        (work.tmp, layout.tmp),
    )
    for directory, model in made:
        make_like(directory, model.stat())
    return work


def remove_work(layout: StoreLayout) -> None:
    """Removes what a rebuild replaced, or left when it was stopped."""
    work = layout.own / WORK
    if work.is_dir() and not work.is_symlink():
        remove_whole(work)


def remove_whole(directory: Path) -> None:
    destroy.remove_tree(directory)
    syscalls.rmdir(os.fspath(directory))


def keep_ended(work: StoreLayout, queues: ConsumeQueueStore, begin: int) -> None:
    """Links the files of queues whose last record was trimmed away. Such a queue has no record in
    the log, but an end: its next message gets the offset there."""
    for queue in queues.all():
        directory = work.queue_directory(queue.topic, queue.queue_id)
        if directory.exists() or not queue.files:
            continue
        if not ended_below(queue, begin):
            logger.warning(
                "%s/%d: no record in the log is of this queue, it is not made again",
                queue.topic, queue.queue_id,
            )  # fmt: skip
            continue
        for path in (directory.parent, directory):
            if not path.exists():
                make_like(path, work.consume_queue.stat())
        for file in queue.files:
            syscalls.link(file.path, os.fspath(directory / os.path.basename(file.path)))


def ended_below(queue: ConsumeQueue, begin: int) -> bool:
    try:
        return bool(queue.max_offset) and queue.physical_end <= begin
    except ReadFailedError:
        return False


def replace(layout: StoreLayout, work: StoreLayout, *, index: bool) -> None:
    """Renames the new directories to the names of the old ones, and removes those. Between the two
    renames a directory has no name; the next open then takes it for lost and rebuilds it."""
    replaced = work.root / REPLACED
    syscalls.mkdir(os.fspath(replaced))
    old_and_new = [(layout.consume_queue, work.consume_queue)]
    if index:
        old_and_new.append((layout.index, work.index))
    for old, new in old_and_new:
        syscalls.rename(os.fspath(old), os.fspath(replaced / old.name))
        syscalls.rename(os.fspath(new), os.fspath(old))
        syscalls.sync_directory(os.fspath(layout.root))
    remove_whole(work.root)
