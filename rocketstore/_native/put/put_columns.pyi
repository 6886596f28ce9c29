from collections.abc import Callable
from typing import Any, Self, final

from rocketstore._native.append.appender import Log
from rocketstore._native.append.put_result import PutResult
from rocketstore._native.put.string_rows import Strings
from rocketstore._native.put.writer import Writer
from rocketstore.values.durability import Durability
from rocketstore.values.timestamps import Duration

@final
class MessageColumns:
    def __new__(
        cls,
        bodies: Strings,
        topics: tuple[bytes, ...],
        topic_rows: Any,
        queue_ids: Any,
        born_ms: Any,
        *,
        flags: Any = None,
        sys_flags: Any = None,
        reconsume_times: Any = None,
        tags: Strings | None = None,
        keys: Strings | None = None,
        property_places: Any = None,
        names: Strings | None = None,
        values: Strings | None = None,
        born_host: str,
        max_body: int,
        refused: Callable[[bytes], None],
    ) -> Self: ...

def put_message_columns(
    log: Log,
    columns: MessageColumns,
    writer_of: Callable[[bytes, int], Writer],
    *,
    record_crc: bool,
    durability: Durability | None,
    timeout_s: Duration | None,
) -> PutResult: ...
