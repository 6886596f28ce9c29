"""Jobs that do their work where the log is read and bring back little.

    from rocketstore.spark import jobs
    jobs.stats(session, "data/orders").show()

They need no data source: parts of the log go to the tasks, which use rocketstore alone.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

import rocketstore
from rocketstore.spark.planning import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "AUDIT_SCHEMA",
    "STATS_SCHEMA",
    "audit",
    "audit_part",
    "merge_stats",
    "stats",
    "stats_part",
]

STATS_SCHEMA = (
    "topic string, queue_id int, hour timestamp, messages bigint, bytes bigint, "
    "smallest bigint, largest bigint, first_queue_offset bigint, last_queue_offset bigint"
)
AUDIT_SCHEMA = (
    "begin_offset bigint, end_offset bigint, records bigint, bytes bigint, lost_bytes bigint, "
    "damage array<struct<begin_offset:bigint,end_offset:bigint,reason:string>>"
)
HOUR_MS = 3_600_000
#: topic, queue id, hour; messages, bytes, smallest, largest, first and last queue offset.
Row = tuple[Any, ...]


def stats(
    session: SparkSession,
    path: str | os.PathLike[str],
    *,
    split_bytes: int = 256 << 20,
    **wanted: Any,
) -> DataFrame:
    """One row for each topic, queue and hour: how many messages, how many bytes on disk, the smallest
    and largest record, the first and last queue offset.

    Args:
        wanted: what `rocketstore.scan` chooses by: topics, queues, tags, times.
    """
    names = ("topic", "queue_id", "queue_offset", "size", "store_timestamp_ms")
    parts = _parts(path, split_bytes, columns=names, verify=False, **wanted)
    rows = merge_stats(_run(session, parts, stats_part))
    return session.createDataFrame([_shown(row) for row in rows], STATS_SCHEMA)


def audit(
    session: SparkSession, path: str | os.PathLike[str], *, split_bytes: int = 256 << 20
) -> DataFrame:
    """Reads every record and tests both checksums. One row for each part of the log: how many records
    and bytes, and the ranges in which none can be believed, with the reason."""
    parts = _parts(path, split_bytes, columns=("size",), verify=True, on_damage="skip")
    return session.createDataFrame(sorted(_run(session, parts, audit_part)), AUDIT_SCHEMA)


def stats_part(scan: Any) -> Iterator[Row]:
    """The rows of `stats` for one part of the log."""
    found: dict[tuple[Any, ...], Row] = {}
    for columns in scan:
        topics, queues = columns["topic"], columns["queue_id"].astype(np.int64)
        hours = columns["store_timestamp_ms"] // HOUR_MS
        groups = np.stack([topics.codes.astype(np.int64), queues, hours])
        keys, owner = np.unique(groups, axis=1, return_inverse=True)
        order = np.argsort(owner.ravel(), kind="stable")
        counts = np.bincount(owner.ravel())
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        sizes = columns["size"].astype(np.int64)[order]
        offsets = columns["queue_offset"][order]
        values = zip(
            counts.tolist(),
            np.add.reduceat(sizes, starts).tolist(),
            np.minimum.reduceat(sizes, starts).tolist(),
            np.maximum.reduceat(sizes, starts).tolist(),
            np.minimum.reduceat(offsets, starts).tolist(),
            np.maximum.reduceat(offsets, starts).tolist(),
            strict=True,
        )
        for (code, queue, hour), value in zip(keys.T.tolist(), values, strict=True):
            _add(found, (topics.values[code], queue, hour), value)
    return iter([(*key, *value) for key, value in found.items()])


def merge_stats(rows: Iterable[Row]) -> list[Row]:
    """Rows of several parts, one for each topic, queue and hour, sorted."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        _add(found, row[:3], row[3:])
    return sorted((*key, *value) for key, value in found.items())


def _add(found: dict[tuple[Any, ...], Row], key: tuple[Any, ...], value: Row) -> None:
    old = found.get(key)
    if old is None:
        found[key] = tuple(value)
        return
    count, size, smallest, largest, first, last = value
    found[key] = (
        old[0] + count,
        old[1] + size,
        min(old[2], smallest),
        max(old[3], largest),
        min(old[4], first),
        max(old[5], last),
    )


def _shown(row: Row) -> Row:
    hour = datetime.datetime.fromtimestamp(row[2] * HOUR_MS / 1000, datetime.UTC)
    return (*row[:2], hour, *row[3:])


def audit_part(scan: Any) -> Iterator[Row]:
    """The row of `audit` for one part of the log."""
    size = sum(int(columns["size"].sum()) for columns in scan)
    report = scan.report
    damage = [(d.start, d.end, d.reason) for d in report.damage]
    yield (scan.begin_offset, scan.end_offset, report.records, size, report.lost_bytes, damage)


def _parts(path: str | os.PathLike[str], split_bytes: int, **given: Any) -> list[Any]:
    root = os.path.abspath(path)
    open_store(root).close()  # what is wrong with the path is said with a code
    return list(rocketstore.scan(root, **given).split(split_bytes))


def _run(
    session: SparkSession, parts: list[Any], work: Callable[[Any], Iterator[Row]]
) -> list[Row]:
    """All rows of `work` over the parts, each part a task."""
    if not parts:
        return []
    spread = session.sparkContext.parallelize(parts, len(parts))
    rows: list[Row] = spread.flatMap(work).collect()
    return rows
