from typing import Self, final

from rocketstore._native.append.appender import Log

@final
class HostPuts:
    """The puts of one line; belongs to the thread of that."""

    def __new__(cls, log: Log, desk: object) -> Self: ...
