"""The rows of a scan as consumers are given messages. An inner batch of RocketMQ 5 is one record
and several of them (format.md 4.2); prepared and rolled back records are in the log, and no
consumer is given them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rocketstore._native.format.column_scanner import ColumnScanner
from rocketstore._native.format.scanner import read_message
from rocketstore.columns import Columns, columns_of
from rocketstore.errors import CorruptRecordError, DecompressionError, OffsetOutOfRangeError
from rocketstore.filters.sql import sql_filter
from rocketstore.log.read.batch_reader import count_of, messages_of
from rocketstore.log.read.column_reader import TRIMMED, SegmentFiles
from rocketstore.log.read.fetch_result import OFFSET_TOO_SMALL
from rocketstore.values.system_flags import BATCH_BITS

if TYPE_CHECKING:
    from rocketstore.message import Message
    from rocketstore.scanning.scan import Scan

__all__ = ["NEEDED", "message_counts", "messages_in"]

logger = logging.getLogger(__name__)

#: Columns that a scan needs for it.
NEEDED: Final = ("sys_flag", "physical_offset")
#: Of the transaction types this bit is in prepared (4) and rolled back (12), not in committed (8).
NOT_DELIVERED: Final = 0x4
#: Of messages in a chunk that was taken apart: bodies may have been compressed a thousandfold.
CHUNK_BYTES: Final = 16 << 20
CHUNK_ROWS: Final = 8192


def messages_in(scan: Scan) -> Iterator[tuple[Columns, Any]]:
    """The chunks of a scan, and which of their rows are messages: a boolean array, or None for all
    of them.

    There is a row for each message of an inner batch: queue offset, flag, body and properties of
    its own, all else from the record, and neither compressed nor marked as a batch. Chunks without
    one are those of the scan.

    Raises:
        CorruptRecordError: also where a batch is none, unless the scan skips damage; then it is
            logged.
        OffsetOutOfRangeError: as the scan, also where a segment with a batch was trimmed while a
            thread read ahead.
        DecompressionError, ModuleNotFoundError: a batch cannot be unpacked.
    """
    # The scan's own files: batches are taken out of what it has just mapped or fetched.
    with closing(scan._files()) as files:
        for columns in scan._read(files):
            # One look at all flags together: for nearly every chunk it is the last one.
            bits = int(np.bitwise_or.reduce(columns["sys_flag"]))
            if bits & BATCH_BITS == BATCH_BITS:
                for made in _made_again(scan, columns, _messages(scan, columns, files)):
                    yield made, _delivered(made)
            else:
                yield columns, _delivered(columns) if bits & NOT_DELIVERED else None


def message_counts(columns: Columns, record_at: Callable[[int], Message | None]) -> Any:
    """How many messages each record of a chunk holds, as the inner batches say;
    none are packed out. The chunk is the scan's, with the columns NEEDED.

    Args:
        record_at: The record at a physical offset, asked for batches alone; None counts as one
            message.
    """
    flags = columns["sys_flag"]
    counts = (flags & NOT_DELIVERED == 0).astype(np.int64)
    for row in np.flatnonzero(flags & BATCH_BITS == BATCH_BITS).tolist():
        record = record_at(int(columns["physical_offset"][row]))
        counts[row] *= 1 if record is None else count_of(record)
    return counts


def _delivered(columns: Columns) -> Any:
    hidden = columns["sys_flag"] & NOT_DELIVERED
    return hidden == 0 if hidden.any() else None


def _messages(scan: Scan, columns: Columns, files: SegmentFiles) -> Iterator[Message]:
    """What the records of a chunk mean, in order, without those of other tags and those that
    `where` does not take."""
    wanted, where = scan.filter.tags, scan.filter.where
    matches = None if where is None else sql_filter(where).matches
    for physical_offset in columns["physical_offset"].tolist():
        file = files.at(physical_offset)
        if file is None:  # of a chunk that another thread read ahead: no mapping here has held it
            _lose(scan, files, physical_offset, columns.end_offset)
            return
        # What was asked to be tested, the scan has tested.
        record = read_message(file, physical_offset - file.start_offset, file.size, verify=0)
        try:
            messages = messages_of(record, count_of(record))
        except (CorruptRecordError, DecompressionError) as error:
            if scan.on_damage != "skip":
                raise
            logger.warning("%s: an inner batch is left out: %s", scan.path, error)
            continue
        for message in messages:
            if wanted is not None and message.tags not in wanted:
                continue
            if matches is None or matches(message.properties):
                yield message


def _lose(scan: Scan, files: SegmentFiles, begin: int, end: int) -> None:
    """As the walk of a scan does where no file is (any more)."""
    following, reason = files.gap(begin)
    if scan.on_damage == "skip":
        scan.report.lose(begin, end, reason)
    elif following is not None and reason == TRIMMED:
        raise OffsetOutOfRangeError(begin, following, scan.limit_offset, OFFSET_TOO_SMALL)
    else:
        raise CorruptRecordError(begin, reason)


def _made_again(scan: Scan, columns: Columns, messages: Iterator[Message]) -> Iterator[Columns]:
    """Messages as columns, some at a time."""
    scanner = ColumnScanner(scan.columns, room=CHUNK_ROWS, verify=0)
    some: list[Message] = []
    size = 0

    def made() -> Columns:
        arrays = columns_of(scanner.take(some), scan.columns)
        return Columns(arrays, len(some), columns.begin_offset, columns.end_offset)

    for message in messages:
        some.append(message)
        size += message.size
        if len(some) == CHUNK_ROWS or size >= CHUNK_BYTES:
            yield made()
            some, size = [], 0
    if some:
        yield made()
