from collections.abc import Mapping
from typing import TypedDict

from typing_extensions import Buffer

class _Record(TypedDict):
    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes
    record_crc: int | None
    message_id: str

def crc_kernels() -> list[str]: ...
def crc32(data: Buffer, value: int = 0, kernel: str = "best") -> int: ...
def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc31(data: Buffer) -> int: ...
def java_hash(text: str | bytes) -> int: ...
def tags_code(tags: str | bytes) -> int: ...
def encode_properties(properties: Mapping[str, str]) -> bytes: ...
def decode_properties(data: bytes) -> dict[str, str]: ...
def pack_host(text: str, name: str = "host") -> bytes: ...
def unpack_host(data: bytes) -> str: ...
def encode_record(
    *,
    topic: str | bytes,
    body: bytes,
    properties: bytes = b"",
    queue_id: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    sys_flag: int = 0,
    born_timestamp_ms: int = 0,
    born_host: str = "0.0.0.0:0",
    store_timestamp_ms: int = 0,
    store_host: str = "0.0.0.0:0",
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    record_crc: bool = False,
) -> bytes: ...
def decode_record(data: bytes, physical_offset: int = -1, verify: bool = True) -> _Record: ...
def message_id(host: str, physical_offset: int) -> str: ...
