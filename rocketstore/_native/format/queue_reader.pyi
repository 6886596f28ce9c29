from collections.abc import Callable, Iterable
from typing import Self, final

from rocketstore._native.format.message import Message
from rocketstore._native.os.mapped_file import MappedFile

def read_units(
    queue_file: MappedFile,
    position: int,
    count: int,
    segments: tuple[MappedFile, ...],
    segment_size: int,
    *,
    topic: bytes,
    queue_id: int,
    first_queue_offset: int,
    log_minimum: int,
    limit_offset: int,
    verify: int,
    tags_codes: frozenset[int] | None,
) -> list[Message]: ...

@final
class UnitRun:
    """Units of one queue file that are known to be readable, followed batch by batch: an iterator over the
    messages of the last batch, each made when it is asked for. Between two batches it keeps no file of the log."""

    def __new__(
        cls,
        queue_file: MappedFile,
        position: int,
        count: int,
        segment_size: int,
        *,
        topic: bytes,
        queue_id: int,
        first_queue_offset: int,
        log_minimum: int,
        limit_offset: int,
        verify: int,
    ) -> Self: ...
    @property
    def log_minimum(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def fetch(self, limit: int, segments: tuple[MappedFile, ...]) -> int: ...
    def peek(self) -> Message | None: ...
    def waiting(self) -> list[Message]: ...
    def __length_hint__(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...

@final
class BatchIterator:
    """The messages of one batch after another. `fetch()` gives the next batch as an iterator, None
    after the last one. What it raises leaves the iterator as it is: the next call fetches again.

    Several threads may call it: it holds what it calls, so none can take it from another, as with
    `itertools.chain` over a generator. `fetch` refuses a second thread.
    """

    def __new__(cls, fetch: Callable[[], Iterable[Message] | None]) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...

def has_address(queue_file: MappedFile, position: int, count: int) -> bool: ...
def check_units(
    queue_file: MappedFile,
    position: int,
    count: int,
    segments: tuple[MappedFile, ...],
    segment_size: int,
    *,
    topic: bytes,
    queue_id: int,
    first_queue_offset: int,
    log_minimum: int,
    limit_offset: int,
    tags: bool,
) -> tuple[int, int, int, int, int]: ...
