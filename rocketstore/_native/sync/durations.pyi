from collections.abc import Sequence
from typing import Self, final

@final
class Durations:
    """Counts durations between bounds until they are taken. Any thread may do anything."""

    def __new__(cls, bounds_ns: Sequence[int]) -> Self: ...
    def add(self, duration_ns: int) -> None: ...
    def take(self) -> tuple[list[tuple[int, int]], int, int]: ...
