"""Paths of everything in a store, and which names are allowed there (format.md 1)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rocketstore._native.os.store_roots import hold_root
from rocketstore.errors import InvalidGroupError, InvalidTopicError

__all__ = [
    "StoreLayout",
    "check_group",
    "check_topic",
    "is_safe_name",
    "is_safe_topic",
    "parse_segment_name",
    "segment_name",
]

SEGMENT_DIGITS = 20
SEGMENT_OFFSET_MAX = 2**63 - 1
TOPIC_BYTES_MAX = 127
#: Longer names need records of version 2, or are `%RETRY%` names of RocketMQ 5 (format.md 12.1).
WIDE_TOPIC_BYTES_MAX = 255
GROUP_BYTES_MAX = 255
QUEUE_ID_MAX = 2**31 - 1

_ALLOWED = "% | - _ and ASCII letters and digits"
_NOT_ALLOWED = re.compile(r"[^%|a-zA-Z0-9_-]")
#: RocketMQ checks the topic of a message, but no name of a light queue, and older releases no
#: topic at all.
_SAFE_TOPIC = re.compile(r"[^\x00-\x1f/\x7f]+")
_SEGMENT_NAME = re.compile(r"[0-9]{20}")


@dataclass(frozen=True)
class StoreLayout:
    """The paths of one store, each made once. `root` is made absolute: a later chdir must not move the
    store."""

    root: Path
    #: Directories of the commit log, if it is not the one directory under the root.
    log_directories: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(os.path.abspath(self.root)))
        hold_root(os.fspath(self.root))

    # What RocketMQ knows.

    @cached_property
    def commit_log(self) -> Path:
        return self.root / "commitlog"

    @cached_property
    def logs(self) -> tuple[Path, ...]:
        """Every directory with files of the commit log."""
        return self.log_directories or (self.commit_log,)

    @cached_property
    def consume_queue(self) -> Path:
        return self.root / "consumequeue"

    @cached_property
    def batch_consume_queue(self) -> Path:
        return self.root / "batchconsumequeue"

    @cached_property
    def index(self) -> Path:
        return self.root / "index"

    @cached_property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @cached_property
    def rocksdb(self) -> Path:
        """Made by each RocketMQ since 5.4, whatever its options."""
        return self.root / "rocksdbstore"

    @cached_property
    def abort(self) -> Path:
        return self.root / "abort"

    @cached_property
    def lock(self) -> Path:
        return self.root / "lock"

    @cached_property
    def config(self) -> Path:
        return self.root / "config"

    @cached_property
    def consumer_offsets(self) -> Path:
        return self.config / "consumerOffset.json"

    @cached_property
    def delay_offsets(self) -> Path:
        return self.config / "delayOffset.json"

    def queue_directory(self, topic: str, queue_id: int) -> Path:
        """Where a queue's files lie. InvalidTopicError for a name that could leave the store."""
        if not is_safe_name(topic):
            _check_name("topic", topic, WIDE_TOPIC_BYTES_MAX)
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            raise ValueError(f"queue_id = {queue_id}: 0 … {QUEUE_ID_MAX}")
        return self.consume_queue.joinpath(topic, str(queue_id))

    # What only we know.

    @cached_property
    def own(self) -> Path:
        return self.root / "rocketstore"

    @cached_property
    def own_checkpoint(self) -> Path:
        return self.own / "checkpoint"

    @cached_property
    def positions(self) -> Path:
        return self.own / "positions"

    @cached_property
    def store_json(self) -> Path:
        return self.own / "store.json"

    @cached_property
    def recovery(self) -> Path:
        return self.own / "recovery.json"

    @cached_property
    def blocked_queues(self) -> Path:
        return self.own / "blocked_queues"

    @cached_property
    def queue_ends(self) -> Path:
        return self.own / "queue_ends"

    @cached_property
    def queue_files(self) -> Path:
        """Not written any more: `queue_ends` has its digests."""
        return self.own / "queue_files"

    @cached_property
    def group_offsets(self) -> Path:
        return self.own / "group_offsets"

    @cached_property
    def compacted(self) -> Path:
        return self.own / "compacted.json"

    @cached_property
    def host_socket(self) -> Path:
        """Where the process that has the lock listens for others that share the store."""
        return self.own / "host.sock"

    @cached_property
    def holds(self) -> Path:
        return self.own / "holds.json"

    @cached_property
    def shipped(self) -> Path:
        return self.own / "shipped.json"

    @cached_property
    def retention(self) -> Path:
        return self.own / "retention.json"

    @cached_property
    def timers(self) -> Path:
        return self.own / "timers"

    @cached_property
    def timer_state(self) -> Path:
        return self.timers / "state"

    @cached_property
    def replication(self) -> Path:
        return self.own / "replication.json"

    @cached_property
    def cut(self) -> Path:
        return self.own / "cut.json"

    @cached_property
    def removal(self) -> Path:
        return self.own / "removal"

    @cached_property
    def live(self) -> Path:
        return self.own / "live"

    @cached_property
    def quarantine(self) -> Path:
        return self.own / "quarantine"

    @cached_property
    def tmp(self) -> Path:
        return self.own / "tmp"

    @cached_property
    def journal(self) -> Path:
        return self.own / "journal"

    @cached_property
    def directories(self) -> tuple[Path, ...]:
        """Every directory that a store that is open for writing has, parents first."""
        rocketmq = (self.root, self.commit_log, self.consume_queue, self.index, self.config)
        return (*rocketmq, self.own, self.live, self.quarantine, self.tmp)


