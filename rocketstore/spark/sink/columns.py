"""Columns that the sink takes, with their types, and columns that it ignores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ALIASES", "COLUMNS", "IGNORED", "named_columns", "narrowed"]

#: Types as Spark names them.
COLUMNS = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "queue_id": ("int",),
    "tags": ("string",),
    "keys": ("string", "array<string>", "binary"),
    "properties": ("map<string,string>",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "shard_key": ("string",),
    "born_timestamp": ("timestamp", "timestamp_ntz"),
    "flag": ("int",),
    "sys_flag": ("int",),
    "reconsume_times": ("int",),
}
#: Names in the views of the Kafka and the RocketMQ connector.
ALIASES = {
    "value": "body",
    "key": "keys",
    "partition": "queue_id",
    "queueId": "queue_id",
    "bornTimestamp": "born_timestamp",
}
#: Columns of the source that only a log can say, also under the names of its other views.
IGNORED = {
    "queue_offset",
    "physical_offset",
    "store_timestamp",
    "born_host",
    "store_host",
    "msg_id",
    "message_id",
    "offset",
    "timestamp",
    "timestampType",
    "queueOffset",
    "storeTimestamp",
}


def named_columns(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns of a message that a batch has, by their names here."""
    return {
        ALIASES.get(name, name): batch.column(place)
        for place, name in enumerate(batch.schema.names)
        if name not in IGNORED
    }


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with offsets of 32 bits in all columns, whatever Spark uses
    (`spark.sql.execution.arrow.useLargeVarTypes`)."""
    import pyarrow as pa

    kinds = [narrow_type(kind) for kind in batch.schema.types]
    if kinds == batch.schema.types:
        return batch
    arrays = [array.cast(kind) for array, kind in zip(batch.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def narrow_type(kind: Any) -> Any:
    import pyarrow as pa

    if kind in (pa.large_string(), pa.string_view()):
        return pa.string()
    if kind in (pa.large_binary(), pa.binary_view()):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(narrow_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(narrow_type(kind.key_type), narrow_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, narrow_type(field.type)) for field in kind])
    return kind
