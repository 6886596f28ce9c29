"""Writer: the handle that puts messages into one topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore._native import writer as native
from rocketstore._native.put_result import durability_level, durability_name
from rocketstore.column_arguments import bytes_of, offsets_of
from rocketstore.errors import MessageRejectedError
from rocketstore.tickets import Completions, Ticket

if TYPE_CHECKING:
    from rocketstore._native.put_result import PutResult
    from rocketstore.arguments import Body
    from rocketstore.timestamps import Timestamp

__all__ = ["RESERVED_PROPERTIES", "Ticket", "Writer"]

_OWN_ARGUMENT = "use the argument of put instead"
_SERVICE = "it belongs to a service that is not part of put; put_message takes it as it is"

#: Property names that `put` refuses, and what to do instead (format.md 19).
RESERVED_PROPERTIES: Mapping[str, str] = {
    "TAGS": _OWN_ARGUMENT + ": tags=",
    "KEYS": _OWN_ARGUMENT + ": keys=",
    "__SHARDINGKEY": _OWN_ARGUMENT + ": shard_key=",
    "WAIT": _OWN_ARGUMENT + ": durability=",
    "__CRC32#": "the store writes it itself (record_crc)",
    **dict.fromkeys(
        (
            "DELAY",
            "REAL_TOPIC",
            "REAL_QID",
            "TRAN_MSG",
            "PGROUP",
            "TRAN_PREPARED_QUEUE_OFFSET",
            "TRANSACTION_CHECK_TIMES",
            "__transactionId__",
            "TIMER_DELIVER_MS",
            "TIMER_DELAY_MS",
            "TIMER_DELAY_SEC",
            "TIMER_OUT_MS",
            "TIMER_ENQUEUE_MS",
            "TIMER_DEQUEUE_MS",
            "TIMER_ROLL_TIMES",
            "TIMER_DEL_UNIQKEY",
            "TIMER_DELAY_LEVEL",
            "INNER_NUM",
            "INNER_BASE",
            "INNER_MULTI_DISPATCH",
            "INNER_MULTI_QUEUE_OFFSET",
            "DUP_INFO",
            "MIN_OFFSET",
            "MAX_OFFSET",
        ),
        _SERVICE,
    ),
}


class Writer(native.Writer):
    """Puts messages into one topic; made by `store.writer(topic, …)`, used from any thread.

    With one queue (`queue_id=`) every message goes there. With several (`queues=`) a `shard_key` picks
    the queue (Java's string hash modulo their number), else they take turns.
    """

    __slots__ = ("_completions", "_path")

    _completions: Completions
    _path: str

    def bind(self, completions: Completions, path: str) -> Writer:
        """What submit and repr need; called once by the store."""
        self._completions = completions
        self._path = path
        return self

    def put_columns(
        self,
        data: Any,
        offsets: Any,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: str | None = None,
        timeout_s: float | None = None,
    ) -> PutResult:
        """Appends many messages without a Python object for each.

        Args:
            data: bodies back to back: bytes-like, or a NumPy array of uint8, C-contiguous.
            offsets: n + 1 rising integers; body i is data[offsets[i]:offsets[i + 1]]. Arrow's layout.
            tags, keys, properties, flag, born_time, shard_key: the same for every message.

        All rows go to one queue with rising queue offsets, split where a segment ends. An error names
        how many rows were stored before it.

        Raises:
            MessageRejectedError: offsets that do not rise or leave `data`, data of items that are no
                bytes; nothing was stored.
        """
        body, places = bytes_of("data", data), offsets_of("offsets", offsets)
        if places[0] < 0 or places[-1] > body.size or np.any(places[1:] < places[:-1]):
            raise MessageRejectedError(
                f"offsets: must rise from 0 or more to at most the {body.size} bytes of data"
            )
        if places.size == 1:
            raise MessageRejectedError("offsets: an empty column; n messages need n + 1 offsets")
        return self.put_column(
            body,
            places,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            born_time=born_time,
            shard_key=shard_key,
            durability=durability,
            timeout_s=timeout_s,
        )

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
        durability: str | None = None,
    ) -> Ticket:
        """Appends now, promises later: a ticket with done(), result(timeout), add_done_callback(),
        future(). The message has its place in the log when this returns."""
        level = (
            self.durability if durability is None else durability_name(durability_level(durability))
        )
        result = self.put(
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            born_time=born_time,
            shard_key=shard_key,
            durability="memory",
        )
        self.log.request_flush(result.end_offset)
        self.note_level(result, level)
        return Ticket(self._completions, result, level)

    def __repr__(self) -> str:
        queues = [queue.queue_id for queue in self.queues]
        return f"Writer({self.topic!r}, queues={queues}, durability={self.durability!r})"

    def __reduce__(self) -> str:
        raise TypeError(
            "a Writer belongs to an open store; open it again with "
            f"rocketstore.open({self._path!r}).writer({self.topic!r})"
        )


#: The type of the function that turns a born time into milliseconds.
ToMilliseconds = Callable[[str, object], int]
