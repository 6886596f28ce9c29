"""The bounds that a reader may see at one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReadView"]


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
