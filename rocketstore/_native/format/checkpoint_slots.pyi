from typing import Any

from typing_extensions import Buffer

SLOT_BYTES: int
ROCKETMQ_BYTES: int
ROCKETMQ_USED_BYTES: int

def pack_slot(
    *,
    generation: int,
    flushed: int,
    dispatched: int,
    indexed: int,
    minimum: int,
    last_record_start: int,
    last_store_timestamp_ms: int,
    cut: int,
    max_unflushed: int,
    segment_count: int,
    segments_digest: int,
    last_record_size: int,
    last_record_crc: int,
    tail_crc: int,
    queue_count: int,
    queues_digest: int,
    index_files: int,
    clean: bool,
    boot_id: bytes,
    run_id: bytes,
) -> bytes: ...
def unpack_slot(slot: bytes) -> dict[str, Any] | None: ...
def pack_rocketmq(
    values: tuple[int, int, int, int, int, int], before: bytes | None = None
) -> bytes: ...
def unpack_rocketmq(page: bytes) -> tuple[int, int, int, int, int, int]: ...
def crc32c(data: Buffer, value: int = 0) -> int: ...
