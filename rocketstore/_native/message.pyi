import datetime
from typing import final

from typing_extensions import Buffer

@final
class Message:
    """A message as it stands in the log. Immutable; its file stays mapped while it lives.

    `body` is a copy, `body_view` the bytes themselves. Two messages are equal when their records are.
    `bytes(message)` is the record, which `Message.from_bytes` reads back; pickles hold it, too.
    """

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    @staticmethod
    def from_bytes(record: Buffer, *, verify: bool = True) -> Message:
        """The message of one whole record; its checksums are tested unless `verify` is False.

        Raises:
            CorruptRecordError: not a record, or bytes are left over.
        """

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the record in the log."""

    @property
    def body(self) -> bytes: ...
    @property
    def body_view(self) -> memoryview:
        """The body without a copy, read-only; its file stays mapped while the view lives."""

    @property
    def properties(self) -> dict[str, str]:
        """All properties but the record's checksum; a new dict each time."""

    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def unique_id(self) -> str | None:
        """What the sender's client gave the message, property UNIQ_KEY."""

    @property
    def tags_code(self) -> int:
        """Java's hash of `tags`, 0 without: what a consume queue unit holds to filter by."""

    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp_ms(self) -> int: ...
    @property
    def born_time(self) -> datetime.datetime:
        """Aware UTC. OverflowError when a damaged record's time is outside the years 1 to 9999."""

    @property
    def born_host(self) -> str:
        """The sender, as `1.2.3.4:5678` or `[::1]:5678`."""

    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def store_time(self) -> datetime.datetime:
        """Aware UTC. OverflowError when a damaged record's time is outside the years 1 to 9999."""

    @property
    def store_host(self) -> str: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id: store host and physical offset in hexadecimal."""

    def __bytes__(self) -> bytes: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def restore_message(record: bytes) -> Message: ...
