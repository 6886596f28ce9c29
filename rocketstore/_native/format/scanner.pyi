from typing import final

from rocketstore._native.format.message import Message as Message
from rocketstore._native.os.mapped_file import MappedFile

VERIFY_BODY_CRC: int
VERIFY_RECORD_CRC: int
VERIFY_LENIENT: int
VERIFY_UNTORN: int

@final
class ScanResult:
    """What a walk over records has found. `status` says what is at `end_position`: "end" nothing
    more was asked for, "blank", "zeros", or the name of the first rule that is broken there."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...
    @property
    def end_position(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def records(self) -> int: ...
    @property
    def last_record_start(self) -> int:
        """Physical offset of the last good record; -1 without one."""

    @property
    def first_store_timestamp_ms(self) -> int:
        """Of the first record; 0 without one."""

    @property
    def last_store_timestamp_ms(self) -> int: ...
    @property
    def first_time_fall(self) -> int:
        """Physical offset of the first record that is older than the one before it; -1 without one."""

    @property
    def record_crc_mismatches(self) -> int: ...

def read_message(file: MappedFile, position: int, limit: int, *, verify: int) -> Message: ...
def scan_segment(
    file: MappedFile,
    from_position: int,
    to_position: int,
    *,
    verify: int,
) -> ScanResult: ...

@final
class SearchBudget:
    """Bytes that the searches of one walk may still read in a file to judge what looks like a record.
    It is that file's which was searched last, and is full again for another one."""

    def __init__(self) -> None: ...
    @property
    def left_bytes(self) -> int | None:
        """None before the first search."""

def resynchronise(
    file: MappedFile,
    from_position: int,
    to_position: int,
    *,
    budget: SearchBudget,
    verify: int = 3,
) -> int | None: ...
def find_magic(data: bytes, from_position: int, *, plain: bool = False) -> int: ...
