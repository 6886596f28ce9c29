"""What a store should hold, in plain Python: the judge of the state machine."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sent:
    """One message as it was put, with the place the store gave it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    end_offset: int
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]
    store_timestamp_ms: int | None


@dataclass
class Model:
    """Messages in log order. `acked` is how far the store has promised to keep them."""

    messages: list[Sent] = field(default_factory=list)
    acked_offset: int = 0
    begin_offset: int = 0

    def add(self, message: Sent) -> None:
        """A put that returned: places must follow each other."""
        if self.messages:
            assert message.physical_offset >= self.messages[-1].end_offset
        queue = self.queue(message.topic, message.queue_id, kept=False)
        expected = queue[-1].queue_offset + 1 if queue else 0
        assert message.queue_offset == expected, (message, expected)
        self.messages.append(message)

    def promise(self, end_offset: int) -> None:
        self.acked_offset = max(self.acked_offset, end_offset)

    def queue(self, topic: str, queue_id: int, *, kept: bool = True) -> list[Sent]:
        """Messages of one queue, in order; with `kept` those not trimmed away."""
        return [
            m
            for m in self.messages
            if (m.topic, m.queue_id) == (topic, queue_id)
            and (not kept or m.physical_offset >= self.begin_offset)
        ]

    def queues(self) -> list[tuple[str, int]]:
        return sorted({(m.topic, m.queue_id) for m in self.messages})

    def with_key(self, topic: str, key: str) -> list[Sent]:
        return [
            m
            for m in self.messages
            if m.topic == topic and key in m.keys and m.physical_offset >= self.begin_offset
        ]

    def cut(self, end_offset: int) -> None:
        """After a crash the log ends here: nothing promised may be missing, and no half message kept."""
        assert end_offset >= self.acked_offset, (end_offset, self.acked_offset)
        assert all(
            m.end_offset <= end_offset or m.physical_offset >= end_offset for m in self.messages
        )
        self.messages = [m for m in self.messages if m.end_offset <= end_offset]
