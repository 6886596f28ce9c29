"""The bounds that a reader may see at one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReadView"]


@dataclass(frozen=True, slots=True)
class ReadView:
    """How far the log may be believed at one moment; each change has an epoch of its own."""

    epoch: int
    minimum: int
    visible: int
    # Queue units of records below are complete; None when nobody says so and the files are
    # followed.
    dispatched: int | None
