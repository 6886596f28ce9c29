from typing import Self, final

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions

SLEEP: int
DONE: int

@final
class PagesAhead:
    """Keeps [wrote, wrote + window) ready. One a populator."""

    paused: bool
    slow: bool
    slow_ns: int
    quick_ns: int

    def __new__(cls, positions: Positions, window_bytes: int) -> Self: ...
    @property
    def populated(self) -> int: ...
    @property
    def written(self) -> int: ...
    @property
    def hurried(self) -> bool: ...
    def expect_put(self) -> None: ...
    def skip_to(self, offset: int) -> None: ...
    def serve(self, signal: EventCount, file: MappedFile) -> None: ...
    def round(self, file: MappedFile, now: int) -> int: ...
