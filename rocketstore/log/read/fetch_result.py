"""The result of one fetch from a queue, with RocketMQ's read statuses (format 16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketstore._native.format.message import Message

__all__ = [
    "FOUND",
    "MESSAGE_WAS_REMOVING",
    "NO_MATCHED_LOGIC_QUEUE",
    "NO_MATCHED_MESSAGE",
    "NO_MESSAGE_IN_QUEUE",
    "OFFSET_FOUND_NULL",
    "OFFSET_OVERFLOW_BADLY",
    "OFFSET_OVERFLOW_ONE",
    "OFFSET_TOO_SMALL",
    "UNPACKED_BYTES",
    "BatchFetch",
    "Fetch",
    "ReadView",
]


FOUND = "FOUND"
NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"

#: Messages taken out of inner batches, bytes, after which a fetch or a poll ends: a body may have
#: been compressed a thousandfold.
UNPACKED_BYTES: Final = 8 << 20


class Fetch(NamedTuple):
    """The result of one fetch; `next_offset` is where to fetch next, with every status."""

    messages: list[Message]
    next_offset: int
    status: str


class BatchFetch(Fetch):
    """The same from a batch queue. `unpacked`: size of all messages taken out of records for it, also
    of those that it does not have."""

    unpacked: int = 0


# ---- The bounds that a reader may see at one moment ----


@dataclass(frozen=True, slots=True)
class ReadView:
    """The bounds of one moment, physical offsets. Each change of a bound gets a new epoch."""

    epoch: int
    #: Least offset that the log keeps.
    minimum: int
    #: High watermark: readers may see records below.
    visible: int
    #: Units of records below are complete; None if the writer does not say so.
    dispatched: int | None
