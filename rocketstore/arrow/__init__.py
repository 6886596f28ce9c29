"""Scans as Arrow record batches, polars, pandas and DuckDB frames. Needs `rocketstore[arrow]`.

    import rocketstore

    scan = rocketstore.scan("data/orders", topics="orders")
    scan.to_duckdb().query("orders", "select tags, count(*) from orders group by 1")

Users call methods of a scan (`to_arrow`, `to_polars`, …), which import this package.

- `batches`: the columns of a chunk as an Arrow record batch, without a copy where the types allow
  it.
- `dataset`: a scan as a dataset, of which DuckDB and polars read the columns that a query names.
- `frames`: a scan as a frame of another library, which is imported when it is asked for.

`scanning` imports this package late, for the methods; `spark` for timestamps. It imports `columns`.
"""

from __future__ import annotations

from rocketstore.arrow.batches import batch_reader, record_batch, schema_of, timestamp_array
from rocketstore.arrow.dataset import ScanDataset
from rocketstore.arrow.frames import to_duckdb, to_pandas, to_polars

__all__ = [
    "ScanDataset",
    "batch_reader",
    "record_batch",
    "schema_of",
    "timestamp_array",
    "to_duckdb",
    "to_pandas",
    "to_polars",
]


def __dir__() -> list[str]:
    """What completion shows: no modules."""
    return sorted(__all__)
