from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, type_check_only

from rocketstore._native.append.appender import Log
from rocketstore._native.append.put_result import PutResult
from rocketstore._native.sync.queue_positions import QueueState
from rocketstore.values.arguments import Body
from rocketstore.values.durability import Durability
from rocketstore.values.timestamps import Duration, Timestamp

@type_check_only
class Delays(Protocol):
    """Makes the delay of a put, which the writer adds to a message."""

    def delay(
        self,
        delay_level: int | None,
        deliver_at: Timestamp | None,
        deliver_after: Duration | None,
        /,
    ) -> object: ...

@type_check_only
class UniqueIds(Protocol):
    """Puts a message with an id once."""

    def put(self, topic: str, unique_id: str, append: Callable[[], PutResult], /) -> PutResult: ...

class Writer:
    """A handle for one topic: `put` appends, in one queue, round robin or by shard key."""

    def __new__(
        cls,
        log: Log,
        topic: str,
        topic_bytes: bytes,
        queues: tuple[QueueState, ...],
        *,
        properties: Mapping[str, str] | None = None,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        durability: Durability,
        timeout_ms: int,
        record_crc: bool,
        born_host: str,
        reserved: Mapping[str, str] | None,
        to_ms: Callable[[str, object], int],
        delays: Delays | None = None,
        unique_ids: UniqueIds | None = None,
    ) -> Self: ...
    @property
    def _log(self) -> Log: ...
    @property
    def _queues(self) -> tuple[QueueState, ...]: ...
    @property
    def topic(self) -> str: ...
    @property
    def durability(self) -> Durability: ...
    def put(
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
        timeout_s: Duration | None = None,
        expected_queue_offset: int | None = None,
        unique_id: str | None = None,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
    ) -> PutResult:
        """Appends one message and waits for the promise (`durability`, default the writer's).

        `tags` is one tag (no "||" in it, no blanks around it), `keys` one key or several without blanks in
        them; both are the writer's when they are not given. `timeout_s`: how long to wait for the promise;
        default `sync_flush_timeout_ms`. `delay_level`: consumers see the message after the delay of this level
        of `delay_levels`, the highest at most; 0 is no delay. Until then its place is in
        SCHEDULE_TOPIC_XXXX, as the result says, so that it goes with no `expected_queue_offset` and no
        `unique_id`.

        Raises:
            MessageRejectedError and its kin: the message cannot be stored as it is.
            BackpressureError, DiskFullError: no room; nothing was stored.
            DurabilityTimeoutError: stored (`error.result`), but not known to be on disk.
            StoreClosedError, StoreFailedError, StoreReadOnlyError.
        """

    def _put_plain(
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
        timeout_s: Duration | None = None,
    ) -> PutResult: ...
    def put_batch(
        self,
        bodies: Iterable[Body],
        *,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
        chunk: bool = False,
    ) -> PutResult:
        """Appends several bodies to one queue, back to back in one segment, and waits once.

        After the death of the process all of them are there or none; an unacknowledged batch may
        survive a power cut in part, from its beginning (D-37). With `chunk` it is put in
        parts where it does not fit into what is left of a segment, each all or none: the result has
        the places of all messages, and a note of an error says how many were stored.

        Raises:
            MessageRejectedError and its kin: a body cannot be stored, or there is none.
            BackpressureError, DiskFullError, StoreFailedError: no room; nothing was stored, or with
                `chunk` what the note says.
            DurabilityTimeoutError: stored (`error.result`), but not known to be on disk.
            StoreClosedError: the store was closed.
        """

    def _put_column(
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
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
    ) -> PutResult: ...
