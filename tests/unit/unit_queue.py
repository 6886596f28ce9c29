"""A log of a few segments in memory, and one queue file over it."""

from __future__ import annotations

from typing import Any

from rocketstore._native.format import codec
from rocketstore._native.format.queue_reader import UnitRun, check_units, read_units
from rocketstore._native.format.scanner import Message
from rocketstore._native.os.mapped_file import MappedFile

SEGMENT = 4096
UNIT = 20
PRE_BLANK = (0, 0x7FFFFFFF, 0)


class Queue:
    """Records of the topic "orders", queue 3, whose tags are "a" and "b" in turn."""

    def __init__(self, count: int = 60, base: int = 2 * SEGMENT) -> None:
        self.segments: list[MappedFile] = []
        self.file = MappedFile.anonymous(0, 3000)
        self.units: list[tuple[int, int, int]] = []
        self.end = base
        for _ in range(count):
            self.add()

    def add(self, topic: str = "orders", queue_id: int = 3, **fields: Any) -> None:
        number = len(self.units)
        tags = "ab"[number % 2]
        values: dict[str, Any] = {
            "topic": topic,
            "body": b"%d" % number * (1 + number % 50),
            "properties": codec.encode_properties({"TAGS": tags}),
            "queue_id": queue_id,
            "queue_offset": number,
            "physical_offset": self.end,
            "record_crc": True,
            **fields,
        }
        record = codec.encode_record(**values)
        start = self.end - self.end % SEGMENT
        if not self.segments or self.end + len(record) + 8 > start + SEGMENT:
            if self.segments:
                self.end = start + SEGMENT
            self.segments.append(MappedFile.anonymous(self.end, SEGMENT))
            values["physical_offset"] = self.end
            record = codec.encode_record(**values)
        segment = self.segments[-1]
        segment.write(self.end - segment.start_offset, record)
        self.put_unit(number, (self.end, len(record), codec.tags_code(tags)))
        self.end += len(record)

    def put_unit(self, number: int, unit: tuple[int, int, int]) -> None:
        data = b"".join(
            value.to_bytes(size, "big", signed=True)
            for value, size in zip(unit, (8, 4, 8), strict=True)
        )
        self.file.write(number * UNIT, data)
        self.units[number:] = [*self.units[number:][:0], unit, *self.units[number + 1 :]]

    def read(self, first: int = 0, count: int | None = None, **fields: Any) -> list[Message]:
        fields = {"verify": 3, "tags_codes": None, **fields}
        return read_units(*self._units(first, count), **self._facts(first, **fields))

    def run(self, first: int = 0, count: int | None = None, **fields: Any) -> UnitRun:
        """To be fetched from with `tuple(self.segments)`."""
        file, position, wanted, _, segment_size = self._units(first, count)
        facts = self._facts(first, **{"verify": 3, **fields})
        return UnitRun(file, position, wanted, segment_size, **facts)

    def check(
        self, first: int = 0, count: int | None = None, **fields: Any
    ) -> tuple[int, int, int, int, int]:
        fields = {"tags": True, **fields}
        return check_units(*self._units(first, count), **self._facts(first, **fields))

    def _units(self, first: int, count: int | None) -> tuple[Any, ...]:
        wanted = len(self.units) - first if count is None else count
        return self.file, first * UNIT, wanted, tuple(self.segments), SEGMENT

    def _facts(self, first: int, **fields: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "topic": b"orders",
            "queue_id": 3,
            "first_queue_offset": first,
            "log_minimum": 0,
            "limit_offset": self.end,
        }
        return {**values, **fields}
