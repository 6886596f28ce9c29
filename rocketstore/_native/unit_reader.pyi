from rocketstore._native.mapped_file import MappedFile
from rocketstore._native.message import Message

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