def segment_name(start_offset: int) -> str:
    """Name of the file that starts at this byte offset of its log or queue."""
    if not 0 <= start_offset <= SEGMENT_OFFSET_MAX:
        raise ValueError(f"start_offset = {start_offset}: 0 … {SEGMENT_OFFSET_MAX}")
    return f"{start_offset:020d}"


def parse_segment_name(name: str) -> int | None:
    """The start offset in a file name; None for any other name."""
    if not _SEGMENT_NAME.fullmatch(name):
        return None
    start_offset = int(name)
    return start_offset if start_offset <= SEGMENT_OFFSET_MAX else None


def check_topic(topic: str, *, wide: bool = False) -> bytes:
    """The topic as it is stored. `wide`: names that need a record of version 2 are allowed.

    A topic becomes a directory, so this check keeps a message inside its store.
    """
    return _check_name("topic", topic, WIDE_TOPIC_BYTES_MAX if wide else TOPIC_BYTES_MAX)


def check_group(group: str) -> bytes:
    """The consumer group as it is stored. Groups follow the rule of topics.

    Raises InvalidGroupError.
    """
    return _check_name("group", group, GROUP_BYTES_MAX, InvalidGroupError)


def is_safe_topic(raw: bytes) -> bool:
    """Whether a name from a record may become a directory: any that leads nowhere else, and that a
    log or a terminal can show."""
    if not 0 < len(raw) <= WIDE_TOPIC_BYTES_MAX or raw in (b".", b".."):
        return False
    try:
        return _SAFE_TOPIC.fullmatch(raw.decode()) is not None
    except UnicodeDecodeError:
        return False


def is_safe_name(topic: str) -> bool:
    """The same for a name that is text."""
    return is_safe_topic(topic.encode("utf-8", "surrogatepass"))


def _check_name(
    field: str,
    name: str,
    bytes_max: int,
    error: type[InvalidGroupError | InvalidTopicError] = InvalidTopicError,
) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"{field} must be str, not {type(name).__name__}")
    illegal = _NOT_ALLOWED.search(name)
    if illegal is not None:
        fault = f"{illegal[0]!r} at position {illegal.start()} is not allowed"
    elif not name:
        fault = "it is empty"
    elif len(name) > bytes_max:
        fault = f"it has {len(name)} bytes"
    else:
        return name.encode("ascii")
    shown = name if len(name) <= bytes_max else name[:bytes_max] + "…"
    raise error(f"{field} = {shown!r}: {fault}; allowed are {_ALLOWED}, 1 to {bytes_max} bytes")
