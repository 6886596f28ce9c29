"""Columns of a scan as Arrow record batches; buffers are shared, not copied, wherever the types
allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rocketstore.columns import (
    BytesColumn,
    CodedColumn,
    Columns,
    PropertiesColumn,
    TextColumn,
    ViewColumn,
)

if TYPE_CHECKING:
    from rocketstore import Scan

__all__ = [
    "batch_reader",
    "coded_batch",
    "coded_schema_of",
    "record_batch",
    "schema_of",
    "timestamp_array",
]

TIME = pa.timestamp("us", "UTC")
#: Times of this many milliseconds do not fit into microseconds of 64 bits; only damaged records
#: have them.
TIME_MS_END = 2**63 // 1000

TYPES = {
    "topic": pa.string(),
    "born_host": pa.string(),
    "store_host": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "physical_offset": pa.int64(),
    "size": pa.int32(),
    "body_size": pa.int32(),
    "tags_code": pa.int64(),
    "born_timestamp_ms": TIME,
    "store_timestamp_ms": TIME,
    "sys_flag": pa.int32(),
    "flag": pa.int32(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "body": pa.binary(),
    "body_view": pa.binary_view(),
    "tags": pa.string(),
    "keys": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "message_id": pa.string(),
}


CODED = pa.dictionary(pa.int32(), pa.string())
CODED_NAMES = frozenset({"topic", "born_host", "store_host"})


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """The Arrow schema of columns of a scan.

    Types carry the unit, so `born_timestamp_ms` is called `born_timestamp` (microseconds, UTC), and
    so is the store's; `body_view` is called `body` where that name is free. sys_flag is signed, as
    in Java.
    """
    names = tuple(columns)
    return pa.schema([pa.field(_arrow_name(name, names), TYPES[name]) for name in names])


def coded_schema_of(columns: Iterable[str]) -> pa.Schema:
    """The same with dictionaries for what a scan has as codes: topics and hosts."""
    names = tuple(columns)
    types = (CODED if name in CODED_NAMES else TYPES[name] for name in names)
    fields = zip((_arrow_name(name, names) for name in names), types, strict=True)
    return pa.schema([pa.field(name, kind) for name, kind in fields])


def coded_batch(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """One chunk of a scan, of a part of `coded_schema_of`."""
    if not columns:
        return record_batch(columns)
    arrays = [
        _dictionary(column) if name in CODED_NAMES else _array(name, column)
        for name, column in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def record_batch(columns: Columns) -> pa.RecordBatch:
    """One chunk of a scan. Views of bodies keep their segment mapped as long as they live."""
    names = tuple(columns)
    arrays = [_array(name, columns[name]) for name in names]
    if not names:
        # Arrow counts the rows by its columns.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * columns.rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(names))


def batch_reader(scan: Scan) -> pa.RecordBatchReader:
    """The whole scan, chunk by chunk, as it is asked for. What a scan raises, the reader raises."""
    return pa.RecordBatchReader.from_batches(schema_of(scan.columns), _batches(scan))


def _batches(scan: Scan) -> Iterator[pa.RecordBatch]:
    for columns in scan:
        yield record_batch(columns)


def _arrow_name(name: str, names: tuple[str, ...]) -> str:
    if name == "body_view" and "body" not in names:
        return "body"
    return name.removesuffix("_ms")


def _array(name: str, column: Any) -> pa.Array:
    kind = type(column)
    if kind in MAKERS:
        return MAKERS[kind](column)
    if TYPES[name] is TIME:
        return timestamp_array(column)
    return pa.array(column.view(np.int32) if name == "sys_flag" else column)


def timestamp_array(column: np.ndarray[Any, Any]) -> pa.Array:
    """Milliseconds as moments; null where 64 bits of microseconds do not hold them."""
    beyond = (column >= TIME_MS_END) | (column <= -TIME_MS_END)
    if beyond.any():
        return pa.array(np.where(beyond, 0, column) * 1000, mask=beyond).cast(TIME)
    return pa.Array.from_buffers(TIME, len(column), [None, pa.py_buffer(column * 1000)])


def _dictionary(column: Any) -> pa.DictionaryArray:
    values = pa.array(column.values, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(column.codes), values)


def _coded(column: CodedColumn) -> pa.Array:
    return _dictionary(column).dictionary_decode()


def _bytes(column: BytesColumn) -> pa.Array:
    buffers = [None, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers)


def _texts(column: TextColumn) -> pa.Array:
    if not column.utf8:
        return pa.array(column.tolist(), pa.string())
    there = np.diff(column.offsets) > 0
    missing = len(column) - int(there.sum())
    valid = pa.py_buffer(np.packbits(there, bitorder="little")) if missing else None
    buffers = [valid, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.string(), len(column), buffers, missing)


def _properties(column: PropertiesColumn) -> pa.Array:
    if not (column.names.utf8 and column.values.utf8):
        rows = [list(row.items()) for row in column.tolist()]
        return pa.array(rows, TYPES["properties"])
    names, values = _texts(column.names), _texts(column.values)
    return pa.MapArray.from_arrays(pa.array(column.offsets), names, values)


def _views(column: ViewColumn) -> pa.Array:
    memory = pa.py_buffer(column.memory)
    return pa.Array.from_buffers(
        pa.binary_view(), len(column), [None, pa.py_buffer(column.views), memory]
    )


MAKERS: dict[type, Callable[[Any], pa.Array]] = {
    CodedColumn: _coded,
    BytesColumn: _bytes,
    TextColumn: _texts,
    PropertiesColumn: _properties,
    ViewColumn: _views,
}
