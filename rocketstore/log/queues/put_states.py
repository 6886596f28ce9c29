"""The queues that puts go to: next queue offsets, and what was put since the store was opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rocketstore._native.sync.queue_positions import QueueState
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import MessageRejectedError
from rocketstore.log.layout.paths import check_topic, is_safe_name
from rocketstore.log.queues.multi_dispatch import LIGHT_PREFIX, is_multi_dispatched

__all__ = ["PutStates"]

MAX_LISTED = 256


class PutStates:
    """(topic, queue id) to QueueState, made at the first use. Only the appender changes a state."""

    def __init__(
        self,
        next_offset: Callable[[str, int], int],
        *,
        wide_topics: bool,
        topics: Callable[[], Iterable[str]] = tuple,
        max_light_queues: int = 20_000,
    ) -> None:
        """`topics` returns the topics that have queues in the store."""
        self._next_offset = next_offset
        self._wide_topics = wide_topics
        self._topics = topics
        self._max_light_queues = max_light_queues
        #: Light queues of the store; None until the first use.
        self._light: set[str] | None = None
        #: Light queues that running puts would add: the next offset before, and how many such puts.
        self._coming: dict[str, tuple[int, int]] = {}
        self._lock = SignalSafeLock("the queue states of puts")
        self._states: dict[tuple[str, int], QueueState] = {}

    def check_topic(self, topic: str) -> bytes:
        """The topic's bytes, or InvalidTopicError."""
        return check_topic(topic, wide=self._wide_topics)

    def state(self, topic: str, queue_id: int) -> QueueState:
        """The state of one queue; its next offset comes from what the store holds."""
        key = (topic, queue_id)
        found = self._states.get(key)
        if found is not None:
            return found
        with self._lock():
            found = self._states.get(key)
            if found is None:
                next_offset = self._next_offset(topic, queue_id)
                # RocketMQ checks no name of a light queue, and no record has one as its topic.
                light = topic.startswith(LIGHT_PREFIX) and is_safe_name(topic)
                raw = topic.encode() if light else self.check_topic(topic)
                made = QueueState(topic, raw, queue_id, next_offset)
                # A put of a signal's handler may have made one meanwhile, and have used it.
                found = self._states.setdefault(key, made)
            return found

    def listed(
        self, topic: str, queue_id: int, properties: Mapping[str, str], *, light: bool
    ) -> list[QueueState]:
        """States of the queues that INNER_MULTI_DISPATCH names (format.md 6.7); `settle` them when
        the put has ended."""
        names = properties.get("INNER_MULTI_DISPATCH", "")
        if not names or not is_multi_dispatched(topic):
            return []
        places, new = [], []
        for name in names.split(","):
            if not is_safe_name(name):
                raise MessageRejectedError(
                    f"INNER_MULTI_DISPATCH = {names!r}: {name!r} cannot be the name of a queue"
                )
            is_light = name.startswith(LIGHT_PREFIX)
            if is_light and not light:
                raise MessageRejectedError(
                    f"INNER_MULTI_DISPATCH = {names!r}: light queues need light_queue_enabled=True"
                )
            place = (name, 0 if is_light else queue_id)
            places.append(place)
            if is_light and (self._light is None or name not in self._light):
                new.append(name)
        if len({(topic, queue_id), *places}) <= len(places):
            raise MessageRejectedError(
                f"INNER_MULTI_DISPATCH = {names!r}: names a queue twice, or "
                f"{topic}/{queue_id}, which has the message already"
            )
        if len(places) > MAX_LISTED:
            raise MessageRejectedError(
                f"INNER_MULTI_DISPATCH names {len(places)} queues, at most {MAX_LISTED}"
            )
        if new:
            self.state(topic, queue_id)  # after this the store knows all queues of its log
            for place in places:
                if place[0] not in new:  # what can fail does so before they count
                    self.state(*place)
            self._admit_light(new)
        return [self.state(*place) for place in places]

    def _admit_light(self, names: Sequence[str]) -> None:
        """Refuses new light queues above the bound. Those that the store has are always taken."""
        with self._lock():
            if self._light is None:
                self._light = {name for name in self._topics() if name.startswith(LIGHT_PREFIX)}
            new = set(names) - self._light
            more = new - self._coming.keys()
            count = len(self._light) + len(self._coming)
            if more and count + len(more) > self._max_light_queues:
                raise MessageRejectedError(
                    f"light queue {min(more)!r}: there are {count} already (max_light_queues)"
                )
            begins = {name: self.state(name, 0).next_offset for name in new}
            for name, now in begins.items():
                begin, puts = self._coming.get(name, (now, 0))
                self._coming[name] = begin, puts + 1

    def settle(self, states: Sequence[QueueState]) -> None:
        """A put that listed these has ended. A light queue without a message does not count."""
        if not self._coming:
            return
        with self._lock():
            for state in states:
                if (coming := self._coming.pop(state.topic, None)) is None:
                    continue
                begin, puts = coming
                if state.next_offset > begin:
                    assert self._light is not None
                    self._light.add(state.topic)
                elif puts > 1:
                    self._coming[state.topic] = begin, puts - 1

    def totals(self) -> dict[str, tuple[int, int]]:
        """Messages and bytes put to each topic since the store was opened."""
        totals: dict[str, tuple[int, int]] = {}
        # Not a list of the pairs: each is an object, for which the collector may run, and then
        # other threads.
        for (topic, _), state in self._states.copy().items():
            messages, size = totals.get(topic, (0, 0))
            totals[topic] = (messages + state.messages, size + state.bytes)
        return totals
