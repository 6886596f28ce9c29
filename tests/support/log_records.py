"""Records as they stand in the log, without the time at which they were stored; and what a record is, in a word."""

from __future__ import annotations

import rocketstore
from rocketstore._native.format import codec
from rocketstore.errors import CorruptRecordError

__all__ = ["judge_record", "records"]

STORED_AT = slice(56, 64)  # of records with IPv4 hosts (format.md 2)


def records(store: rocketstore.Store) -> list[bytes]:
    """All of them, in order; of a store without record checksums, which the time is part of."""
    assert not store.config.record_crc
    found = []
    for columns in rocketstore.scan(store, columns=["physical_offset"], system_topics=True):
        for offset in columns["physical_offset"].tolist():
            record = bytearray(bytes(store.get(offset)))
            record[STORED_AT] = bytes(8)
            found.append(bytes(record))
    return found


def judge_record(data: bytes, physical_offset: int = -1) -> tuple[str, int]:
    """(reason, size) of what `data` begins with: "ok" of a record, and -1 of what is none and no blank."""
    try:
        return "ok", codec.decode_record(data, physical_offset)["total_size"]
    except CorruptRecordError as error:
        return error.reason, int.from_bytes(data[:4]) if error.reason == "blank" else -1
