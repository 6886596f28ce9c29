from collections.abc import Sequence
from datetime import datetime
from typing import final

from rocketstore.values.durability import Durability

def durability_name(level: int) -> Durability: ...
def durability_level(name: object) -> int: ...
def restore_put_result(
    physical_offset: int,
    end_offset: int,
    queue_id: int,
    queue_offset: int,
    store_timestamp_ms: int,
    count: int,
    level: int,
    store_host: bytes,
    offsets: bytes | None,
    rows: bytes | None = None,
    ids: bytes | None = None,
    duplicate: bool = False,
    due_ms: int = 0,
    id: str | None = None,
) -> PutResult: ...
def as_waiting(result: PutResult, delay: object, unique_id: str | None) -> PutResult: ...
def as_met(results: list[PutResult], level: int) -> None: ...
def as_duplicate(result: PutResult) -> PutResult: ...

@final
class PutResult:
    """Where a message (or the `count` messages of a batch) went, and which promise was met.

    `physical_offset` is the byte address of the record in the log; `end_offset` is the first byte
    after it, which `store.wait_flushed` takes. `queue_id` and `queue_offset` are its queue and its
    number in it, `store_timestamp_ms` is the time at which the store stored it. For a batch they
    are those of its first message; `physical_offsets`, `queue_offsets` and `queue_ids` give all of
    them, in the order in which they were given.

    `id` is the unique id of a message, by which `store.delayed` cancels one that waits; None without
    one. Of a message that waits, the place is where it waits.
    """

    @property
    def physical_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def id(self) -> str | None: ...
    @property
    def due_time(self) -> datetime | None:
        """When a delayed message is delivered; None of a message that does not wait."""

    @property
    def duplicate(self) -> bool:
        """Whether the put had the `unique_id` of a message that was there, which this is about: nothing was stored."""
    @property
    def size(self) -> int:
        """Bytes of the log from the first to the last byte of the record, or of the whole batch."""

    @property
    def durability(self) -> Durability:
        """ "memory", "os", "disk" or "replicas(n)": the promise that was met when the call returned."""

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id: store host and physical offset in hexadecimal; "" of an
        empty batch."""

    @property
    def physical_offsets(self) -> list[int]:
        """Byte address of each message of the batch."""

    @property
    def queue_offsets(self) -> Sequence[int]:
        """Number of each message in its queue.

        They are consecutive, unless there were several queues, or rows of a column went to two
        segments and another writer put a message in between.
        """

    @property
    def queue_ids(self) -> list[int]:
        """Queue of each message of the batch."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def nothing_put(durability: str, queue_id: int = 0) -> PutResult: ...
