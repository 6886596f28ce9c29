"""Which consumer of this process owns a queue of a group."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from rocketstore.errors import RocketStoreError
from rocketstore.values.public import public

__all__ = ["Claim", "GroupClaimedError"]


@public
class GroupClaimedError(RocketStoreError):
    """A group has a live consumer of this topic and queue; two would overwrite each other's
    offsets. `holder` says which; a pickle of an older release does not."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(self, topic: str, group: str, holder: str = "another consumer") -> None:
        super().__init__(topic, group, holder)
        self.topic = topic
        self.group = group
        self.holder = holder

    def __str__(self) -> str:
        return (
            f"group {self.group!r} already has a live consumer of topic {self.topic!r}: "
            f"{self.holder}; close that one first, give each consumer a queue_id of its own, or "
            "use another group"
        )


class Claim(NamedTuple):
    """A consumer's right to a queue of a group, or to all queues (None)."""

    queue_id: int | None
    owner: weakref.ref[object]
    thread: str

    def meets(self, queue_id: int | None) -> bool:
        return self.queue_id is None or queue_id is None or self.queue_id == queue_id

    def __str__(self) -> str:
        what = "all queues" if self.queue_id is None else f"queue {self.queue_id}"
        return f"one of {what}, made by thread {self.thread!r}"
