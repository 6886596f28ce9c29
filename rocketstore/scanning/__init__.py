"""What happens in a scan: a range of the log, read as columns, without a lock.

`scan.Scan` is the entry: a frozen value that says which part of which log is read and what of it.
`rocketstore.scan` makes it; iterating reads it. It can be pickled and split, so that other
processes read parts of it.

Read in this order:
    scan: `Scan`: its range, its parts, and its faces for Arrow, polars, pandas and DuckDB.
    parallel: `ScanReading`: one iteration, by one thread or by several that read ahead. `ScanPlan`
        is all that it needs to know.
    bookmark: where a scan ended, and whether a log is still the one in which it did.
    latest_keys: which message is the latest of its key, for compaction and retention.
    delivered: rows of a scan as a consumer is given them: without what is not delivered, and with
        the messages of inner batches. Spark reads by it.

Native code scans bytes (`_native`, ColumnScanner); `log.read.column_reader` walks the files.
`archive` provides the objects of a store that was shipped.

Every higher floor may import this package. It uses `archive`, `columns` and lower floors; `arrow`
only when a scan is asked for Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.values.lazy import first_use

if TYPE_CHECKING:
    from rocketstore.scanning.bookmark import record_at, record_before
    from rocketstore.scanning.delivered import NEEDED, message_counts, messages_in

__all__ = [
    "NEEDED",
    "message_counts",
    "messages_in",
    "record_at",
    "record_before",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    __getattr__ = first_use(
        __name__,
        {
            "bookmark": "record_at record_before",
            "delivered": "NEEDED message_counts messages_in",
        },
    )
