"""What holds the front of a log: groups that have not consumed it, archives that lack it, names that
programs gave, services that need it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from rocketstore._native.format.queue_file import UNIT_SIZE, first_kept, read_unit
from rocketstore.archive.shipped import unshipped_from
from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ReadFailedError
from rocketstore.log.layout.named_holds import load_holds
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.source import QueueView
from rocketstore.log.read.unit_place import next_file
from rocketstore.services.retention.rule import Retention

__all__ = ["Hold", "holds_of"]


@dataclass(frozen=True, slots=True)
class Hold:
    """The log is needed from a physical offset on. `cause` names what needs it, without the offsets
    that are in `what`. `free`: as `Guests.hold` has it."""

    what: str
    from_offset: int
    cause: str = ""
    free: Callable[[int, int], int | None] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.what} (from {self.from_offset})"


def holds_of(engine: Engine, rule: Retention, begin: int, end: int) -> list[Hold]:
    """Everything that holds a part of [begin, end), where `end` is no further than the queues
    are."""
    found = list(_unconsumed(engine, rule.keep_unconsumed_by, begin))
    if rule.keep_unshipped:
        at, archives = unshipped_from(
            engine.layout, engine.reader.source.segments(), begin, engine.positions.wrote
        )
        why = f"not shipped to {' or '.join(archives)}" if archives else "never shipped"
        found.append(Hold(why, at, "archives"))
    try:
        for name, at in load_holds(engine.layout).items():
            found.append(Hold(f"held by {name!r}", at, f"hold {name!r}"))
    except ReadFailedError as error:
        found.append(Hold(str(error), begin, "holds"))
    if isinstance(engine, WritingEngine):
        found += [
            Hold(f"needed by {name}", at, name, engine.guests.free.get(name))
            for name, at in engine.guests.holds()
        ]
    return [hold for hold in found if hold.from_offset < end]


def _unconsumed(
    engine: Engine, groups: Collection[str] | Literal["all"] | None, begin: int
) -> Iterator[Hold]:
    if groups is None:
        return
    offsets, source = engine.offsets, engine.reader.source
    wanted = offsets.groups() if groups == "all" else groups
    known = set(offsets.groups())
    topics = {topic: set(offsets.groups(topic)) for topic in source.topics()}
    for group in wanted:
        if group not in known:
            yield Hold(f"group {group} has stored no offset yet", begin, f"group {group}")
            continue
        found = [
            Hold(
                f"group {group} has not consumed {topic}/{queue_id} from queue offset {at}",
                *(first, f"group {group}"),
            )
            for topic, there in topics.items()
            if group in there
            for queue_id, at, first in _first_unread(engine, topic, group)
        ]
        if found:
            yield min(found, key=lambda hold: hold.from_offset)


def _first_unread(engine: Engine, topic: str, group: str) -> Iterator[tuple[int, int, int]]:
    """Queue id, queue offset and physical offset of the first message of each queue that a group
    has not consumed. A queue that the group has stored no offset of is not consumed at all."""
    source, stored = engine.reader.source, engine.offsets.get(topic, group)
    for queue_id in source.queues(topic):
        queue = source.queue(topic, queue_id)
        if queue is None:
            continue
        # The end first: what comes meanwhile is not in the queue as far as the caller looks.
        end, begin = queue.max_offset, queue.min_offset
        at = max(stored.get(queue_id, 0), begin)
        if at >= end:
            continue
        first = _record_of(queue, at, end, source.minimum())
        if first is not None:
            yield queue_id, at, first


def _record_of(queue: QueueView | BatchQueue, at: int, end: int, minimum: int) -> int | None:
    """Where the first record of a queue from an offset on is; None if the queue has none."""
    if isinstance(queue, BatchQueue):
        units = queue.from_offset(at, 1)
        return units[0].physical_offset if units else None
    while at < end:
        place = queue.locate(at)
        if place is None:  # units that are missing: a reader steps over the file
            at = next_file(queue, at)
            continue
        file, position, count = place
        unit_number = position // UNIT_SIZE
        found = first_kept(file, unit_number, count, minimum)
        if found < unit_number + count:
            unit = read_unit(file, found)
            return None if unit is None else unit[0]
        at += count
    return None
