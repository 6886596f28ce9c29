import datetime
from typing import final

from typing_extensions import Buffer

@final
class Message:
    """A message as it lies in the log. Immutable; its file stays mapped while it lives.

    `body` is a copy, `body_view` the bytes themselves. Two messages are equal when their records
    are. `bytes(message)` is the record, which `Message.from_bytes` reads back; pickles hold it,
    too.
    """

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    @staticmethod
    def from_bytes(record: Buffer, *, verify: bool = True) -> Message:
        """The message of one whole record; its checksums are tested unless `verify` is False.

        Raises:
            CorruptRecordError: not a record, or bytes are left over.
        """

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def queue_id(self) -> int:
        """Number of the queue within the topic."""

    @property
    def queue_offset(self) -> int:
        """Number of the message within its queue."""

    @property
    def physical_offset(self) -> int:
        """Byte address of the record in the log."""

    @property
    def size(self) -> int:
        """Bytes of the record in the log."""

    @property
    def body(self) -> bytes:
        """The body, copied."""

    @property
    def body_view(self) -> memoryview:
        """The body without a copy, read-only; its file stays mapped while the view lives."""

    @property
    def properties(self) -> dict[str, str]:
        """All properties but the record's checksum; a new dict each time."""

    @property
    def tags(self) -> str | None:
        """The tag, or None."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, one text each; an empty tuple for a message without keys."""

    @property
    def unique_id(self) -> str | None:
        """What the sender's client gave the message, property UNIQ_KEY."""

    @property
    def tags_code(self) -> int:
        """Java's hash of `tags`, 0 without: what a consume queue unit holds to filter by."""

    @property
    def flag(self) -> int:
        """A number that the sender gave; the store does not read it."""

    @property
    def sys_flag(self) -> int:
        """Bits of RocketMQ: compression, transaction, kind of addresses, batch (format.md 2.2)."""

    @property
    def born_timestamp_ms(self) -> int:
        """When the sender made the message, in milliseconds since 1970."""

    @property
    def born_time(self) -> datetime.datetime:
        """Aware UTC. OverflowError when a damaged record's time is outside the years 1 to 9999."""

    @property
    def due_time(self) -> datetime.datetime | None:
        """When a message that waits is due, aware UTC; None for all others.

        A message of SCHEDULE_TOPIC_XXXX has it where it was read from its queue, whose unit holds the
        time."""

    def _due_at(self, due_ms: int) -> None: ...
    @property
    def born_host(self) -> str:
        """The sender, as `1.2.3.4:5678` or `[::1]:5678`."""

    @property
    def store_timestamp_ms(self) -> int:
        """When the store stored it, in milliseconds since 1970."""

    @property
    def store_time(self) -> datetime.datetime:
        """Aware UTC. OverflowError when a damaged record's time is outside the years 1 to 9999."""

    @property
    def store_host(self) -> str:
        """Address of the store, as `1.2.3.4:5678` or `[::1]:5678`."""

    @property
    def reconsume_times(self) -> int:
        """How often RocketMQ has delivered the message again."""

    @property
    def prepared_transaction_offset(self) -> int:
        """Physical offset of a transaction's first half; 0 without one."""

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id: store host and physical offset in hexadecimal."""

    def __bytes__(self) -> bytes: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def restore_message(record: bytes) -> Message: ...
