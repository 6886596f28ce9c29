"""A record as unit tests of scans and columns have it."""

from __future__ import annotations

from typing import Any

from rocketstore._native.format import codec


def record(physical_offset: int, **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": "orders",
        "body": b"body",
        "properties": b"",
        "queue_id": 3,
        "queue_offset": 7,
        "physical_offset": physical_offset,
        "born_timestamp_ms": 1_600_000_000_000,
        "born_host": "10.1.2.3:54321",
        "store_timestamp_ms": 1_700_000_000_001,
        "store_host": "192.168.0.9:10911",
        "record_crc": True,
        **fields,
    }
    return codec.encode_record(**values)
