from collections.abc import Mapping, Sequence
from typing import Any, final

from rocketstore._native.append.put_result import PutResult
from rocketstore._native.put.string_rows import Strings
from rocketstore._native.put.writer import Writer
from rocketstore.values.arguments import Body, Row
from rocketstore.values.durability import Durability
from rocketstore.values.timestamps import Duration, Timestamp

@final
class Rows:
    """Messages that need not have anything in common, on their way to the log together."""

    def add(
        self,
        writer: Writer,
        body: Body,
        tags: str | None,
        keys: str | Sequence[str] | None,
        properties: Mapping[str, str] | None,
        flag: int,
        born_time: Timestamp | None,
        shard_key: str | None,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        unique_id: str | None = None,
        expected: int | None = None,
    ) -> None: ...
    @property
    def wanted(self) -> dict[int, int]: ...
    def take(self, writer: Writer, row: Row, expected: int | None = None) -> None: ...
    def begin(self, writer: Writer, transaction_id: str) -> None: ...
    def needs(self, rows: int = 0, size: int = 0) -> tuple[int, int]: ...
    def chosen(self, rows: list[int]) -> Rows: ...
    def seal(self, head: bytes) -> None: ...
    def __len__(self) -> int: ...
    def results(self, first: int) -> list[PutResult]: ...
    def put(
        self, durability: Durability | None, timeout_s: Duration | None, chunk: bool = False
    ) -> PutResult: ...

def put_columns(
    writer: Writer,
    bodies: Strings,
    *,
    row_tags: Strings | None,
    row_keys: Strings | None,
    queue_ids: Any,
    born_ms: Any,
    tags: str | None,
    keys: str | Sequence[str] | None,
    properties: Mapping[str, str] | None,
    flag: int,
    born_time: Timestamp | None,
    shard_key: str | None,
    durability: Durability | None,
    timeout_s: Duration | None,
) -> PutResult: ...
def rows_of(rows: Rows) -> list[Row]: ...
