"""Every record of a store, both checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketstore.spark.jobs.reading import SPLIT_BYTES, Row, parts_of, run_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketstore import Scan

__all__ = ["AUDIT_SCHEMA", "audit", "audit_part", "audit_scans"]

AUDIT_SCHEMA = (
    "begin_offset bigint, end_offset bigint, records bigint, bytes bigint, lost_bytes bigint, "
    "damage array<struct<begin_offset:bigint,end_offset:bigint,reason:string>>"
)


def audit(
    session: SparkSession, path: str | os.PathLike[str], *, split_bytes: int = SPLIT_BYTES
) -> DataFrame:
    """Reads every record and tests both checksums. One row for each part of the log: how many
    records and bytes, and the ranges in which none can be believed, with the reason."""
    rows = run_parts(session, audit_scans(path, split_bytes), audit_part)
    return session.createDataFrame(sorted(rows), AUDIT_SCHEMA)


def audit_scans(path: str | os.PathLike[str], split_bytes: int) -> list[Scan]:
    return parts_of(
        path, split_bytes, columns=("size",), system_topics=True, verify=True, on_damage="skip"
    )


def audit_part(scan: Scan) -> Iterator[Row]:
    """The row of `audit` for one part of the log."""
    size = sum(int(columns["size"].sum()) for columns in scan)
    report = scan.report
    damage = [(d.start, d.end, d.reason) for d in report.damage]
    yield (scan.begin_offset, scan.end_offset, report.records, size, report.lost_bytes, damage)
