"""Records as they stand in the log, without the time at which they were stored."""

from __future__ import annotations

import rocketstore

__all__ = ["records"]

STORED_AT = slice(56, 64)  # of records with IPv4 hosts (format.md 2)


def records(store: rocketstore.Store) -> list[bytes]:
    """All of them, in order; of a store without record checksums, which the time is part of."""
    assert not store.config.record_crc
    found, offset = [], store.begin_offset
    while offset < store.end_offset:
        message = store.get(offset)
        record = bytearray(bytes(message))
        record[STORED_AT] = bytes(8)
        found.append(bytes(record))
        offset += message.size
    return found
