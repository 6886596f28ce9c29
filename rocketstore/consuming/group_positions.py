"""The stored positions of one consumer's group: claimed, committed, given back."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NoReturn

from rocketstore.errors import OffsetOutOfRangeError, RocketStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketstore.consuming.consumer_offsets import ConsumerOffsets
    from rocketstore.consuming.cursors import QueueCursors
    from rocketstore.log.read.reader import Reader

__all__ = ["GroupPositions"]


class GroupPositions:
    """What a consumer stores for its group; `owner` is that consumer, which holds the claim."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        topic: str,
        group: str,
        owner: object,
        wait_flushed: Callable[[int], object] | None,
        queue_ids: tuple[int, ...] | None = None,
    ) -> None:
        """Claims the group for `owner`: some queues of the topic, or all (None).

        Raises:
            GroupClaimedError: another consumer holds it.
        """
        self._offsets = offsets
        self._topic = topic
        self._group = group
        self.key = f"{topic}@{group}"
        self._owner = weakref.ref(owner)  # a consumer that nobody keeps loses its claim
        self._wait_flushed = wait_flushed or _cannot_flush
        offsets.claim(topic, group, owner, queue_ids)
        offsets.warn_of(topic, group)
        #: Queue offsets by queue id, as they were stored when the consumer was made.
        self.stored = offsets.get(topic, group)

    def commit(
        self,
        cursors: QueueCursors,
        reader: Reader,
        offsets: Mapping[int, int] | None = None,
        *,
        sync: bool = True,
    ) -> None:
        """Stores these offsets, by default the positions of the consumer, as far as they changed,
        after a flush of all that they imply. With `sync` those, too, that may be stored without a
        sync: the promise is about each of them.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the end of its queue.
            StoreReadOnlyError, StoreClosedError, DurabilityTimeoutError: nothing is stored.
        """
        self._offsets.check_writable()
        changed: dict[int, int] = {}
        physical_end, again = 0, sync and self._offsets.unsynced
        for cursor in cursors:
            if offsets is None:
                position = cursors.handed(cursor)
            elif cursor.queue_id in offsets:
                position = offsets[cursor.queue_id]
            else:
                continue
            if again or position != cursor.committed:
                changed[cursor.queue_id] = position
                implied = self._implied_end(reader, cursor.queue_id, position)
                physical_end = max(physical_end, implied)
                cursor.committed = None  # not known, if a signal's handler raises, until it is done
        if changed:
            self._offsets.commit(
                self._topic,
                self._group,
                changed,
                physical_end,
                self._wait_flushed,
                self._owner(),
                sync=sync,
            )
        for cursor in cursors:
            cursor.committed = changed.get(cursor.queue_id, cursor.committed)

    @property
    def now(self) -> dict[int, int]:
        """Queue offsets by queue id, as they are stored now."""
        return self._offsets.get(self._topic, self._group)

    def check(self, reader: Reader, offsets: Mapping[int, int]) -> None:
        """Before a transaction stores these offsets.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the end of its queue.
            StoreReadOnlyError: the store stores none.
        """
        self._offsets.check_writable()
        for queue_id, position in offsets.items():
            self._implied_end(reader, queue_id, position)

    def release(self) -> None:
        """Gives the claim back."""
        self._offsets.release(self._topic, self._group, self._owner())

    def _implied_end(self, reader: Reader, queue_id: int, position: int) -> int:
        """Physical end of all records below a position (D-17)."""
        if position == 0:
            return 0
        end = reader.unit_end(self._topic, queue_id, position - 1)
        if end is not None:
            return end
        minimum, maximum = reader.bounds(self._topic, queue_id)
        if position > maximum:
            error = OffsetOutOfRangeError(position, minimum, maximum)
            error.topic, error.queue_id = self._topic, queue_id
            error.add_note(
                f"nothing is stored for group {self._group!r}; seek() to an offset that exists, or "
                "to 'latest'"
            )
            raise error
        # The position has no record: the visible end covers all that it may imply.
        return reader.source.visible()


def _cannot_flush(physical_end: int) -> NoReturn:
    raise RocketStoreError(f"nothing here can flush the log up to {physical_end}")
