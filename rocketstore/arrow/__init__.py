"""Scans as Arrow: record batches, and with them polars, pandas and DuckDB. Needs `rocketstore[arrow]`.

import rocketstore

scan = rocketstore.scan("data/orders", topics="orders")
scan.to_duckdb().query("orders", "select tags, count(*), sum(octet_length(body)) from orders group by 1")
"""

from __future__ import annotations

from rocketstore.arrow.batches import batch_reader, record_batch, schema_of, timestamp_array
from rocketstore.arrow.frames import to_duckdb, to_pandas, to_polars

__all__ = [
    "batch_reader",
    "record_batch",
    "schema_of",
    "timestamp_array",
    "to_duckdb",
    "to_pandas",
    "to_polars",
]
