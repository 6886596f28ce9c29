"""A task's part of a write: Arrow record batches to a file of frames."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore import MessageRejectedError, encode_frames, shard_queue_id
from rocketstore.puts import crc32
from rocketstore.spark.errors import HINTS, SparkFaceError, coded_errors
from rocketstore.spark.sink.bad_rows import BadRows
from rocketstore.spark.sink.columns import described, given_texts, named_columns, narrowed
from rocketstore.spark.sink.journal import Staged
from rocketstore.values import BATCH_BITS, COMPRESSION_BITS, is_system_topic

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ROWS_MAX",
    "Routing",
    "SyncedFile",
    "columns_of",
    "encode_batch",
    "parts",
    "refuse",
    "stage",
]

TOPIC_BYTES_MAX = 127
#: Rows of a chunk, a count: each row makes a record that is some 100 bytes larger.
ROWS_MAX = 1 << 16
#: Columns of numbers that encode_frames takes as they are.
NUMBERS = {"flag": "flags", "sys_flag": "sys_flags", "reconsume_times": "reconsume_times"}


@dataclass(frozen=True, slots=True)
class Routing:
    """Where messages go, and what happens to rows that cannot be messages. `topic`: of all of them,
    whatever their rows say; `queue_id`, `queues`: of those whose row does not say it."""

    topic: str | None = None
    queue_id: int = 0
    queues: int | None = None
    drop_bad_rows: bool = False
    max_body_bytes: int = 4 << 20
    #: Whether keys choose among `queues` where there is no shard key.
    by_key: bool = True
    #: Whether a row without a body is a message with an empty one, and no bad row.
    null_is_empty: bool = False


def stage(
    batches: Iterable[pa.RecordBatch],
    directory: str,
    routing: Routing,
    bad_rows: BadRows | None = None,
) -> Staged | None:
    """Writes the frames of all batches to a new file in `directory`, durably; None without a
    row."""
    name = os.path.join(directory, f"{uuid.uuid4().hex}.frames")
    chunks, row, largest, room = [], 0, 0, bytearray()
    topics: set[str] = set()
    with coded_errors("RS_WRITE_FAILED", directory):
        os.makedirs(directory, exist_ok=True)
        opened = SyncedFile(name)
    with opened as file:
        for batch in batches:
            for part in parts(batch):
                frames, count = encode_batch(part, routing, row, bad_rows, room)
                row += part.num_rows
                if count:
                    with coded_errors("RS_WRITE_FAILED", name):
                        file.write(frames)
                    chunks.append((len(frames), count, crc32(frames)))
                    largest = max(largest, largest_body(part))
                    topics |= topics_in(part, routing)
                frames.release()
        with coded_errors("RS_WRITE_FAILED", name):
            file.finish()
    if not chunks:
        with coded_errors("RS_WRITE_FAILED", name):
            os.unlink(name)
        return None
    rows = sum(chunk[1] for chunk in chunks)
    most = min(largest, routing.max_body_bytes)
    return Staged(name, rows, tuple(chunks), most, tuple(sorted(topics)))


def topics_in(batch: pa.RecordBatch, routing: Routing) -> set[str]:
    """Of a batch, also of rows that cannot be messages."""
    if routing.topic is not None:
        return {routing.topic}
    found = named_columns(narrowed(batch)).get("topic")
    return set() if found is None else {topic for topic in found.unique().to_pylist() if topic}


def largest_body(batch: pa.RecordBatch) -> int:
    import pyarrow.compute as pc

    body = named_columns(narrowed(batch))["body"]
    return pc.max(pc.binary_length(body)).as_py() or 0


def parts(batch: pa.RecordBatch, most_bytes: int = 8 << 20) -> Iterator[pa.RecordBatch]:
    """Pieces of about `most_bytes` and of `ROWS_MAX` rows at most, since a record is larger than its
    row: a chunk is held in memory and appended at once."""
    count = max(1, -(-batch.nbytes // most_bytes), -(-batch.num_rows // ROWS_MAX))
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def encode_batch(
    batch: pa.RecordBatch,
    routing: Routing,
    first_row: int = 0,
    bad_rows: BadRows | None = None,
    into: bytearray | None = None,
) -> tuple[memoryview, int]:
    """(frames, how many) of one batch, written to `into`. `first_row`: number of its first row, for
    messages.

    Raises:
        SparkFaceError: RS_BAD_ROW unless bad rows are dropped.
    """
    batch, columns = columns_of(batch, routing, first_row, bad_rows)
    frames, refused = encode_frames(**columns, max_body_bytes=routing.max_body_bytes, into=into)
    if refused:
        refuse(batch, refused, routing, first_row, bad_rows)
    return frames, batch.num_rows - len(refused)


def columns_of(
    batch: pa.RecordBatch, routing: Routing, first_row: int, bad_rows: BadRows | None
) -> tuple[pa.RecordBatch, dict[str, Any]]:
    """The rows of a batch that have what a message must have, and their columns as `encode_frames`
    and `put_columns` take them. `first_row`: number of the first row, for messages.

    Raises:
        SparkFaceError: RS_BAD_ROW unless bad rows are dropped.
    """
    batch = narrowed(batch)
    columns, rows = named_columns(batch), batch.num_rows
    if routing.topic is not None:
        columns.pop("topic", None)
    elif "topic" in columns:
        columns["topic"] = columns["topic"].dictionary_encode()
    about = described(columns, rows)
    wrong = {**about.wrong, **wrong_rows(columns, rows, routing)}
    if wrong:
        refuse(batch, wrong, routing, first_row, bad_rows)
        keep = np.ones(rows, bool)
        keep[list(wrong)] = False
        return columns_of(batch.filter(mask(keep)), routing, first_row, bad_rows)
    topics, topic_rows = topics_of(columns.get("topic"), rows, routing)
    given: dict[str, Any] = {
        name: texts(array) for name, array in about.texts.items() if array.null_count < rows
    }
    if len(about.entries.owners):
        entries = about.entries
        given["properties"] = entries.places(rows), texts(entries.names), texts(entries.values)
    for name, argument in NUMBERS.items():
        if name in columns:
            given[argument] = numbers_of(columns[name], 0)
    if "sys_flags" in given:
        given["sys_flags"] = given["sys_flags"] & COMPRESSION_BITS
    return batch, {
        **given,
        "bodies": texts(columns["body"]),
        "topics": topics,
        "topic_rows": topic_rows,
        "queue_ids": queues_of(columns, about.texts.get("keys"), first_row, routing),
        "born_timestamps_ms": born_of(columns.get("born_timestamp"), rows),
    }


def refuse(
    batch: pa.RecordBatch,
    wrong: dict[int, str],
    routing: Routing,
    first_row: int,
    bad_rows: BadRows | None,
) -> None:
    """Rows that cannot be messages, with the reason: an error, or kept, or nothing."""
    if not routing.drop_bad_rows:
        row, reason = min(wrong.items())
        raise bad_row(first_row + row, reason)
    if bad_rows is not None:
        numbers = sorted(wrong)
        bad_rows.add(batch.take(mask(numbers)), [wrong[number] for number in numbers])


def bad_row(row: int, reason: str) -> SparkFaceError:
    return SparkFaceError(
        "RS_BAD_ROW",
        f"row {row} of a partition: {reason}; {HINTS['bad_rows']}",
    )


def wrong_rows(columns: dict[str, Any], rows: int, routing: Routing) -> dict[int, str]:
    """Rows that are not one message, without what it must have, or with a topic that none may have;
    and why."""
    found: dict[int, str] = {}
    for name in ("topic",) if routing.null_is_empty else ("body", "topic"):
        array = columns.get(name)
        if array is not None and array.null_count:
            nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            found.update(dict.fromkeys(map(int, nulls), f"{name} is null"))
    if "topic" in columns:
        encoded = columns["topic"]
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            reason = wrong_topic(topic)
            if reason:
                bad = np.flatnonzero(numbers_of(encoded.indices, -1) == number)
                found.update(dict.fromkeys(map(int, bad), reason))
    flags = columns.get("sys_flag")
    if flags is not None and rows:
        kinds = numbers_of(flags, 0) & BATCH_BITS
        packed = np.flatnonzero(kinds == BATCH_BITS)
        found.update(dict.fromkeys(map(int, packed), "an inner batch, several messages in one"))
    queues = columns.get("queue_id")
    if queues is not None and rows:
        below = np.flatnonzero(numbers_of(queues, 0) < 0)
        found.update(dict.fromkeys(map(int, below), "queue_id is below 0"))
    return found


@functools.lru_cache(maxsize=4096)
def wrong_topic(topic: str) -> str:
    """Why no message may have this topic; empty when it may. As a store at its defaults sees it,
    which is stricter than frames are."""
    if len(topic.encode()) > TOPIC_BYTES_MAX:
        return f"the topic has {len(topic.encode())} bytes, at most {TOPIC_BYTES_MAX} are allowed"
    if is_system_topic(topic):
        why = "services act upon what lies there, as upon delayed messages and commit records"
        return f"the topic {topic}: {why}; give such rows another topic"
    try:
        encode_frames((np.zeros(1, np.int32), b""), topics=[topic])
    except MessageRejectedError as error:
        kafka = "; a topic of Kafka with dots: write replace(topic, '.', '-')"
        dots = kafka if "." in topic else ""
        return f"{error}{dots}"
    return ""


def mask(keep: Any) -> Any:
    import pyarrow as pa

    return pa.array(keep)


def numbers_of(array: Any, null: int) -> Any:
    """A column of numbers as NumPy has it, `null` for what is null."""
    return (array.fill_null(null) if array.null_count else array).to_numpy(zero_copy_only=False)


def texts(array: Any) -> tuple[Any, Any]:
    """(offsets, data) of a column of text or bytes; null is the empty text."""
    import pyarrow as pa

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


def topics_of(array: Any, rows: int, routing: Routing) -> tuple[list[str], Any]:
    if array is None:
        return [routing.topic or ""], np.zeros(rows, np.int32)
    return array.dictionary.to_pylist(), numbers_of(array.indices, -1)


def queues_of(columns: dict[str, Any], keys: Any, first_row: int, routing: Routing) -> Any:
    """`keys`: as messages have them, one text for each row, or None."""
    if "keys" not in columns or not routing.by_key:
        keys = None
    rows = len(columns["body"])
    chosen = own_queues((columns.get("shard_key"), keys), rows, first_row, routing)
    given = columns.get("queue_id")
    if given is None:
        return chosen
    if not given.null_count:
        return given.to_numpy(zero_copy_only=False)
    nulls = given.is_null().to_numpy(zero_copy_only=False)
    return np.where(nulls, chosen, numbers_of(given, 0)).astype(np.int32)


def own_queues(by: tuple[Any, ...], rows: int, first_row: int, routing: Routing) -> Any:
    """Queues of rows that do not say theirs: the first column of `by` that has a text chooses, else
    they go in turns."""
    if routing.queues is None:
        return routing.queue_id
    queues = ((np.arange(rows) + first_row) % routing.queues).astype(np.int32)
    for column in reversed(by):
        if column is None:
            continue
        texts_of = column.dictionary_encode()
        found = [
            shard_queue_id(key if isinstance(key, str) else key.decode(errors="replace"),
                           routing.queues)
            for key in texts_of.dictionary.to_pylist()
        ]  # fmt: skip
        chosen = np.asarray([*found, 0], np.int32)[numbers_of(texts_of.indices, 0)]
        queues = np.where(given_texts(column), chosen, queues).astype(np.int32)
    return queues


def born_of(array: Any, rows: int) -> Any:
    now = time.time_ns() // 1_000_000
    if array is None:
        return now
    import pyarrow as pa

    millis = array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())
    return millis.fill_null(now).to_numpy(zero_copy_only=False) if rows else 0


#: A sync begins each time so much was written, unless the last one still goes on.
STEP_BYTES = 16 << 20


class SyncedFile:
    """A new file that goes to the disk while it is written.

    Writes `path`, which must not be there; on disk, its name apart, once `finish` has returned.
    Of one that is left by an exception nothing stays."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._behind = ThreadPoolExecutor(1, "rocketstore-staging-sync")
        self._sync: Future[None] | None = None
        self._unsynced = 0

    def write(self, data: memoryview) -> None:
        """Appends all of it. Raises OSError, also for an earlier write that did not reach the
        disk."""
        done = 0
        while done < len(data):
            done += self._file.write(data[done:])
        self._unsynced += done
        if self._unsynced >= STEP_BYTES and (self._sync is None or self._sync.done()):
            self._wait()
            self._sync = self._behind.submit(os.fdatasync, self._file.fileno())
            self._unsynced = 0

    def finish(self) -> None:
        self._wait()
        os.fsync(self._file.fileno())

    def _wait(self) -> None:
        if self._sync is not None:
            self._sync.result()

    def __enter__(self) -> SyncedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._behind.shutdown()
        self._file.close()
        if kind is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
