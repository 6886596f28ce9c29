"""`compact`: reads a log twice, and writes the latest message of each key into a new store."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Literal

import numpy as np

from rocketstore._native.format.codec import decode_properties, decode_record
from rocketstore.columns import Columns
from rocketstore.engine.engine import Engine
from rocketstore.engine.open_options import SYSTEM_CLOCK
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    ConfigError,
    CorruptRecordError,
    MessageRejectedError,
    MissingSegmentsError,
    ReadFailedError,
)
from rocketstore.log.layout.log_place import place_at
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.column_reader import LogFiles, ScanReport
from rocketstore.scanning.latest_keys import (
    COLUMNS,
    MARK_BITS,
    NOT_DELIVERED,
    OLD,
    TOMBSTONE,
    LatestKeys,
    keys_of,
)
from rocketstore.scanning.scan import OnDamage, Scan
from rocketstore.services.compaction.base import describe, note_origin, open_base
from rocketstore.services.compaction.new_store import NewLog, NewStore, check_into
from rocketstore.services.compaction.report import CompactionReport
from rocketstore.values.arguments import Progress, one_of, texts
from rocketstore.values.record_filter import RecordFilter
from rocketstore.values.reserved_names import is_system_topic
from rocketstore.values.timestamps import Duration, duration_of

__all__ = ["GRACE", "WithoutKey", "compact"]

WithoutKey = Literal["keep", "drop"]

#: How long a tombstone is kept, as in Kafka: for readers that have seen the message before it.
GRACE: Final = timedelta(days=1)
LISTED: Final = b"INNER_MULTI_DISPATCH"


def compact(
    engine: Engine,
    topics: str | Iterable[str],
    into: str | os.PathLike[str],
    *,
    tombstones: bool = True,
    grace: Duration = GRACE,
    without_key: WithoutKey = "keep",
    keep_offsets: bool = True,
    on_damage: OnDamage = "raise",
    dry_run: bool = False,
    progress: Progress | None = None,
    base: str | os.PathLike[str] | None = None,
) -> CompactionReport:
    """`Store.compact`."""
    began = time.monotonic()
    names = _checked_topics(topics)
    one_of("tombstones", tombstones, (True, False))
    one_of("without_key", without_key, ("keep", "drop"))
    one_of("keep_offsets", keep_offsets, (True, False))
    one_of("on_damage", on_damage, ("raise", "skip"))
    one_of("dry_run", dry_run, (True, False))
    kept = duration_of("grace", grace)
    if kept < timedelta():
        raise ValueError(f"grace = {grace}: 0 or more")
    layout, begin, end = engine.log_bounds()
    target = check_into(into, layout)
    engine.check_topics(names, must_exist=True)
    if on_damage == "raise" and engine.recovery.missing:
        # Where the last segments are missing, older messages would pass for the latest.
        raise MissingSegmentsError(f"{engine.path}: {'; '.join(engine.recovery.missing)}")
    clock = engine.write.clock if isinstance(engine, WritingEngine) else SYSTEM_CLOCK
    origin = describe(engine, names, keep_offsets)
    parts = [_part(layout, begin, max(begin, end), names, on_damage)]
    with contextlib.ExitStack() as opened:
        if base is not None:
            before, begin = open_base(base, engine, origin, end)
            opened.callback(before.close)
            there, low, high = before.log_bounds()
            check_into(into, there)
            # Of the base first: marks rise in the order of puts.
            parts = [
                _part(there, low, high, names, "raise"),
                _part(layout, begin, end, names, on_damage, high),
            ]
        run = _Run(
            parts=parts,
            old_ms=clock.now_ms() - kept // timedelta(milliseconds=1) if tombstones else None,
            keeps_keyless=without_key == "keep",
            keeps_offsets=keep_offsets,
            progress=progress,
        )
        latest = run.look()
        if not dry_run:
            with NewStore(target, engine.config) as made:
                run.copy(latest, made.log)
                place = place_at(engine.reader.source.segments(), parts[-1].scan.end_offset)
                made.finish(run.skipped, run.last_ms, lambda new: note_origin(new, origin, place))
    report = replace(run.report, path=engine.path, into=target, topics=tuple(sorted(names)))
    shown = "" if base is None else os.path.realpath(base)
    return replace(report, base=shown, dry_run=dry_run, seconds=time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Part:
    """A log to read. Its offsets count from `base` on, after those of the part before it."""

    scan: Scan
    layout: StoreLayout
    base: int


def _part(
    layout: StoreLayout,
    begin: int,
    end: int,
    topics: frozenset[str],
    on_damage: OnDamage,
    base: int = 0,
) -> _Part:
    scan = Scan(
        path=os.fspath(layout.root),
        begin_offset=begin,
        end_offset=end,
        limit_offset=end,
        columns=COLUMNS,
        filter=RecordFilter.of(topics=topics),
        on_damage=on_damage,
        whole=True,
        log_directories=tuple(map(os.fspath, layout.log_directories)),
    )
    return _Part(scan, layout, base)


def _checked_topics(topics: str | Iterable[str]) -> frozenset[str]:
    names = frozenset(texts("topics", topics, "a topic, or several"))
    if not names:
        raise ValueError("topics: at least one")
    for name in sorted(names):
        if is_system_topic(name):
            raise ConfigError("topics", name, "a topic of RocketMQ itself, whose keys are no keys")
    return names


@dataclass(slots=True)
class _Run:
    """One compaction: `look`, then `copy`."""

    parts: list[_Part]
    #: Tombstones stored before this time go, ms since 1970; None: an empty body is none.
    old_ms: int | None
    keeps_keyless: bool
    keeps_offsets: bool
    progress: Progress | None
    report: CompactionReport = field(init=False)
    #: Queue offsets between kept messages.
    skipped: int = 0
    #: Store time of the last kept message.
    last_ms: int = 0
    _next: dict[tuple[str, int], int] = field(default_factory=dict)

    def look(self) -> Any:
        """The physical offsets of the messages with a key that stay, rising; and the report of a
        dry run."""
        keys = LatestKeys()
        for chunk, part in self._chunks("look"):
            keys.take_up(chunk, self.old_ms, part.base)
        keyed, keyless, hidden = keys.keyed, keys.keyless, keys.hidden
        latest = keys.take()
        dead = (latest & TOMBSTONE) != 0
        dropped = dead & ((latest & OLD) != 0)
        count, gone = len(latest), int(dropped.sum())
        kept_keyless = keyless if self.keeps_keyless else 0
        self.report = CompactionReport(
            path="",
            into="",
            topics=(),
            begin=self._source.begin_offset,
            end=self._source.end_offset,
            messages=keyed + keyless,
            keys=count,
            kept=count - gone + kept_keyless,
            superseded=keyed - count,
            tombstones_kept=int(dead.sum()) - gone,
            tombstones_dropped=gone,
            without_key=keyless,
            without_key_kept=kept_keyless,
            undelivered=hidden,
            **_damage(self._source.report),
        )
        return latest[~dropped] >> MARK_BITS

    @property
    def _source(self) -> Scan:
        return self.parts[-1].scan

    def copy(self, latest: Any, log: NewLog) -> None:
        """Writes what stays, in the order of the log."""
        copied, files = 0, {part: LogFiles(part.layout) for part in self.parts}
        try:
            for chunk, part in self._chunks("copy"):
                rows = self._rows_that_stay(chunk, latest, part.base)
                copied += len(rows)
                self._copy_rows(chunk, rows, files[part], log)
        finally:
            for each in files.values():
                each.close()
        if copied != self.report.kept:
            raise ReadFailedError(
                f"{self._source.path}: {self.report.kept - copied} of {self.report.kept} messages "
                "are not there any more: the log was trimmed or damaged meanwhile; run it again"
            )
        self.report = replace(
            self.report,
            skipped_offsets=self.skipped,
            bytes_written=log.record_bytes,
            **_damage(self._source.report),
        )

    def _chunks(self, what: str) -> Iterator[tuple[Columns, _Part]]:
        done, total = 0, sum(p.scan.end_offset - p.scan.begin_offset for p in self.parts)
        for part in self.parts:
            before = done - part.scan.begin_offset
            for chunk in part.scan:
                yield chunk, part
                if self.progress is not None:
                    self.progress(what, min(before + chunk.end_offset, total), total)
            done = before + part.scan.end_offset
        if self.progress is not None:
            self.progress(what, total, total)

    def _rows_that_stay(self, chunk: Columns, latest: Any, base: int) -> list[int]:
        offsets = chunk["physical_offset"] + base
        low, high = np.searchsorted(latest, [offsets[0], offsets[-1] + 1])
        stays = np.isin(offsets, latest[low:high], assume_unique=True)
        if self.report.without_key_kept:
            delivered = chunk["sys_flag"] & NOT_DELIVERED == 0
            others = np.flatnonzero(delivered & ~stays).tolist()
            keyed = {row for row, _ in keys_of(chunk, others, None)}
            stays[[row for row in others if row not in keyed]] = True
        rows: list[int] = np.flatnonzero(stays).tolist()
        return rows

    def _copy_rows(self, chunk: Columns, rows: list[int], files: LogFiles, log: NewLog) -> None:
        offsets, sizes = chunk["physical_offset"].tolist(), chunk["size"].tolist()
        topics, queue_ids = chunk["topic"].tolist(), chunk["queue_id"].tolist()
        queue_offsets = chunk["queue_offset"].tolist()
        for row in rows:
            offset = offsets[row]
            file = files.at(offset)
            if file is None:
                raise ReadFailedError(f"{self._source.path}: the log was trimmed meanwhile")
            record = file.read(offset - file.start_offset, sizes[row])
            if LISTED in record:
                _refuse_listed(record, offset)
            queue = topics[row], queue_ids[row]
            log.append(record, self._number(queue, queue_offsets[row], offset))
        if rows:
            self.last_ms = int(chunk["store_timestamp_ms"][rows[-1]])

    def _number(self, queue: tuple[str, int], queue_offset: int, offset: int) -> int:
        """The queue offset of the copy of the message at `offset`."""
        if not self.keeps_offsets:
            queue_offset = self._next.get(queue, 0)
        expected = self._next.get(queue, queue_offset)
        if queue_offset < expected:
            raise CorruptRecordError(
                offset,
                f"queue offset {queue_offset} of {queue[0]}/{queue[1]} follows {expected - 1}: the "
                "numbers of the queue began again; only keep_offsets=False can copy both",
            )
        self.skipped += queue_offset - expected
        self._next[queue] = queue_offset + 1
        return queue_offset


def _refuse_listed(record: bytes, offset: int) -> None:
    if LISTED.decode() in decode_properties(decode_record(record, verify=False)["properties"]):
        raise MessageRejectedError(
            f"the message at {offset} is in light queues as well ({LISTED.decode()}), whose "
            "offsets a copy cannot keep; drop such topics from `topics`"
        )


def _damage(report: ScanReport) -> dict[str, Any]:
    return {"damage_count": report.damage_count, "damage": tuple(report.damage)}
