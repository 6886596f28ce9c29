from typing import Self, final

from rocketstore._native.os.mapped_file import MappedFile

HEADER_SIZE: int
SLOTS_MAX: int

def file_size(slots: int, entries: int) -> int: ...
def entry_position(slots: int, number: int) -> int: ...
def key_hash(topic: bytes, key: bytes) -> int: ...
def fresh_header(previous_end_timestamp_ms: int, previous_end_offset: int) -> bytes: ...
def header(
    file: MappedFile, slots: int, entries: int
) -> tuple[int, int, int, int, int, int, bool]: ...
def entry(file: MappedFile, slots: int, entries: int, number: int) -> tuple[int, int, int, int]: ...
def plausible(file: MappedFile, slots: int, entries: int) -> bool: ...
def deduce(file: MappedFile) -> tuple[int, int] | None: ...
def put(
    file: MappedFile,
    slots: int,
    entries: int,
    limit: int,
    key_hash: int,
    physical_offset: int,
    store_timestamp_ms: int,
) -> bool: ...
def find(
    file: MappedFile,
    slots: int,
    entries: int,
    key_hash: int,
    begin_ms: int,
    end_ms: int,
    limit: int,
) -> list[tuple[int, int]]: ...

@final
class Walk:
    taken: int
    def __new__(
        cls,
        file: MappedFile,
        slots: int,
        entries: int,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
    ) -> Self: ...
    def next(self) -> list[int]: ...

def validate(file: MappedFile, slots: int, entries: int, *, growing: bool = False) -> bool: ...
def cut(file: MappedFile, slots: int, entries: int, from_offset: int) -> int: ...
