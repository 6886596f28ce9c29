"""`rocketstore/store.json`: what a store is, where its store times fall, which ranges others wrote.

The options in it change bytes, so they are the store's, not the process's. A file of a newer
version is refused, unknown names of our own version are kept as they are.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rocketstore._native.format.constants import UNIT_SIZE
from rocketstore.errors import ConfigError
from rocketstore.log.layout.lock import OUR_MARK, THEIR_MARK, last_mark
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json, write_own_json

__all__ = [
    "VERSION",
    "StoreState",
    "has_stale_checksums",
    "is_foreign",
    "load_store_state",
    "new_store_state",
    "save_store_state",
    "time_breaks",
]

logger = logging.getLogger(__name__)

VERSION = 1
#: Ranges kept, count; more are joined, since each visit of a RocketMQ may add one.
MAX_RANGES = 256
#: Sizes of new files, as the store last had them.
SHAPES = ("log_file_bytes", "queue_file_bytes", "index_slots", "index_entries")
#: Bounds of these sizes: those of the options.
LOG_FILE_BYTES_MAX = 2**31 - 1
QUEUE_FILE_BYTES_MAX = 2_147_483_640
INDEX_SLOTS_MAX = 2**28
INDEX_ENTRIES_MAX = 100_000_000


@dataclass(frozen=True, slots=True)
class StoreState:
    """The content of store.json. `foreign` and `falls`: ranges of physical offsets, sorted,
    apart."""

    uuid: str
    created_ms: int
    record_crc: bool
    foreign: tuple[tuple[int, int], ...] = ()
    #: Where a record may begin whose store time is less than that of one before it (D-28).
    falls: tuple[tuple[int, int], ...] = ()
    version: int = VERSION
    #: Sizes that new queue and index files get where none is there; 0: not noted.
    log_file_bytes: int = 0
    queue_file_bytes: int = 0
    index_slots: int = 0
    index_entries: int = 0
    #: Whether the index has entries for tags; None: not noted.
    index_tags: bool | None = None
    #: Names that this release does not know; written back as they were read.
    extra: dict[str, Any] = field(default_factory=dict)

    def with_foreign(self, start: int, end: int) -> StoreState:
        """The same with [start, end) marked as written by another program."""
        if start >= end:
            return self
        return dataclasses.replace(self, foreign=_joined([*self.foreign, (start, end)]))

    def with_fall(self, physical_offset: int) -> StoreState:
        """The same, and store times may fall with the record at this offset."""
        falls = [*self.falls, (physical_offset, physical_offset + 1)]
        return dataclasses.replace(self, falls=_joined(falls))

    def falls_within(self, start: int, end: int) -> bool:
        """Whether store times may fall from one record of [start, end) to another."""
        return any(low < end and high > start + 1 for low, high in self.falls)

    def is_foreign(self, physical_offset: int) -> bool:
        """Whether another program may have written the byte at this offset."""
        return any(start <= physical_offset < end for start, end in self.foreign)


def new_store_state(*, created_ms: int, record_crc: bool) -> StoreState:
    """The state of a store that did not have one."""
    return StoreState(str(uuid.uuid4()), created_ms, record_crc)


def load_store_state(layout: StoreLayout) -> StoreState | None:
    """The state of a store; None if it has none, or an unreadable one.

    Raises:
        ConfigError: a newer release wrote it, which may keep rules that this one does not know.
    """
    found = read_json(layout.store_json)
    if not isinstance(found, dict):
        if found is not None:
            logger.warning("%s is no state of a store", layout.store_json)
        return None
    version = found.get("version")
    if isinstance(version, int) and version > VERSION:
        allowed = f"this release reads up to {VERSION}; open the store with a newer rocketstore"
        raise ConfigError(f"version in {layout.store_json}", version, allowed)
    try:
        return _parse(found)
    except (TypeError, ValueError, KeyError) as error:
        logger.warning("%s is no state of a store: %r", layout.store_json, error)
        return None


def time_breaks(state: StoreState | None) -> list[tuple[int, int]]:
    """Ranges in which records begin whose store time may be less than that of one before. Within
    what another program wrote there may be more: it takes the clock as it is."""
    if state is None:
        return []
    edges = {(offset, offset + 1) for part in state.foreign for offset in part}
    return sorted({*state.falls, *edges})


def has_stale_checksums(layout: StoreLayout) -> bool:
    """Whether a record checksum that does not hold may be a RocketMQ's doing, and no damage: it
    wrote some of the log, or was the last to write (docs/durability.md#recovery)."""
    state = load_store_state(layout)
    wrote = state is not None and bool(state.foreign)
    return wrote or is_foreign_to(state, last_mark(layout))


def is_foreign_to(state: StoreState | None, mark: bytes) -> bool:
    """Whether another program wrote last, by the `mark` that `lock` had: RocketMQ's, or that of no
    program where no `state` says that rocketstore ever wrote."""
    return mark == THEIR_MARK or (mark != OUR_MARK and state is None)


def is_foreign(layout: StoreLayout) -> bool:
    """Whether another program may have written some of the log, as in a store without store.json: a
    record it wrote again can have a stale CRC."""
    state = load_store_state(layout)
    return state is None or bool(state.foreign)


def save_store_state(layout: StoreLayout, state: StoreState) -> None:
    """Replaces store.json; durable when this returns."""
    document = {
        **state.extra,
        "version": state.version,
        "uuid": state.uuid,
        "created_ms": state.created_ms,
        "record_crc": state.record_crc,
        "foreign": [list(part) for part in state.foreign],
        "store_times_fall": [list(part) for part in state.falls],
        **{name: getattr(state, name) for name in SHAPES if getattr(state, name)},
        **({} if state.index_tags is None else {"index_tags": state.index_tags}),
    }
    write_own_json(layout, layout.store_json, document)


def _parse(found: dict[str, Any]) -> StoreState:
    known = (
        "version", "uuid", "created_ms", "record_crc", "foreign", "store_times_fall", "index_tags",
        *SHAPES,
    )  # fmt: skip
    tags = found.get("index_tags")
    return StoreState(
        uuid=str(uuid.UUID(str(found["uuid"]))),
        created_ms=_whole(found["created_ms"]),
        record_crc=found["record_crc"] is True,
        foreign=_ranges(found["foreign"]),
        falls=_ranges(found.get("store_times_fall", [])),
        version=_whole(found["version"]),
        log_file_bytes=_size(found, "log_file_bytes", LOG_FILE_BYTES_MAX),
        queue_file_bytes=_size(found, "queue_file_bytes", QUEUE_FILE_BYTES_MAX, UNIT_SIZE),
        index_slots=_size(found, "index_slots", INDEX_SLOTS_MAX),
        index_entries=_size(found, "index_entries", INDEX_ENTRIES_MAX),
        index_tags=tags if isinstance(tags, bool) else None,
        extra={name: value for name, value in found.items() if name not in known},
    )


def _ranges(found: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    return _joined((_whole(start), _whole(end)) for start, end in found)


def _size(found: dict[str, Any], name: str, most: int, step: int = 1) -> int:
    """A size within the bounds of its option; 0, not noted, for any other value."""
    value = found.get(name, 0)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value <= most and value % step == 0 else 0


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no offset")
    return value


def _joined(parts: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(part for part in parts if part[0] < part[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    while len(joined) > MAX_RANGES:
        joined[:2] = [(joined[0][0], joined[1][1])]
    return tuple(joined)
