"""Reads the compacted topics of RocketMQ 5 (format.md 12.2): records in logs of their own, one for
each queue, and batch units that say where."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rocketstore._native.format.scanner import VERIFY_BODY_CRC, read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError, InvalidTopicError, QueueNotFoundError
from rocketstore.log.layout.paths import is_safe_name, parse_segment_name

if TYPE_CHECKING:
    from rocketstore.message import Message

__all__ = ["compacted_messages"]

#: A batch unit (format.md 6.6).
UNIT: Final = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp_ms", ">i8"),
        ("queue_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)


class _Unit(NamedTuple):
    physical_offset: int
    size: int
    queue_offset: int


def compacted_messages(root: Path, topic: str, queue_id: int | None) -> Iterator[Message]:
    """The messages of one queue, or of all queues one after the other, by queue offset.

    Raises:
        InvalidTopicError, QueueNotFoundError: there is none such.
        CorruptRecordError: a unit points to what is no record of this place.
        OSError: the files cannot be read.
    """
    if not is_safe_name(topic):
        raise InvalidTopicError(f"topic = {topic!r}: no topic has this name")
    units = root / "compaction" / "compactionCq" / topic
    queues = _queues(units)
    if queue_id is not None:
        queues = [one for one in queues if one == queue_id]
    if not queues:
        which = topic if queue_id is None else f"{topic}/{queue_id}"
        raise QueueNotFoundError(f"{which}: {root} has no such compacted queue")
    log = root / "compaction" / "compactionLog" / topic
    return _messages([(units / str(one), log / str(one), topic, one) for one in queues])


def _queues(directory: Path) -> list[int]:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def _messages(queues: list[tuple[Path, Path, str, int]]) -> Iterator[Message]:
    for units, log, topic, queue_id in queues:
        for name in sorted(os.listdir(units)):
            # `compacting` has what RocketMQ is about to put in their place.
            if parse_segment_name(name) is not None:
                yield from _file_messages(units / name, log / name, topic, queue_id)


def _file_messages(units: Path, log: Path, topic: str, queue_id: int) -> Iterator[Message]:
    """Of a file of units, and the file of records with the same name."""
    found = _units_of(units)
    if not found:
        return
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, "the records of a compacted queue are not there", os.fspath(log)
        ) from None
    start = int(log.name)
    with closing(MappedFile.open(log, start, size, "read")) as file:
        for unit in found:
            position = unit.physical_offset - start
            if not 0 <= position <= size - unit.size:
                raise CorruptRecordError(unit.physical_offset, f"outside of {log}")
            message = read_message(file, position, size, verify=VERIFY_BODY_CRC)
            place = message.topic, message.queue_id, message.queue_offset, message.size
            if place != (topic, queue_id, unit.queue_offset, unit.size):
                raise CorruptRecordError(unit.physical_offset, f"in {log}: not what {units} says")
            yield message


def _units_of(path: Path) -> list[_Unit]:
    """Up to the first that is not written, or that closes the file."""
    data = path.read_bytes()
    rows = np.frombuffer(data[: len(data) - len(data) % UNIT.itemsize], UNIT)
    written = (
        (rows["physical_offset"] >= 0)
        & (rows["size"] > 0)
        & (rows["queue_offset"] >= 0)
        & (rows["batch_size"] > 0)
    )
    count = len(rows) if written.all() else int(written.argmin())
    columns = [rows[name][:count].tolist() for name in _Unit._fields]
    return [_Unit(*each) for each in zip(*columns, strict=True)]
