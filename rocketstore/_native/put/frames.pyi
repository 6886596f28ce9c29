from collections.abc import Callable
from typing import Any

from rocketstore._native.append.appender import Log
from rocketstore._native.append.put_result import PutResult
from rocketstore._native.put.put_columns import MessageColumns
from rocketstore._native.put.writer import Writer
from rocketstore.values.durability import Durability
from rocketstore.values.timestamps import Duration

def encode_columns(
    columns: MessageColumns, into: bytearray
) -> tuple[memoryview, dict[int, str]]: ...
def put_frames(
    log: Log,
    frames: Any,
    writer_of: Callable[[bytes, int], Writer],
    *,
    record_crc: bool,
    durability: Durability | None,
    timeout_s: Duration | None,
) -> PutResult: ...
