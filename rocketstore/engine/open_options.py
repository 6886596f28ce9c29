"""What an open is asked for: the options of the caller, and the request that the phases work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketstore._native.os import syscalls
from rocketstore.config import StoreConfig
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files.mapped_file_queue import Access
from rocketstore.values.arguments import Listener, Progress, SegmentFiles
from rocketstore.values.clock import Clock, SystemClock

__all__ = ["SYSTEM_CLOCK", "Options", "Request"]

#: Read through the table of system calls, as the native part reads it.
SYSTEM_CLOCK: Final = SystemClock(syscalls.realtime_ms)


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of one open."""

    config: StoreConfig
    force: bool = False
    on_arrival: Listener | None = None
    on_recovery: Progress | None = None
    untrusted: bool = False
    check_queues: bool = False
    clock: Clock = SYSTEM_CLOCK
    #: How long an open for writing waits for the lock of another process, seconds.
    wait_s: float = 0.0
    #: Whether one try for the lock is enough: an open that waits for nobody.
    at_once: bool = False
    #: The lock, where the last holder of the store has given it to this process.
    lock: StoreLock | None = None
    #: Whether other machines get the log, so that puts can wait for them.
    has_replicas: bool = False
    #: Whether the store copies the log of another machine, so that nobody puts to it.
    is_copy: bool = False
    #: Opens new segments of the log; None: the store does.
    segment_files: SegmentFiles | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `lock` None: nothing on disk may change."""

    path: str
    layout: StoreLayout
    options: Options
    access: Access
    lock: StoreLock | None
    #: Whether there was a directory for the index before the open made one.
    index_was_there: bool = True
