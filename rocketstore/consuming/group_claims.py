"""Which consumer of this process owns a queue of a group."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from rocketstore.errors import RocketStoreError
from rocketstore.values.plural import bounded
from rocketstore.values.public import public

__all__ = ["Claim", "GroupClaimedError"]


@public
class GroupClaimedError(RocketStoreError):
    """A group has a live consumer of this topic and queue; two would overwrite each other's
    offsets. `holder` says which."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(self, topic: str, group: str, holder: str = "another consumer") -> None:
        super().__init__(topic, group, holder)
        self.topic = topic
        self.group = group
        self.holder = holder

    def __str__(self) -> str:
        return (
            f"group {self.group!r} already has a live consumer of topic {self.topic!r}: "
            f"{self.holder}; close that one first, give each consumer queues of its own, or "
            "use another group"
        )


class Claim(NamedTuple):
    """A consumer's right to some queues of a group, or to all queues (None)."""

    queue_ids: tuple[int, ...] | None
    owner: weakref.ref[object]
    made_by: str

    def meets(self, queue_ids: tuple[int, ...] | None) -> bool:
        return (
            self.queue_ids is None
            or queue_ids is None
            or not set(self.queue_ids).isdisjoint(queue_ids)
        )

    def __str__(self) -> str:
        what = "all queues"
        if self.queue_ids is not None:
            one = len(self.queue_ids) == 1
            what = f"queue {self.queue_ids[0]}" if one else f"queues {bounded([*self.queue_ids])}"
        return f"one of {what}, made by {self.made_by}"
