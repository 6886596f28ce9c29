"""Filler records: what `repair` writes over damage, and how `verify` and `rebuild` know them.

A filler record is rolled back, of REPAIR_TOPIC and as long as the damage, so that consumers are
given nothing and all other records stay where they are. A *pointed* filler record is one that a
queue unit points to (format 6.3).
"""

from __future__ import annotations

from typing import Final

from rocketstore._native.format.constants import RECORD_BYTES_MIN
from rocketstore._native.format.message import Message
from rocketstore.values.system_flags import ROLLED_BACK, TRANSACTION_TYPE

__all__ = ["POINTED_FLAG", "RECORD_BYTES_MIN", "REPAIR_TOPIC", "is_pointed_filler"]

#: Topic of all filler records; no message of a client can have it.
REPAIR_TOPIC: Final = "%"
#: Flag of pointed filler records; others have 0.
POINTED_FLAG: Final = 1


def is_pointed_filler(message: Message) -> bool:
    """Whether a record is what a queue unit points to in the place of a lost one."""
    marks = message.topic, message.sys_flag & TRANSACTION_TYPE, message.flag
    return marks == (REPAIR_TOPIC, ROLLED_BACK, POINTED_FLAG)
