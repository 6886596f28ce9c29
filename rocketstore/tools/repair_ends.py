"""Queues that end in a pre-blank, behind which RocketMQ dispatches nothing (format 6.3): a repair of before left
them. Their last units get stand-ins, in records that stand for damage already."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketstore._native import queue_file
from rocketstore._native.mapped_file import MappedFile
from rocketstore.column_scan import scan
from rocketstore.log.queue_units import UNIT_SIZE, list_files
from rocketstore.system_flags import ROLLED_BACK, TRANSACTION_TYPE
from rocketstore.tools.repair_damage import DamagedRange
from rocketstore.tools.repair_units import placed, units_into
from rocketstore.tools.verify_log import REPAIR_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketstore.store import Store
    from rocketstore.tools.repair_units import StandIn

logger = logging.getLogger(__name__)

__all__ = ["PreBlankEnd", "ends_in_pre_blanks", "point_ends", "pre_blank_end", "with_ends"]


REASON: Final = "a queue ends in a pre-blank"


class PreBlankEnd(NamedTuple):
    """The last unit of a queue, a pre-blank: `number` of its file. `physical_offset`: of the unit before that is
    none; -1 without one in that file."""

    path: str
    start: int
    size: int
    number: int
    physical_offset: int


def ends_in_pre_blanks(store: Store) -> list[PreBlankEnd]:
    layout, _, _ = store._log_bounds()
    found = [pre_blank_end(directory) for directory in sorted(layout.consume_queue.glob("*/*"))]
    return [end for end in found if end is not None]


def pre_blank_end(directory: Path) -> PreBlankEnd | None:
    """Of a queue that ends in one."""
    for start, size in reversed(list_files(directory)):
        if size == 0 or size % UNIT_SIZE or start + size >= 1 << 63:
            continue
        path = str(directory / f"{start:020d}")
        file = MappedFile.open(path, start, size, "read")
        try:
            last = queue_file.written_units(file) - 1
            if last < 0:
                continue
            if queue_file.read_unit(file, last) != queue_file.PRE_BLANK:
                return None
            before = last - 1
            while before >= 0 and queue_file.read_unit(file, before) == queue_file.PRE_BLANK:
                before -= 1
            unit = queue_file.read_unit(file, before) if before >= 0 else None
            return PreBlankEnd(path, start, size, last, -1 if unit is None else unit[0])
        finally:
            file.close()
    return None


def with_ends(store: Store, ends: Sequence[PreBlankEnd]) -> list[DamagedRange]:
    """Records of an earlier repair to be written anew, with the stand-ins of these queues in them, as far as there
    are any behind what a queue says last."""
    fillers = _fillers(store) if ends else []
    wanted: dict[int, list[PreBlankEnd]] = {}
    free = len(fillers)
    for end in sorted(ends, key=lambda one: one.physical_offset, reverse=True):
        if free and fillers[free - 1].start > end.physical_offset:
            free -= 1
            wanted[free] = [end]
        elif fillers and fillers[-1].start > end.physical_offset:
            wanted[len(fillers) - 1].append(end)
        else:
            queue = Path(end.path).parent
            logger.warning("%s ends in a pre-blank: put a message before RocketMQ starts", queue)
    found = []
    for number, of_one in sorted(wanted.items()):
        units = placed(fillers[number], [(end, end.number) for end in of_one])
        found.append(dataclasses.replace(fillers[number], stand_ins=tuple(units)))
    return found


def _fillers(store: Store) -> list[DamagedRange]:
    """Records that stand for damage, and that no unit points to."""
    size = store.config.commit_log_file_size_bytes
    names = ("physical_offset", "size", "sys_flag", "store_timestamp_ms")
    found = []
    for chunk in scan(store, columns=names, topics=REPAIR_TOPIC, on_damage="skip"):
        rows = zip(*(chunk[name].tolist() for name in names), strict=True)
        for start, length, flags, time_ms in rows:
            if flags & TRANSACTION_TYPE == ROLLED_BACK:
                file_end = (start // size + 1) * size
                found.append(DamagedRange(start, start + length, REASON, file_end, time_ms))
    taken = {offset for hit in units_into(store, found) for offset in hit.offsets.tolist()}
    return [one for one in found if one.start not in taken]


def point_ends(stand_ins: Sequence[StandIn]) -> None:
    """Overwrites these units, which are pre-blanks, and syncs."""
    for unit in stand_ins:
        start = int(Path(unit.path).name)
        file = MappedFile.open(unit.path, start, Path(unit.path).stat().st_size, "write")
        try:
            queue_file.write_unit(file, unit.number, unit.start, unit.size, 0)
            file.sync(unit.number * UNIT_SIZE, (unit.number + 1) * UNIT_SIZE)
        finally:
            file.close()
