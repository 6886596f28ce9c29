from collections.abc import Callable, Iterable
from typing import Any, Self, final

from rocketstore._native.format.filter_program import FilterProgram
from rocketstore._native.format.message import Message
from rocketstore._native.os.mapped_file import MappedFile

NUMBERS: dict[str, str]
CODED: tuple[str, ...]
TEXTS: tuple[str, ...]

@final
class ColumnScanner:
    """Reads parts of log files as columns. One thread at a time."""

    def __new__(
        cls,
        names: Iterable[str],
        *,
        room: int,
        verify: int,
        accept: Callable[[str], bool | Iterable[int]] | None = None,
        tags: Iterable[bytes] | None = None,
        where: FilterProgram | None = None,
        from_ms: int = ...,
        to_ms: int = ...,
    ) -> Self:
        """`room`: rows of one read at most. `accept` is asked once for each topic: False takes none of its
        records, True all, else those of these queues. `tags`: records with one of these; None takes all.
        `where`: records that it takes; None takes all.
        Store times are [from_ms, to_ms). `verify`: VERIFY_* bits, for every record, taken or not."""

    def read(
        self,
        file: MappedFile,
        from_position: int,
        to_position: int,
        limit: int,
        byte_limit: int,
    ) -> dict[str, Any]:
        """Rows of records that begin in [from_position, to_position); no byte at or after `limit` is
        looked at. Ends before `to_position` when the rows, or `byte_limit` bytes of records, are full,
        and where no record is; `status` and `end_position` say so.

        Raises:
            ReadFailedError: the disk does not give the bytes back.
        """

    def fitting(self, messages: list[Message], byte_limit: int) -> int:
        """How many of the first messages `take` has room for: rows, and bytes of records. At least one."""

    def take(self, messages: list[Message]) -> dict[str, Any]:
        """A row for each message, in their order.

        Raises:
            ReadFailedError: the disk does not give the bytes back.
            ValueError: more than `fitting` says, one that the scanner was made to leave out, or with the
                column body_view.
        """

    @property
    def rows(self) -> int:
        """Of the last read."""

    @property
    def row_bytes(self) -> int:
        """Of the records of these rows."""

    @property
    def records(self) -> int:
        """Looked at by the last read, rows or not."""

    @property
    def record_crc_mismatches(self) -> int:
        """Of the last read, where they are allowed."""

    @property
    def end_position(self) -> int: ...
    @property
    def status(self) -> str:
        """One of "full", "end", "blank", "zeros", or the first rule that is broken at `end_position`."""
