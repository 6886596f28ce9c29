from typing import Self, final

from rocketstore._native.os.mapped_file import MappedFile

DONE: int
END: int
QUEUE: int
FILE: int
MISSING: int
LISTED: int
BAD: int
FAULT: int

@final
class UnitLook:
    """The queues of one look, and the file of each that was looked into last. One thread at a time."""

    def __new__(cls) -> Self: ...
    def add_queue(
        self, topic: bytes, queue_id: int, *, ignored: bool = False, agreed: bool = False
    ) -> None: ...
    def point(
        self, topic: bytes, queue_id: int, file: MappedFile | None, first_unit: int, units: int
    ) -> None: ...
    def count_all(self, topic: bytes, queue_id: int) -> None: ...
    def counted(self, topic: bytes, queue_id: int) -> tuple[int, int, int]: ...
    def run(self, segment: MappedFile, from_offset: int, to_offset: int) -> tuple[int, int]: ...
    def current(self) -> tuple[bytes, int, int, int, int, bytes]: ...
