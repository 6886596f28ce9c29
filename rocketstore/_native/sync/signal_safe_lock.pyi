from types import TracebackType
from typing import final

@final
class Passage:
    """Of one thread, once."""

    def __new__(cls, lock: SignalSafeLock, wait: bool) -> Passage: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

@final
class SignalSafeLock:
    """Of one thread at a time."""

    limit_ms: int
    def __new__(
        cls,
        name: str,
        limit_ms: int = 300_000,
        *,
        reentrant: bool = True,
        busy: Exception | None = None,
    ) -> SignalSafeLock: ...
    def __call__(self, *, wait: bool = True) -> Passage: ...
