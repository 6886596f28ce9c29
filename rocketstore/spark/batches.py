"""Columns of a scan as Arrow record batches, in exactly the types that Spark wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rocketstore.arrow import timestamp_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketstore.spark.schema import Field

__all__ = ["schema_of", "to_batch"]

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "array<struct<key:string,value:binary>>": pa.list_(HEADER),
}
#: Kafka's LogAppendTime: `timestamp` is when the message was stored.
LOG_APPEND_TIME = 1


def schema_of(fields: tuple[Field, ...]) -> pa.Schema:
    return pa.schema([pa.field(field.name, TYPES[field.kind]) for field in fields])


def to_batch(
    columns: Mapping[str, Any], rows: int, fields: tuple[Field, ...], keep: Any = None
) -> pa.RecordBatch:
    """One record batch; `keep`: a boolean array of the rows that are wanted."""
    made: dict[tuple[str, str], pa.Array] = {}
    for field in fields:
        if (field.column, field.kind) not in made:
            made[field.column, field.kind] = convert(columns, rows, field)
    arrays = [made[field.column, field.kind] for field in fields]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema_of(fields))
    return batch if keep is None else batch.filter(pa.array(keep))


def convert(columns: Mapping[str, Any], rows: int, field: Field) -> pa.Array:
    if not field.column:
        return pa.array(np.full(rows, LOG_APPEND_TIME, np.int32))
    found = columns[field.column]
    if field.kind in ("int", "bigint"):
        kind = np.int32 if field.kind == "int" else np.int64
        return pa.array(np.ascontiguousarray(found).astype(kind, copy=False))
    if field.kind == "timestamp":
        return timestamp_array(np.ascontiguousarray(found))
    if field.kind == "map<string,string>":
        return pa.MapArray.from_arrays(
            found.offsets, text(found.names, pa.string()), text(found.values, pa.string())
        )
    if field.kind.startswith("array"):
        names, values = text(found.names, pa.string()), text(found.values, pa.binary())
        items = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
        return pa.ListArray.from_arrays(found.offsets, items)
    if hasattr(found, "codes"):
        words = pa.array(list(found.values) or [""], pa.string())
        return words.take(pa.array(found.codes))
    if field.column == "body":
        return plain(found, pa.binary())
    return text(found, TYPES[field.kind], empty_is_null=True)


def plain(found: Any, kind: pa.DataType, validity: Any = None, nulls: int = 0) -> pa.Array:
    """The bytes of a column as they lie, without a copy."""
    buffers = [validity, pa.py_buffer(found.offsets), pa.py_buffer(found.data)]
    return pa.Array.from_buffers(kind, len(found), buffers, nulls)


def text(found: Any, kind: pa.DataType, *, empty_is_null: bool = False) -> pa.Array:
    """Texts; bytes that are not UTF-8 are replaced where Spark would take them for text."""
    if kind == pa.string() and not found.utf8:
        values = found.tolist()
        return pa.array(values if empty_is_null else [v or "" for v in values], kind)
    if not empty_is_null:
        return plain(found, kind)
    there = np.diff(found.offsets) > 0
    bits = pa.py_buffer(np.packbits(there, bitorder="little"))
    return plain(found, kind, bits, int(len(found) - there.sum()))
