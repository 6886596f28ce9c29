"""Bits of a record's `sys_flag` (format.md 2.2); those of compression are in `compression`."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BATCH_BITS",
    "INNER_BATCH",
    "IN_QUEUES",
    "LONG_ADDRESSES",
    "ROLLED_BACK",
    "TRANSACTION_TYPE",
]

TRANSACTION_TYPE: Final = 0xC
#: Types of what is in queues: no transaction, or a committed one.
IN_QUEUES: Final = (0x0, 0x8)
ROLLED_BACK: Final = 0xC
#: Which addresses are those of IPv6.
LONG_ADDRESSES: Final = 0x30
#: The record holds several messages.
INNER_BATCH: Final = 0x80
#: Both bits of a batch that its receiver takes apart: an inner batch with a body to unpack.
BATCH_BITS: Final = 0xC0
