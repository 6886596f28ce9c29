"""Which messages are gone from the log, by what the queues, which outlive them, say.

A unit that points to no record is of a lost message, where the log has a hole there and no other
record with its queue offset. Any other such unit is wrong itself. One hole is one fault, however
many units point into it: the walk of the log names it, but for the end of the log, which only queues
and index can show.
"""

from __future__ import annotations

from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.units import SIZE_MAX
from rocketstore.tools._verify.facts import LogFacts
from rocketstore.tools._verify.holes import OFFSET_MAX, Hole, Losses, hole_at
from rocketstore.tools._verify.queues import QueueSeen
from rocketstore.tools.report import Findings
from rocketstore.values.plural import counted

__all__ = ["name_end", "name_losses"]


def name_losses(queues: list[QueueSeen], facts: LogFacts, findings: Findings) -> Losses:
    """Judges the units of all queues that point to no record. Relies on: `facts` has its holes."""
    losses = Losses()
    for topic, queue_id, queue_offset, stored_ms in facts.damaged:
        losses.counts.add(topic, queue_id, queue_offset, (stored_ms, stored_ms))
    for queue in queues:
        units = queue.dangling
        lost: set[int] = set()
        # Garbage of a queue is no proof of a lost end: it has sizes that no record has.
        garbage = any(not 0 < size <= SIZE_MAX for size in units.sizes)
        for number, offset, size in zip(units.numbers, units.offsets, units.sizes, strict=True):
            hole = hole_at(facts.holes, offset)
            known = facts.queues.get((queue.topic, queue.queue_id))
            # The end of the log has lost none of the messages before one that is there.
            at_end = hole is not None and hole.end == OFFSET_MAX
            end = (OFFSET_MAX if garbage else known.next if known else -1) if at_end else -1
            if (
                hole is None
                or not 0 < size <= SIZE_MAX
                or number < end
                or (known and known.has(number))
            ):
                file, position = queue.unit_place(number)
                text = f"points to {offset}: {_reason(facts, offset)}"
                findings.add("derived", file, position, text)
                continue
            lost.add(number)
            losses.counts.add(queue.topic, queue.queue_id, number, (hole.after_ms, hole.before_ms))
            if hole.end == OFFSET_MAX:
                losses.behind += 1
                losses.last = max(losses.last, offset)
        if lost:
            losses.offsets[queue.topic, queue.queue_id] = lost
    return losses


def _reason(facts: LogFacts, offset: int) -> str:
    try:
        facts.message_at(offset)
    except CorruptRecordError as error:
        return error.reason
    return "no record"


def name_end(layout: StoreLayout, facts: LogFacts, findings: Findings) -> None:
    """The end of the log, where queues know records after it. Relies on: the index was walked. What
    the index alone says is a fault of the index: one bit of an entry leads anywhere."""
    losses = facts.losses
    end = facts.holes[-1] if facts.holes and facts.holes[-1].end == OFFSET_MAX else Hole(0, 0)
    if not losses.behind:
        if end.entries:
            text = f"{counted(end.entries, 'entry', 'entries')} point behind the end of the log, "
            text += f"{facts.end}, up to {end.last}"
            findings.add("derived", str(layout.index), 0, text)
        return
    last = max(losses.last, end.last)
    file = facts.files.get(facts.end - facts.end % facts.file_size)
    where = str(layout.commit_log) if file is None else file.path
    behind = max((file.end_offset for file in facts.files.values()), default=0)
    pointing = [counted(losses.behind, "queue unit")]
    if end.entries:
        pointing.append(counted(end.entries, "index entry", "index entries"))
    text = f"the log ends here, and {' and '.join(pointing)} point behind it, up to {last}"
    position = facts.end % facts.file_size if file is not None else 0
    # What lies in files that are there was cut, or never came to the disk.
    findings.add("lost", where, position, text, code="tail" if last < behind else "end")
