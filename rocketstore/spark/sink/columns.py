"""Columns that the sink takes, with their types, and columns that it ignores. The properties of
rows: a column of maps, Kafka's headers and shard keys, as encode_frames takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore.puts import SHARD_KEY
from rocketstore.values import of_one_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = [
    "ALIASES",
    "COLUMNS",
    "IGNORED",
    "Described",
    "Entries",
    "described",
    "given_texts",
    "named_columns",
    "narrowed",
]

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


#: Columns that have a property of their own.
OWN = {"tags": "TAGS", "keys": "KEYS", "shard_key": SHARD_KEY}


@dataclass(frozen=True, slots=True)
class Entries:
    """Names and values that are not empty, both text; `owners` says of which rows, and never
    falls."""

    owners: Any
    names: Any
    values: Any

    def take(self, places: Any) -> Entries:
        import pyarrow as pa

        chosen = pa.array(places)
        return Entries(self.owners[places], self.names.take(chosen), self.values.take(chosen))

    def without(self, names: list[str]) -> Entries:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not len(self.owners):
            return self
        there = pc.is_in(self.names, pa.array(names, pa.string()))
        if not pc.any(there).as_py():
            return self
        return self.take(np.flatnonzero(~there.to_numpy(zero_copy_only=False)))

    def last_of(self, name: str, rows: int) -> Any:
        """A column: for each row the value of its last entry of this name, or null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found = np.flatnonzero(pc.equal(self.names, name).to_numpy(zero_copy_only=False))
        places = np.full(rows, -1, np.int64)
        places[self.owners[found]] = found
        return self.values.take(pa.array(places, mask=places < 0))

    def places(self, rows: int) -> Any:
        """Offsets as Arrow keeps them for a column of maps."""
        places = np.zeros(rows + 1, np.int32)
        np.cumsum(np.bincount(self.owners, minlength=rows), out=places[1:])
        return places


@dataclass(frozen=True, slots=True)
class Described:
    """`texts`: the columns tags and keys, where rows have some. `wrong`: rows whose keys or headers
    no message can have, and why."""

    texts: dict[str, Any]
    entries: Entries
    wrong: dict[int, str]


def described(columns: Mapping[str, Any], rows: int) -> Described:
    """Tags, keys and properties of rows. What a column of its own says is left out of the others,
    and so is what says something of the store alone that a row was read from; of headers of one
    name the last one counts."""
    import pyarrow as pa

    parts: list[Entries] = []
    wrong: dict[int, str] = {}
    if "properties" in columns:
        item = pa.struct([("key", pa.string()), ("value", pa.string())])
        parts.append(listed(columns["properties"].cast(pa.list_(item))))
    if "headers" in columns:
        headers, wrong = as_text(listed(columns["headers"]))
        parts.append(headers)
    own = [name for column, name in OWN.items() if column in columns]
    entries = joined(parts)
    entries = entries.without([*own, *filter(of_one_store, entries.names.unique().to_pylist())])
    if "headers" in columns:
        entries = last_ones(entries)
    texts = {}
    for column in ("tags", "keys"):
        if column in columns:
            texts[column] = columns[column]
        elif parts:
            texts[column] = entries.last_of(OWN[column], rows)
    if "keys" in columns and pa.types.is_list(columns["keys"].type):
        texts["keys"], more = one_text(columns["keys"])
        wrong = {**more, **wrong}
    entries = entries.without([OWN["tags"], OWN["keys"]])
    if "shard_key" in columns:
        there = np.flatnonzero(given_texts(columns["shard_key"]))
        names = pa.array([SHARD_KEY] * len(there), pa.string())
        entries = joined(
            [entries, Entries(there, names, columns["shard_key"].take(pa.array(there)))]
        )
    return Described(texts, entries, wrong)


def listed(lists: Any) -> Entries:
    """The items of a column of lists of names and values, without those that have no value."""
    import pyarrow.compute as pc

    names, values = lists.flatten().flatten()
    keep = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    owners = pc.list_parent_indices(lists).filter(keep).to_numpy(zero_copy_only=False)
    return Entries(owners, pc.fill_null(names.filter(keep), ""), values.filter(keep))


def as_text(headers: Entries) -> tuple[Entries, dict[int, str]]:
    """Headers with text for bytes, and the rows of those that are no UTF-8."""
    import pyarrow as pa

    try:
        return Entries(headers.owners, headers.names, headers.values.cast(pa.string())), {}
    except pa.ArrowInvalid:
        pass
    wrong, values = {}, []
    for owner, name, value in zip(
        headers.owners.tolist(), headers.names.to_pylist(), headers.values.to_pylist(), strict=True
    ):
        try:
            values.append(value.decode())
        except UnicodeDecodeError:
            values.append("?")
            wrong[owner] = f"header {name!r}: {value[:40]!r} is no UTF-8, which a property must be"
    return Entries(headers.owners, headers.names, pa.array(values, pa.string())), wrong


def joined(parts: list[Entries]) -> Entries:
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = pa.array([], pa.string())
        return Entries(np.zeros(0, np.int64), none, none)
    owners = np.concatenate([part.owners for part in parts])
    together = Entries(
        owners,
        pa.concat_arrays([part.names for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
    )
    return together.take(np.argsort(owners, kind="stable")) if len(owners) else together


def last_ones(entries: Entries) -> Entries:
    """Each name once in a row: the last of its entries."""
    count = len(entries.owners)
    if not count:
        return entries
    encoded = entries.names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    together = entries.owners.astype(np.int64) * len(encoded.dictionary) + codes
    _, from_the_end = np.unique(together[::-1], return_index=True)
    if len(from_the_end) == count:
        return entries
    return entries.take(np.sort(count - 1 - from_the_end))


def one_text(lists: Any) -> tuple[Any, dict[int, str]]:
    """Lists of keys as the text that a message has, and the rows of lists that hold what is no
    key."""
    import pyarrow.compute as pc

    wrong: dict[int, str] = {}
    flat = lists.flatten()
    for found, reason in (
        (pc.match_substring(flat, " "), "a key in keys holds a blank, which separates keys"),
        (flat.is_null(), "keys holds a null"),
    ):
        if pc.any(found).as_py():
            these = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
            bad = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)[these]
            wrong.update(dict.fromkeys(bad.tolist(), reason))
    return pc.binary_join(lists, " "), wrong


def given_texts(array: Any) -> Any:
    """Which rows have a text: null and empty ones have none."""
    import pyarrow.compute as pc

    there = pc.fill_null(pc.greater(pc.binary_length(array), 0), False)
    return there.to_numpy(zero_copy_only=False)
