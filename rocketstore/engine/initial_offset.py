"""The queue offset that the first message of a queue gets after an open (D-17)."""

from __future__ import annotations

import logging

from rocketstore._native.sync.positions import Positions
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.consuming.offset_tables import BELIEVED_MAX
from rocketstore.errors import BackpressureError
from rocketstore.log.dispatch.dispatcher import Dispatcher
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.units import GAP_UNITS_MAX

logger = logging.getLogger(__name__)

__all__ = ["InitialOffset"]


class InitialOffset:
    """Chooses the first queue offset: after the records that the log held at the open, after the
    queue's units and after every stored group offset.

    `recovered`: end of the log at the open. A record below it without a unit may be of any
    queue."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        positions: Positions,
        queues: ConsumeQueueStore,
        offsets: ConsumerOffsets,
        recovered: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._positions = positions
        self._queues = queues
        self._offsets = offsets
        self._recovered = recovered

    def __call__(self, topic: str, queue_id: int) -> int:
        """Raises:
        BackpressureError: records from before the open have no units yet; the next put tries again.
        """
        self._dispatcher.catch_up(self._positions.visible)
        reached = self._positions.dispatched
        if reached < self._recovered:
            _, why = self._dispatcher.stuck or (reached, "this thread dispatches already")
            raise BackpressureError(
                f"{topic}/{queue_id}: its next offset is not known before all records up to "
                f"{self._recovered} are in their queues; stuck at {reached}: {why}"
            )
        units = self._queues.end_for_puts(topic, queue_id)
        stored = self._offsets.highest(topic, queue_id)
        if stored > BELIEVED_MAX or (
            stored - units > GAP_UNITS_MAX and self._has_files(topic, queue_id)
        ):
            # After such a gap messages would be in no queue (`check_gap`).
            logger.warning(
                "%s/%d: a group's stored offset, %d, is not believed: the queue ends at %d",
                topic, queue_id, stored, units,
            )  # fmt: skip
            return units
        return max(units, stored)

    def _has_files(self, topic: str, queue_id: int) -> bool:
        """A queue without files may begin at any offset."""
        queue = self._queues.get(topic, queue_id)
        return queue is not None and bool(queue.files)
