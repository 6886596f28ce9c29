"""How messages look as rows: Spark's names and types, and the columns of a scan that they are made
from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketstore.spark.errors import SparkFaceError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["VIEWS", "Field", "check_fields", "choose", "ddl", "scan_columns"]


@dataclass(frozen=True, slots=True)
class Field:
    """One column: Spark's name and type, and the scan's column that it is made from."""

    name: str
    kind: str
    column: str


def _view(*fields: tuple[str, str, str]) -> dict[str, Field]:
    return {name: Field(name, kind, column) for name, kind, column in fields}


MAP = "map<string,string>"
HEADERS = "array<struct<key:string,value:binary>>"

#: The first is the default; the others have the columns of the connectors of Kafka and RocketMQ.
VIEWS: dict[str, dict[str, Field]] = {
    "rocketstore": _view(
        ("topic", "string", "topic"),
        ("queue_id", "int", "queue_id"),
        ("queue_offset", "bigint", "queue_offset"),
        ("physical_offset", "bigint", "physical_offset"),
        ("body", "binary", "body"),
        ("keys", "string", "keys"),
        ("tags", "string", "tags"),
        ("properties", MAP, "properties"),
        ("born_timestamp", "timestamp", "born_timestamp_ms"),
        ("store_timestamp", "timestamp", "store_timestamp_ms"),
        ("born_host", "string", "born_host"),
        ("store_host", "string", "store_host"),
        ("sys_flag", "int", "sys_flag"),
        ("flag", "int", "flag"),
        ("msg_id", "string", "message_id"),
        ("reconsume_times", "int", "reconsume_times"),
    ),
    "kafka": _view(
        ("key", "binary", "keys"),
        ("value", "binary", "body"),
        ("topic", "string", "topic"),
        ("partition", "int", "queue_id"),
        ("offset", "bigint", "queue_offset"),
        ("timestamp", "timestamp", "store_timestamp_ms"),
        ("timestampType", "int", ""),
        ("headers", HEADERS, "properties"),
    ),
    "rocketmq": _view(
        ("topic", "string", "topic"),
        ("flag", "int", "flag"),
        ("body", "binary", "body"),
        ("properties", MAP, "properties"),
        ("queueId", "int", "queue_id"),
        ("queueOffset", "bigint", "queue_offset"),
        ("bornTimestamp", "timestamp", "born_timestamp_ms"),
        ("storeTimestamp", "timestamp", "store_timestamp_ms"),
    ),
}

#: Names that columns have in any view, and in Arrow.
ANY_VIEW: dict[str, Field] = {
    **{name: field for fields in reversed(VIEWS.values()) for name, field in fields.items()},
    "message_id": Field("message_id", "string", "message_id"),
}


def choose(view: str, names: tuple[str, ...] | None, without: frozenset[str]) -> tuple[Field, ...]:
    """The fields of a view: those of `names`, in that order, or all but `without`. `names` may be
    those of other views, too: a column is called as it was asked for."""
    fields = VIEWS[view]
    if names is None:
        return tuple(field for name, field in fields.items() if name not in without)
    fields = {**ANY_VIEW, **fields}
    unknown = [name for name in names if name not in fields]
    if unknown or not names or len(set(names)) < len(names):
        raise SparkFaceError(
            "RS_UNKNOWN_COLUMN",
            f"columns = {', '.join(names)!r}: each once, of {', '.join(VIEWS[view])}",
        )
    return tuple(fields[name] for name in names)


def check_fields(fields: tuple[Field, ...], schema: StructType) -> None:
    """Raises SparkFaceError: RS_BAD_OPTION, where the caller has given another schema than that of
    these fields."""
    given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    if given != [(field.name, field.kind) for field in fields]:
        raise SparkFaceError(
            "RS_BAD_OPTION",
            f"schema = {schema.simpleString()}: the columns are those of the options view and "
            "columns; leave out schema(…), and select and cast after load()",
        )


def ddl(fields: tuple[Field, ...]) -> str:
    """Names and types, whatever `spark.sql.timestampType` takes a plain timestamp for."""
    kinds = {"timestamp": "timestamp_ltz"}
    return ", ".join(f"`{field.name}` {kinds.get(field.kind, field.kind)}" for field in fields)


def scan_columns(fields: tuple[Field, ...], more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What has to be scanned for these fields; never nothing, rows are counted by it."""
    wanted = [field.column for field in fields if field.column]
    return tuple(dict.fromkeys([*wanted, *more])) or ("queue_id",)
