"""The message store of Apache RocketMQ as a Python library, with a C core.

    import rocketstore

    with rocketstore.open("data/orders") as store:
        result = store.writer("orders").put(b"hello", keys="o-17")
        for message in store.consumer("orders"):
            print(message.queue_offset, message.body)

When `put` returns, the message survives a power cut, unless the store was opened with another `durability`.
"""

from rocketstore._native.put_result import PutResult
from rocketstore.api.open import open_store as open
from rocketstore.api.scan import scan
from rocketstore.api.ship import ship
from rocketstore.columns import Columns
from rocketstore.completion_port import CompletionPort
from rocketstore.config import Durability, StoreConfig
from rocketstore.consumer import Consumer, ConsumerBusyError
from rocketstore.consuming.group_offsets import GroupClaimedError
from rocketstore.engine.tickets import Ticket
from rocketstore.errors import (
    BackpressureError,
    ConfigError,
    CorruptRecordError,
    DecompressionError,
    DiskFullError,
    DurabilityTimeoutError,
    InvalidTopicError,
    MessageNotFoundError,
    MessageRejectedError,
    MessageTooLargeError,
    MissingSegmentsError,
    OffsetOutOfRangeError,
    PropertiesTooLargeError,
    ReadFailedError,
    RocketStoreError,
    StoreClosedError,
    StoreFailedError,
    StoreLockedError,
    StoreReadOnlyError,
)
from rocketstore.log.recovery.report import RecoveryReport
from rocketstore.message import Message, decompress
from rocketstore.puts.frames import FramesResult, encode_frames, shard_queue_id
from rocketstore.puts.put_batch import NewMessage
from rocketstore.scanning.scan import Scan
from rocketstore.shipping import ShipReport
from rocketstore.store import Store
from rocketstore.writer import Writer

__version__ = "0.1.0"

__all__ = [
    "BackpressureError",
    "Columns",
    "CompletionPort",
    "ConfigError",
    "Consumer",
    "ConsumerBusyError",
    "CorruptRecordError",
    "DecompressionError",
    "DiskFullError",
    "Durability",
    "DurabilityTimeoutError",
    "FramesResult",
    "GroupClaimedError",
    "InvalidTopicError",
    "Message",
    "MessageNotFoundError",
    "MessageRejectedError",
    "MessageTooLargeError",
    "MissingSegmentsError",
    "NewMessage",
    "OffsetOutOfRangeError",
    "PropertiesTooLargeError",
    "PutResult",
    "ReadFailedError",
    "RecoveryReport",
    "RocketStoreError",
    "Scan",
    "ShipReport",
    "Store",
    "StoreClosedError",
    "StoreConfig",
    "StoreFailedError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "Ticket",
    "Writer",
    "decompress",
    "encode_frames",
    "open",
    "scan",
    "shard_queue_id",
    "ship",
]
