"""Records as they stand in the log, without the time at which they were stored."""

from __future__ import annotations

import rocketstore

__all__ = ["records"]

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
