"""How far delivery has come: `config/delayOffset.json`, in RocketMQ's form.

    {"dataVersion": …, "offsetTable": {1: 5, 3: 7},
     "rocketstore": {"from": 4096, "log": [4096, 3735928559], "undelivered": {}},
     "crc": 2784128337}

`offsetTable` has the next queue offset of each level, whose number has no quotes. A broker
passes over `crc`, which is a checksum (`own_json`), and over what `rocketstore` has:

- `from`: copies of messages at or after these offsets lie in the log at or after this physical
  offset, and at less than `WINDOW_BYTES` after it.
- `log`: the `LogPlace` at or above all copies that the offsets know.
- `undelivered`: messages below the offset of their level that could not be delivered yet, as queue
  offsets by level.

The file is written after everything that it speaks of is flushed. So it never claims a delivery
that a power cut takes back, and never leads beyond the end of a queue.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import Final

from rocketstore.log.layout.log_place import LogPlace, place_in
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import checksum, read_json, write_with_copy

__all__ = ["WINDOW_BYTES", "Progress", "load", "save"]

logger = logging.getLogger(__name__)

#: Log after `from` in which copies may lie that the offsets do not know; more is saved first.
WINDOW_BYTES: Final = 16 << 20
MAX_OFFSET: Final = (1 << 63) - 1
#: Levels that there may be; a queue id is a level less one.
MAX_LEVEL: Final = 1 << 31


@dataclass(slots=True)
class Progress:
    """What the file says. Offsets are queue offsets by queue id: the level less one."""

    offsets: dict[int, int] = field(default_factory=dict)
    #: Queue id to the offsets that are left over.
    undelivered: dict[int, list[int]] = field(default_factory=dict)
    #: None: the file was written by a broker, or there is none.
    begin: int | None = None
    #: None: also of an older release.
    log: LogPlace | None = None
    #: Whether a file was there that could be read.
    known: bool = False
    #: What else the file holds, carried over.
    rest: dict[str, object] = field(default_factory=dict)


def load(layout: StoreLayout) -> Progress:
    """What the file says, or its `.bak`; empty, with a line in the log, where neither is any use."""
    path = layout.delay_offsets
    document = read_json(path)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(table, dict):
        if document is not None or path.exists():
            logger.warning("%s has no table of offsets; they are found from the log", path)
        return Progress()
    own = document.get("rocketstore")
    own = own if isinstance(own, dict) else {}
    begin, left = own.get("from"), own.get("undelivered")
    undelivered: dict[int, list[int]] = {}
    for level, offsets in (left if isinstance(left, dict) else {}).items():
        if (number := _level(level)) is not None and isinstance(offsets, list):
            undelivered[number - 1] = sorted({at for at in offsets if _is_offset(at)})
    found = {_level(level): offset for level, offset in table.items() if _is_offset(offset)}
    return Progress(
        offsets={level - 1: offset for level, offset in found.items() if level is not None},
        undelivered=undelivered,
        begin=begin if _is_offset(begin) else None,
        log=place_in(own.get("log")),
        known=True,
        rest={k: v for k, v in document.items() if k not in ("offsetTable", "rocketstore")},
    )


def save(layout: StoreLayout, progress: Progress) -> None:
    """Replaces the file. Without `begin` it is what a broker writes. OSError."""
    write_with_copy(layout, layout.delay_offsets, _as_text(progress))


def _as_text(progress: Progress) -> str:
    table = ",".join(f"\n\t\t{q + 1}:{offset}" for q, offset in sorted(progress.offsets.items()))
    own: dict[str, object] = {}
    if progress.begin is not None:
        _count_change(progress)
        left = {str(q + 1): at for q, at in sorted(progress.undelivered.items()) if at}
        own["rocketstore"] = {"from": progress.begin, "log": progress.log, "undelivered": left}
        levels = {str(q + 1): offset for q, offset in progress.offsets.items()}
        own["crc"] = checksum({**progress.rest, "offsetTable": levels, **own})
    before, behind = (
        [f'\t"{name}":{json.dumps(value)}' for name, value in part.items()]
        for part in (progress.rest, own)
    )
    parts = [*before, f'\t"offsetTable":{{{table}\n\t}}', *behind]
    return "{\n" + ",\n".join(parts) + "\n}"


def _count_change(progress: Progress) -> None:
    version = progress.rest.get("dataVersion")
    counter = version.get("counter") if isinstance(version, dict) else None
    counter = counter + 1 if type(counter) is int and 0 <= counter < MAX_OFFSET else 1
    state = version.get("stateVersion") if isinstance(version, dict) else None
    progress.rest["dataVersion"] = {
        "counter": counter,
        "stateVersion": state if type(state) is int else 0,
        "timestamp": time.time_ns() // 1_000_000,
    }


def _level(text: object) -> int | None:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return int(text) if 0 < int(text) <= MAX_LEVEL else None


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_OFFSET
