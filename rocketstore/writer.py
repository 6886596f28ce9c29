"""Writer: the handle that puts messages into one topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore._native.append.copies import check_promise
from rocketstore._native.append.put_result import PutResult, durability_level, durability_name
from rocketstore._native.put import batch_append as native_rows
from rocketstore._native.put import writer as native
from rocketstore.engine.tickets import Completions, Ticket
from rocketstore.values.plural import bounded
from rocketstore.values.public import public

if TYPE_CHECKING:
    from rocketstore._native.sync.queue_positions import QueueState
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.values.arguments import ArrowArray, Body, Column, KeyRows, Numbers, TextRows
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Duration, Timestamp

__all__ = ["Ticket", "Writer"]


@public
class Writer(native.Writer):
    """Puts messages into one topic; made by `store.writer(topic, …)`, used from any thread.

    With one queue (`queue_id=`) every message goes there. With several (`queues=`) a `shard_key`
    picks the queue, as RocketMQ's SelectMessageQueueByHash does (Java's string hash without its
    sign, modulo their number); messages without one take turns. `topic` is the topic, `durability`
    the promise of puts that ask for no other.
    """

    __slots__ = ("_completions", "_path")

    _completions: Completions
    _path: str

    def _bind(self, engine: WritingEngine) -> Writer:
        """What submit and repr need; called once by the store."""
        self._completions = engine.completions
        self._path = engine.path
        return self

    def put_columns(
        self,
        bodies: Column | ArrowArray,
        *,
        row_tags: TextRows | None = None,
        row_keys: KeyRows | None = None,
        queue_ids: Numbers | None = None,
        born_timestamps_ms: Numbers | None = None,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
    ) -> PutResult:
        """Appends many messages of one topic out of columns, without an object for each.

        Without `queue_ids` all rows go to one queue, with rising queue offsets. All rows are
        checked before the first is stored; they are split where a segment ends. No rows put
        nothing, as an empty batch.

        Args:
            bodies: The pair (offsets, data), as in `Store.put_columns`: n + 1 rising integers, and
                bytes or a NumPy array of uint8, C-contiguous; body i is
                data[offsets[i]:offsets[i + 1]]. Or an Arrow array of binary or text
                (`__arrow_c_array__`).
            row_tags, row_keys: A text for each row, instead of tags and keys: a sequence of str, or
                an Arrow array. None and "" mean none. Several keys have blanks between them,
                or are a list.
            queue_ids: For each row one of the writer's queues.
            born_timestamps_ms: For each row, instead of born_time.
            tags, keys, properties, flag, born_time, shard_key: The same for every message.
            durability: The promise to wait for. None: that of the writer.
            timeout_s: Longest wait for the promise. None: `sync_flush_timeout_ms`.

        Raises:
            MessageRejectedError and its kin: A row that cannot be a message, offsets that do not
                rise or leave `data`, columns of different lengths. Nothing was stored.
            TypeError: An argument that is no column of its kind.
            BackpressureError, DiskFullError, StoreFailedError: No room. A note says how many rows
                were stored before.
            DurabilityTimeoutError: The rows are stored (`error.result`), but not known to be on
                disk.
            StoreClosedError: The store was closed.
        """
        from rocketstore.puts.arrays import bodies_of  # with NumPy

        same: dict[str, Any] = {
            "tags": tags,
            "keys": keys,
            "properties": properties,
            "flag": flag,
            "born_time": born_time,
            "shard_key": shard_key,
            "durability": durability,
            "timeout_s": timeout_s,
        }
        column = bodies_of(bodies)
        given = (row_tags, row_keys, queue_ids, born_timestamps_ms)
        if column.rows and all(each is None for each in given):
            return self._put_column(column.text, column.places, **same)
        columns = row_columns(same, column.rows, self._queues, *given)
        if not column.rows:
            return self.put_batch((), **same)
        return native_rows.put_columns(self, column, **columns, **same)

    def submit(
        self,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: Durability | None = None,
        expected_queue_offset: int | None = None,
        unique_id: str | None = None,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
    ) -> Ticket:
        """Appends one message and does not wait for its promise: the ticket does.

        The message has its place in the log when this returns. Arguments are those of `put`.

        Raises:
            MessageRejectedError and its kin: The message cannot be stored as it is.
            QueueOffsetMismatchError: It would not get `expected_queue_offset`. Nothing was stored.
            BackpressureError, DiskFullError, StoreFailedError: No room. Nothing was stored.
            StoreClosedError: The store was closed.
        """
        level = (
            self.durability if durability is None else durability_name(durability_level(durability))
        )
        check_promise(self._log.group.copies, level)
        result = self.put(
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            born_time=born_time,
            shard_key=shard_key,
            durability=level if self._completions.at_once else "memory",
            expected_queue_offset=expected_queue_offset,
            unique_id=unique_id,
            delay_level=delay_level,
            deliver_at=deliver_at,
            deliver_after=deliver_after,
        )
        self._log.request_flush(result.end_offset)
        return Ticket(self._completions, result, level)

    def __repr__(self) -> str:
        queues = bounded([queue.queue_id for queue in self._queues])
        return f"Writer({self.topic!r}, queues={queues}, durability={self.durability!r})"

    def __reduce__(self) -> str:
        raise TypeError(
            "a Writer belongs to an open store; open it again with "
            f"rocketstore.open({self._path!r}).writer({self.topic!r})"
        )


def row_columns(
    same: Mapping[str, Any],
    rows: int,
    queues: Sequence[QueueState],
    tags: TextRows | None,
    keys: KeyRows | None,
    queue_ids: Numbers | None,
    born_ms: Numbers | None,
) -> dict[str, Any]:
    """Columns of put_columns, checked. `same` has what is the same for all rows."""
    from rocketstore.puts.arrays import texts_of, whole_of  # with NumPy

    pairs = {"tags": tags, "keys": keys, "born_time": born_ms, "shard_key": queue_ids}
    for name, column in pairs.items():
        if column is not None and same[name] is not None:
            raise TypeError(f"{name}: for each row, or the same for all, not both")
    low, high = queues[0].queue_id, queues[-1].queue_id
    columns: dict[str, Any] = dict.fromkeys(("row_tags", "row_keys", "queue_ids", "born_ms"))
    if tags is not None:
        columns["row_tags"] = texts_of("row_tags", tags, rows, several=False)
    if keys is not None:
        columns["row_keys"] = texts_of("row_keys", keys, rows, several=True)
    if queue_ids is not None:
        columns["queue_ids"] = whole_of("queue_ids", queue_ids, rows, low, high)
    if born_ms is not None:
        most = 2**63 - 1  # the least number means none
        columns["born_ms"] = whole_of("born_timestamps_ms", born_ms, rows, -most, most)
    return columns
