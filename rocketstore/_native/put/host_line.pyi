import socket
from collections.abc import Callable
from typing import Protocol, Self, final

from rocketstore._native.append.appender import Log
from rocketstore._native.append.put_result import PutResult
from rocketstore._native.sync.queue_positions import QueueState

class _Desk(Protocol):
    @property
    def record_crc(self) -> bool: ...
    def queue_of(self, topic: bytes, queue_id: int, /) -> tuple[QueueState, bool]: ...
    def told(self, topic: bytes, queue_id: int, properties: bytes, /) -> None: ...
    def unique_put(
        self,
        topic: str,
        unique_id: str,
        append: Callable[[], PutResult],
        own_topic: str,
        queue_id: int,
        properties: bytes,
        /,
    ) -> PutResult: ...
    def error_text(self, error: BaseException, /) -> bytes: ...

@final
class HostLine:
    """One line of a guest, at the host; `serve` belongs to one thread."""

    def __new__(cls, log: Log, desk: _Desk, max_request_bytes: int) -> Self: ...
    @property
    def puts(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def heard_ns(self) -> int: ...
    @property
    def want_count(self) -> int: ...
    def serve(self, sock: socket.socket) -> None: ...
    def end(self) -> None: ...
