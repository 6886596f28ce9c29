"""Messages of a consumer as columns: what `poll_columns` keeps between calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from rocketstore._native.format.column_scanner import ColumnScanner
from rocketstore.columns import COLUMNS, Columns, column_names, columns_of
from rocketstore.values.arguments import whole_number

if TYPE_CHECKING:
    from rocketstore.consuming.cursors import QueueCursors

__all__ = ["POLL_ROWS_MAX", "ColumnPoll", "column_poll"]

POLL_ROWS_MAX: Final = 65536
#: Of records in one poll: more would not fit into the offsets of a column.
POLL_BYTES_MAX: Final = 1 << 30
#: Bodies that stay in the file are of a scan, which reads one file after the other.
KNOWN: Final = tuple(name for name in COLUMNS if name != "body_view")


def column_poll(kept: ColumnPoll | None, columns: Iterable[str] | None, rows: int) -> ColumnPoll:
    """`kept`, when it is for the same columns and rows, else a new one.

    Raises:
        ValueError, TypeError: columns that are not there, or too many rows.
    """
    names = column_names(columns, KNOWN)
    rows = whole_number("max_messages", rows, 1, POLL_ROWS_MAX)
    if kept is not None and (kept.names, kept.rows) == (names, rows):
        return kept
    return ColumnPoll(names, rows)


class ColumnPoll:
    """Memory for the columns of up to `rows` messages, used again by each poll that wants the
    same."""

    def __init__(self, names: tuple[str, ...], rows: int) -> None:
        self.names = names
        self.rows = rows
        self._scanner = ColumnScanner(names, room=rows, verify=0)

    def hand_out(self, cursors: QueueCursors) -> Columns:
        """What was fetched, as far as there is room. Nothing counts as handed out when it cannot be
        read."""
        messages = cursors.fetched()
        del messages[self._scanner.fitting(messages, POLL_BYTES_MAX) :]
        arrays = columns_of(self._scanner.take(messages), self.names)
        deque(islice(cursors.left, len(messages)), maxlen=0)
        cursors.let_go()
        if not messages:
            return Columns(arrays, 0, 0, 0)
        last = messages[-1]
        begin, end = messages[0].physical_offset, last.physical_offset + last.size
        return Columns(arrays, len(messages), begin, end)
