"""Scans as frames of other libraries, which are imported when they are asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rocketstore.arrow.batches import batch_reader
from rocketstore.arrow.dataset import ScanDataset

if TYPE_CHECKING:
    from rocketstore import Scan

__all__ = ["to_duckdb", "to_pandas", "to_polars"]


def to_polars(scan: Scan) -> Any:
    """A `polars.DataFrame` with all rows."""
    polars = _module("polars")
    return polars.from_arrow(batch_reader(scan).read_all())


def to_pandas(scan: Scan) -> Any:
    """A `pandas.DataFrame` with all rows. Properties are lists of pairs, as pyarrow has them."""
    _module("pandas")
    return batch_reader(scan).read_all().to_pandas()


def to_duckdb(scan: Scan, connection: Any = None) -> Any:
    """A `duckdb` relation that streams the scan again for each query, and reads the columns that
    the query names: memory does not grow with the log."""
    duckdb = _module("duckdb")
    return (connection or duckdb.connect()).from_arrow(ScanDataset(scan))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"to_{name} needs {name}: pip install 'rocketstore[arrow]' {name}", name=name
        ) from error
