from types import TracebackType
from typing import final

from rocketstore._native.append.appender import Log

@final
class KeyWatch:
    """Within its context the log refuses a put with `only_latest` whose key was put since it began. One at a time
    for each log, which the caller sees to."""

    def __new__(cls, log: Log, salt: int) -> KeyWatch: ...
    def __enter__(self) -> int:
        """Gives the end of the log: what was put below is not noted."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
