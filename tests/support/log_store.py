"""Small logs for recovery tests: records laid out as a store lays them out, and a way to open them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore._native.format import codec
from rocketstore._native.format.scanner import VERIFY_LENIENT, Message, read_message
from rocketstore.log.commitlog.checkpoint import (
    CheckpointFile,
    OwnCheckpoint,
    RocketmqCheckpoint,
    discard_checkpoint,
    fingerprint,
)
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.layout.store_json import load_store_state, new_store_state, save_store_state
from rocketstore.log.mapped_files.mapped_file_queue import Access, MappedFileQueue
from rocketstore.log.recovery.recovery import Marks, RecoveryReport, recover
from tests.support.paths import STORES

STORE_NAMES = sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz"))
BLANK_MAGIC = bytes.fromhex("cbd43194")
SEGMENT = 4096
PRE_BLANK_SIZE = 0x7FFFFFFF


@dataclass(slots=True)
class LogBuilder:
    """Appends records to memory: rolls as the store does (format.md 3.2)."""

    segment_size: int = SEGMENT
    record_crc: bool = True
    begin: int = 0
    segments: dict[int, bytearray] = field(default_factory=dict)
    #: Start, end of each record.
    records: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    next_queue_offset: dict[tuple[str, int], int] = field(default_factory=dict)
    now_ms: int = 1_700_000_000_000

    def __post_init__(self) -> None:
        self.end = self.begin

    def encode(
        self, body: bytes, topic: str, queue_id: int, physical_offset: int, queue_offset: int
    ) -> bytes:
        return codec.encode_record(
            topic=topic,
            body=body,
            properties=codec.encode_properties({"KEYS": f"key-{queue_offset}"}),
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            born_timestamp_ms=self.now_ms,
            born_host="10.1.2.3:54321",
            store_timestamp_ms=self.now_ms,
            store_host="192.168.0.9:10911",
            record_crc=self.record_crc,
        )

    def add(self, body: bytes, topic: str = "orders", queue_id: int = 0) -> int:
        """Appends one record; its physical offset."""
        queue_offset = self.next_queue_offset.get((topic, queue_id), 0)
        start = self.end - self.end % self.segment_size
        free = start + self.segment_size - self.end
        size = len(self.encode(body, topic, queue_id, self.end, queue_offset))
        if size + 8 > free:
            blank = free.to_bytes(4, "big") + BLANK_MAGIC
            self.segments[start][self.end - start : self.end - start + 8] = blank
            self.end = start = start + self.segment_size
        segment = self.segments.setdefault(start, bytearray(self.segment_size))
        record = self.encode(body, topic, queue_id, self.end, queue_offset)
        segment[self.end - start : self.end - start + size] = record
        self.next_queue_offset[topic, queue_id] = queue_offset + 1
        self.records.append((self.end, self.end + size))
        self.end += size
        self.now_ms += 1
        return self.records[-1][0]

    def fill(self, count: int) -> LogBuilder:
        for number in range(count):
            self.add(bytes([65 + number % 26]) * (20 + number * 37 % 200), "orders", number % 3)
        return self

    def write(self, root: Path) -> StoreLayout:
        """The store on disk; also the directories that recovery expects."""
        layout = StoreLayout(root)
        make_directories(layout)
        for start, segment in self.segments.items():
            (layout.commit_log / segment_name(start)).write_bytes(segment)
        return layout

    def clone(self) -> LogBuilder:
        return LogBuilder(
            self.segment_size,
            self.record_crc,
            self.begin,
            {start: bytearray(segment) for start, segment in self.segments.items()},
            list(self.records),
            self.end,
            dict(self.next_queue_offset),
            self.now_ms,
        )


def put_bytes(layout: StoreLayout, offset: int, data: bytes, size: int = SEGMENT) -> None:
    """Overwrites bytes of the log by physical offset."""
    with (layout.commit_log / segment_name(offset - offset % size)).open("r+b") as file:
        file.seek(offset % size)
        file.write(data)


def load_log(layout: StoreLayout, access: Access = "write") -> MappedFileQueue:
    log = MappedFileQueue(
        layout.commit_log, access, file_size=None, name="commit log", tmp_directory=layout.tmp
    )
    log.load()
    return log


def mark_durable(
    layout: StoreLayout, durable: int, last_record_start: int, **fields: Any
) -> OwnCheckpoint:
    """Our checkpoint as a writer leaves it that was killed; everything below `durable` is dispatched."""
    log = load_log(layout, "read")
    file = CheckpointFile(layout.own_checkpoint)
    before = file.load()
    values: dict[str, Any] = {
        "generation": before.generation + 1 if before else 1,
        "dispatched": durable,
        "indexed": durable,
        "minimum": log.begin_offset,
        "max_unflushed": 1024,
        **fingerprint(log, durable, last_record_start),
        **fields,
    }
    checkpoint = OwnCheckpoint(**values)
    file.store(checkpoint)
    file.close()
    log.close()
    return checkpoint


def queues_end(layout: StoreLayout) -> int | None:
    """Largest physical end of all queue units; None without a queue."""
    files = sorted(layout.consume_queue.glob("*/*/" + "[0-9]" * 20))
    if not files:
        return None
    end = 0
    for path in files:
        data = path.read_bytes()
        for at in range(0, len(data) - 19, 20):
            offset = int.from_bytes(data[at : at + 8], "big", signed=True)
            size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
            if size <= 0 or offset < 0:
                break
            if size != PRE_BLANK_SIZE:
                end = max(end, offset + size)
    return end


def open_log(
    layout: StoreLayout,
    *,
    ours: bool = True,
    clean: bool = False,
    access: Access = "write",
    on_foreign: Callable[[int, int], None] | None = None,
    force: bool = False,
    check_crc: bool = True,
    **marks: Any,
) -> tuple[RecoveryReport, MappedFileQueue]:
    """Recovers a store as opening it does. The log stays open: close it."""
    state = load_store_state(layout) or new_store_state(created_ms=1, record_crc=True)

    def keep_foreign(start: int, end: int) -> None:
        save_store_state(layout, state.with_foreign(start, end))

    log = load_log(layout, access)
    checkpoint = CheckpointFile(layout.own_checkpoint)
    known = Marks(
        own=checkpoint.load(),
        ours=ours,
        clean=clean,
        **{
            "theirs": not ours,
            "rocketmq_times": RocketmqCheckpoint(layout.checkpoint).load()[:3],
            "derived_end": queues_end(layout),
            "foreign": state.foreign,
            **marks,
        },
    )
    try:
        report = recover(
            log,
            layout,
            known,
            checkpoint=checkpoint if access == "write" else None,
            max_unflushed_bytes=1024,
            max_record_bytes=512,
            check_crc=check_crc,
            force=force,
            on_foreign=on_foreign or keep_foreign,
        )
    except BaseException:
        log.close()
        raise
    finally:
        checkpoint.close()
    return report, log


def recover_store(layout: StoreLayout, **arguments: Any) -> RecoveryReport:
    report, log = open_log(layout, **arguments)
    log.close()
    return report


def records_of(log: MappedFileQueue, report: RecoveryReport) -> Iterator[Message]:
    """Every record that is served after a recovery, walked from the begin of the log."""
    offset = log.begin_offset
    while offset < report.end:
        damage = next((d for d in report.damage if d.start <= offset < d.end), None)
        if damage is not None:
            offset = damage.end
            continue
        file = log.find(offset)
        assert file is not None, offset
        head = file.read(offset - file.start_offset, 8)
        if head[4:] == BLANK_MAGIC or not any(head):
            offset = file.end_offset
            continue
        lenient = VERIFY_LENIENT if report.foreign else 0
        message = read_message(file, offset - file.start_offset, file.size, verify=3 | lenient)
        yield message
        offset += message.size


def served(layout: StoreLayout, **arguments: Any) -> list[int]:
    """Physical offsets of what is served after a recovery."""
    report, log = open_log(layout, **arguments)
    try:
        return [message.physical_offset for message in records_of(log, report)]
    finally:
        log.close()


def image(root: Path, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Every file below `root` by its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in without
    }


def unpack_store(name: str, root: Path) -> tuple[StoreLayout, dict[str, Any]]:
    """A store that RocketMQ wrote, and what it holds."""
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    layout = StoreLayout(root)
    make_directories(layout)
    expected: dict[str, Any] = json.loads((STORES / f"{name}.expect.json").read_text())
    return layout, expected


def starts_of(builder: LogBuilder) -> list[int]:
    return [start for start, _ in builder.records]


def durable_at(layout: StoreLayout, builder: LogBuilder, count: int, **fields: int) -> int:
    """Our checkpoint says that the first `count` records are durable; their end."""
    start, end = builder.records[count - 1]
    mark_durable(layout, end, start, **fields)
    return end


def tail_is_zero(layout: StoreLayout, end: int) -> bool:
    log = load_log(layout, "read")
    try:
        file = log.find(end)
        assert file is not None
        assert log.last is file, "segments behind the end are left"
        return file.find_data(end - file.start_offset, file.size) == file.size
    finally:
        log.close()


def make_torn(builder: LogBuilder, root: Path, *, ours: bool = True) -> StoreLayout:
    """Damage below D, a tear above it with valid_runs, and a later file."""
    layout = builder.write(root)
    durable_at(layout, builder, 30, dispatched=0, max_unflushed=1 << 20)
    if not ours:
        file = CheckpointFile(layout.own_checkpoint)
        discard_checkpoint(file, file.load(), another=True)
        file.close()
    put_bytes(layout, builder.records[5][0] + 95, b"\xee")
    put_bytes(layout, builder.records[33][0] + 95, b"\xee\xff\x11")
    return layout
