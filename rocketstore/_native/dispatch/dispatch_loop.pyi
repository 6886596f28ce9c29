from typing import Self, final

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.queue_positions import QueueEnd

DONE: int
END: int
NEW_QUEUE: int
QUEUE_FILE: int
GAP: int
CONFLICT: int
INDEX_FILE: int
LIGHT: int
BAD_RECORD: int
ARRIVALS: int
FAULT: int
SLOTS_IN_PIECE: int
SHORT_RUN_BYTES: int

@final
class DispatchLoop:
    """State of the one dispatcher of a store: its queues and its index file. One thread at a time."""

    def __new__(
        cls, delay_level_ms: tuple[int, ...], *, multi_dispatch: bool, report_arrivals: bool
    ) -> Self: ...
    @property
    def status(self) -> str: ...
    @property
    def wanted_hash(self) -> int: ...
    @property
    def faulted(self) -> str: ...
    unit_kept: int
    @property
    def last_store_timestamp_ms(self) -> int: ...
    @property
    def records(self) -> int: ...
    def add_queue(
        self, topic: bytes, queue_id: int, next_offset: int, end: QueueEnd | None = None
    ) -> None: ...
    def point(
        self,
        topic: bytes,
        queue_id: int,
        file: MappedFile | None,
        first_unit: int,
        unit_limit: int,
    ) -> None: ...
    def set_next(self, topic: bytes, queue_id: int, next_offset: int) -> None: ...
    def ignore_queue(self, topic: bytes, queue_id: int) -> None: ...
    def advance(self, topic: bytes, queue_id: int, queue_offset: int) -> None: ...
    def next_offset(self, topic: bytes, queue_id: int) -> int: ...
    def publish_moved(self) -> None: ...
    def take_dirty(self) -> list[tuple[bytes, int, int, int]]: ...
    def set_index(
        self,
        file: MappedFile | None,
        slots: int,
        limit: int,
        index_from: int,
        *,
        tags: bool = False,
        slots_ready: bytearray | None = None,
    ) -> None: ...
    def no_index(self) -> None: ...
    def run(self, segment: MappedFile, from_offset: int, to_offset: int) -> tuple[int, int]: ...
    def current(self) -> tuple[bytes, int, int, int, int, int, int, bytes]: ...
    def lights_written(self) -> None: ...
    def take_arrivals(self) -> list[tuple[str, int, int, int, int]]: ...
