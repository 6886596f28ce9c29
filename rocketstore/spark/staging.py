"""A task's part of a write: Arrow record batches to a file of frames."""

from __future__ import annotations

import os
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore import MessageRejectedError, encode_frames
from rocketstore.spark.failures import SparkFaceError
from rocketstore.spark.journal import Staged

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Routing", "encode_batch", "stage"]

#: Names of columns, and those of the Kafka connector that stand for them.
KAFKA_NAMES = {"value": "body", "key": "keys", "partition": "queue_id"}
TEXT_COLUMNS = ("tags", "keys")


@dataclass(frozen=True, slots=True)
class Routing:
    """Where messages go whose row does not say it, and what happens to rows that cannot be messages."""

    topic: str | None = None
    queue_id: int = 0
    queues: int | None = None
    drop_bad_rows: bool = False
    max_body_bytes: int = 4 << 20


def stage(batches: Iterable[pa.RecordBatch], directory: str, routing: Routing) -> Staged | None:
    """Writes the frames of all batches to a new file in `directory`, durably; None without a row."""
    name = os.path.join(directory, f"{uuid.uuid4().hex}.frames")
    chunks, dropped, row = [], 0, 0
    os.makedirs(directory, exist_ok=True)
    try:
        with open(name, "xb") as file:
            for batch in batches:
                for part in parts(batch):
                    frames, count = encode_batch(part, routing, row)
                    row += part.num_rows
                    dropped += part.num_rows - count
                    if count:
                        file.write(frames)
                        chunks.append((len(frames), count, zlib.crc32(frames)))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(name)
        raise
    if not chunks:
        os.unlink(name)
        return None
    return Staged(name, sum(chunk[1] for chunk in chunks), tuple(chunks))


def parts(batch: pa.RecordBatch, most_bytes: int = 8 << 20) -> Iterator[pa.RecordBatch]:
    """Pieces of about `most_bytes`: a chunk is held in memory and appended at once."""
    count = max(1, -(-batch.nbytes // most_bytes))
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def encode_batch(batch: pa.RecordBatch, routing: Routing, first_row: int = 0) -> tuple[bytes, int]:
    """(frames, how many) of one batch. `first_row`: number of its first row, for messages.

    Raises:
        SparkFaceError: RS_BAD_ROW unless bad rows are dropped.
    """
    columns = {KAFKA_NAMES.get(n, n): batch.column(i) for i, n in enumerate(batch.schema.names)}
    missing = null_rows(columns, batch.num_rows, routing)
    if missing:
        row, name = min(missing.items())
        if not routing.drop_bad_rows:
            raise bad_row(first_row + row, f"{name} is null")
        keep = np.ones(batch.num_rows, bool)
        keep[list(missing)] = False
        return encode_batch(batch.filter(mask(keep)), routing, first_row)
    rows = batch.num_rows
    topics, topic_rows = topics_of(columns.get("topic"), rows, routing)
    given: dict[str, Any] = {n: texts(columns[n]) for n in TEXT_COLUMNS if n in columns}
    if "properties" in columns:
        given["properties"] = entries(columns["properties"], dropped_names(columns))
    try:
        frames, refused = encode_frames(
            texts(columns["body"]),
            topics=topics,
            topic_rows=topic_rows,
            queue_ids=queues_of(columns.get("queue_id"), rows, first_row, routing),
            born_timestamps_ms=born_of(columns.get("born_timestamp"), rows),
            max_body_bytes=routing.max_body_bytes,
            **given,
        )
    except MessageRejectedError as error:
        raise SparkFaceError(
            "RS_BAD_ROW", f"rows {first_row} … {first_row + rows - 1} of a partition: {error}"
        ) from error
    if refused and not routing.drop_bad_rows:
        row, reason = min(refused.items())
        raise bad_row(first_row + row, reason)
    return frames, rows - len(refused)


def bad_row(row: int, reason: str) -> SparkFaceError:
    return SparkFaceError(
        "RS_BAD_ROW",
        f"row {row} of a partition: {reason}; badRows=drop leaves such rows out",
    )


def null_rows(columns: dict[str, Any], rows: int, routing: Routing) -> dict[int, str]:
    """Rows without what a message must have, and what that is."""
    needed = ["body", "queue_id"]
    if routing.topic is None:
        needed.append("topic")
    found: dict[int, str] = {}
    for name in needed:
        array = columns.get(name)
        if array is not None and array.null_count:
            nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            found.update(dict.fromkeys(map(int, nulls), name))
    return found


def mask(keep: Any) -> Any:
    import pyarrow as pa

    return pa.array(keep)


def texts(array: Any) -> tuple[Any, Any]:
    """(offsets, data) of a column of text or bytes; null is the empty text."""
    import pyarrow as pa

    if isinstance(array.type, pa.ListType):
        import pyarrow.compute as pc

        if array.flatten().null_count:
            raise SparkFaceError("RS_BAD_ROW", "keys holds a null; filter it out")
        array = pc.binary_join(array.cast(pa.list_(pa.string())), " ")
    wanted = pa.binary() if pa.types.is_binary(array.type) else pa.string()
    if array.type not in (pa.binary(), pa.string()):
        array = array.cast(wanted)
    if array.null_count:
        array = array.fill_null(b"" if array.type == pa.binary() else "")
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, np.int32), b""
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return places, b"" if data is None else data


def dropped_names(columns: dict[str, Any]) -> list[str]:
    """Names that the source gives among the properties and that are said otherwise here: in their own
    columns, or by the log itself."""
    own = [name.upper() for name in TEXT_COLUMNS if name in columns]
    return [*own, "__CRC32#", "WAIT"]


def entries(array: Any, dropped: list[str]) -> tuple[Any, tuple[Any, Any], tuple[Any, Any]]:
    """A column of maps as encode_frames takes it, without entries that have no value or are `dropped`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = np.zeros(len(array) + 1, np.int32)
    lists = array.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    rows = pc.list_parent_indices(lists)
    flat = lists.flatten()
    names, values = flat.field(0), flat.field(1)
    keep = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    keep = pc.and_(keep, pc.invert(pc.is_in(names, pa.array(dropped))))
    owners = rows.filter(keep).to_numpy(zero_copy_only=False)
    np.cumsum(np.bincount(owners, minlength=len(array)), out=places[1:])
    return places, texts(names.filter(keep)), texts(values.filter(keep))


def topics_of(array: Any, rows: int, routing: Routing) -> tuple[list[str], Any]:
    if array is None:
        return [routing.topic or ""], np.zeros(rows, np.int32)
    if array.null_count:
        array = array.fill_null(routing.topic)
    encoded = array.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)


def queues_of(array: Any, rows: int, first_row: int, routing: Routing) -> Any:
    if array is not None:
        return array.to_numpy(zero_copy_only=False)
    if routing.queues is not None:
        return ((np.arange(rows) + first_row) % routing.queues).astype(np.int32)
    return routing.queue_id


def born_of(array: Any, rows: int) -> Any:
    now = time.time_ns() // 1_000_000
    if array is None:
        return now
    import pyarrow as pa

    millis = array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())
    return millis.fill_null(now).to_numpy(zero_copy_only=False) if rows else 0
