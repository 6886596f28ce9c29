"""The files of a copy that hold what its master's broker knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.log.layout.state_files import json_text, write_with_copy
from rocketstore.replication.broker import answers
from rocketstore.services.delay.progress import Progress, save
from rocketstore.values.bounded_json import LIMITS, weigh

__all__ = [
    "DELAY_FILE",
    "DELAY_OFFSETS",
    "LOG_END",
    "SIDE_FILES",
    "SideFile",
    "write_delay_offsets",
]

#: Request codes of RocketMQ: how far the delay levels are, and where the log ends.
DELAY_OFFSETS: Final = 45
LOG_END: Final = 28
DELAY_FILE: Final = "delayOffset.json"


@dataclass(frozen=True, slots=True)
class SideFile:
    """One file, the request for what it holds, and what takes an answer: it gives how many entries
    there are.

    Raises, of `take`:
        ValueError: the answer holds no such thing; the file stays as it is.
        OSError: the file cannot be written.
    """

    code: int
    name: str
    take: Callable[[WritingEngine, bytes], int]


def _take_topics(engine: WritingEngine, body: bytes) -> int:
    return _write(engine, "topics.json", answers.topics(body), "topicConfigTable")


def _take_groups(engine: WritingEngine, body: bytes) -> int:
    found = answers.groups(body)
    return _write(engine, "subscriptionGroup.json", found, "subscriptionGroupTable")


def _write(engine: WritingEngine, name: str, document: dict[str, object], table: str) -> int:
    layout, text = engine.layout, json_text(document)
    weigh(text, LIMITS[name])
    write_with_copy(layout, layout.config / name, text)
    rows = document[table]
    assert isinstance(rows, dict)
    return len(rows)


def _take_group_offsets(engine: WritingEngine, body: bytes) -> int:
    rows = answers.group_offsets(body)
    engine.offsets.take_from_master(rows, whole=True)
    return sum(map(len, rows.values()))


#: The service asks for them in this order, so that it knows a topic before an offset in it.
SIDE_FILES: Final = (
    SideFile(21, "topics.json", _take_topics),
    SideFile(201, "subscriptionGroup.json", _take_groups),
    SideFile(43, "consumerOffset.json", _take_group_offsets),
)


def write_delay_offsets(
    engine: WritingEngine, offsets: dict[int, int], rest: dict[str, object]
) -> None:
    """Replaces `delayOffset.json`, by delay level. The copies of the messages below must be on this
    disk: a promoted store delivers none of them. OSError."""
    by_queue = {level - 1: offset for level, offset in offsets.items()}
    save(engine.layout, Progress(offsets=by_queue, rest=rest))
