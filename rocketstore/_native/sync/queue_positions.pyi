from typing import Self, final

@final
class QueueState:
    """Next queue offset of one (topic, queue id), and what was put there since the store was opened."""

    expects_put: bool

    def __new__(cls, topic: str, topic_bytes: bytes, queue_id: int, next_offset: int) -> Self: ...
    @property
    def topic(self) -> str: ...
    @property
    def topic_bytes(self) -> bytes: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> int: ...

@final
class QueueEnd:
    """Queue offset after the last unit that readers see."""

    value: int
    def raise_to(self, offset: int) -> None: ...
