"""How many units the gaps of queues may have: the bytes of a store decide what its open costs."""

from __future__ import annotations

from typing import Final

from rocketstore.log.queues.units import UnitRefusedError

__all__ = ["GapBudget"]

#: Bytes of log for each lost record that a gap may mean: a fourth of the smallest record, as
#: three fourths of a log may be lost.
BYTES_OF_A_LOSS: Final = 23
#: Units that the gaps of a short log may have, a count.
GAP_UNITS_LEAST: Final = 4096


class GapBudget:
    """The gaps of all queues together have no more units than a log of `log_bytes` can have lost
    records. All that dispatches in one open takes from one budget."""

    def __init__(self, log_bytes: int) -> None:
        self.left = GAP_UNITS_LEAST + log_bytes // BYTES_OF_A_LOSS
        #: Units of the gaps that were taken, a count.
        self.taken = 0

    def take(self, queue: str, end: int, queue_offset: int, *, believed: bool = True) -> None:
        """Takes the gap between the end of a queue and the offset of its next record.

        Raises UnitRefusedError where the log cannot have lost that many records, or the caller does
        not believe the record. Then nothing is taken.
        """
        gap = max(queue_offset - end, 0)
        if gap > self.left or (gap and not believed):
            raise UnitRefusedError(
                f"{queue}: {queue_offset} is too far behind its end, {end}: the log cannot have "
                "lost so many records"
            )
        self.left -= gap
        self.taken += gap
