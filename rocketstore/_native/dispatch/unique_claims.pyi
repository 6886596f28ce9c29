from collections import deque
from types import TracebackType
from typing import Any, Protocol, Self, final, type_check_only

from rocketstore._native.dispatch.dispatch_service import DispatchService
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock

@type_check_only
class KeyIndex(Protocol):
    """Its files, each a mapped one with its shape, and why it lacks keys."""

    files: tuple[Any, ...]
    short: str | None

@final
class Turn:
    """For `with`: one thread at a time has an id, from the look for it to its place in the log."""

    def __new__(cls, claims: UniqueClaims, claim: tuple[str, str]) -> Self: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class UniqueClaims:
    """The ids of puts of one store that are under way, or that the index may lack yet."""

    @property
    def max_wait_ms(self) -> int: ...
    @property
    def turns_taken(self) -> dict[tuple[str, str], SignalSafeLock]: ...
    @property
    def recent(self) -> dict[tuple[str, str], Any]: ...
    @property
    def order(self) -> deque[tuple[str, str]]: ...
    @property
    def unsure(self) -> set[tuple[str, str]]: ...
    def __init__(
        self,
        service: DispatchService,
        index: KeyIndex | None,
        waiting_in: tuple[bytes, bytes],
        max_wait_ms: int,
    ) -> None: ...
    def claim(self, topic: str, unique_id: str) -> tuple[str, str]: ...
    def first(self, claim: tuple[str, str]) -> Any: ...
    def may_have(self, claim: tuple[str, str]) -> bool: ...
    def note(self, claim: tuple[str, str], result: Any) -> None: ...
