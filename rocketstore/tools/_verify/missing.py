"""Holds what the log says against what the queues have: records without a unit, and queue offsets
without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from rocketstore._native.format import queue_file
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.listing import list_files
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore.log.recovery.returned_topics import broker_topics
from rocketstore.tools._verify.hidden import find_hidden
from rocketstore.tools.filler_records import is_pointed_filler
from rocketstore.values.plural import counted

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.tools._verify.facts import LogFacts, LostUnits, Scope
    from rocketstore.tools._verify.queues import QueueSeen
    from rocketstore.tools.report import Findings

__all__ = ["check_lost", "compare_queues"]


def compare_queues(
    layout: StoreLayout,
    seen: list[QueueSeen],
    facts: LogFacts,
    scope: Scope,
    findings: Findings,
) -> None:
    """Every record has its unit: none is missing before, between or after the others, but for those
    that may wait for one. Units that are wrong were named before."""
    found = {(queue.topic, queue.queue_id): queue for queue in seen}
    agreed = {
        place
        for place, queue in found.items()
        if place in facts.queues and queue.matching == facts.queues[place].records and not queue.bad
    }
    if len(agreed) == len(facts.queues):
        return
    ends, known_topics = (
        {place: queue.next for place, queue in found.items()},
        broker_topics(layout),
    )
    hidden = find_hidden(layout, facts, scope, ends, findings, agreed)
    findings.hidden = hidden.messages()
    for one in findings.hidden:
        place = topic, queue_id = one.topic, one.queue_id
        queue, known = found.get(place), facts.queues[place]
        end = 0 if queue is None else queue.next
        wrong = 0 if queue is None else queue.bad - len(facts.losses.offsets.get(place, ()))
        if one.count > wrong:
            text = f"{counted(one.count - wrong, 'record')} without a unit; "
            text += f"the log has {known.first} … {known.next - 1}"
            text += f", the queue ends at {end}"
            if queue is None and known_topics is not None and topic not in known_topics:
                text += "; topics.json lacks the topic, so a broker may have deleted it"
            where = str(layout.queue_directory(topic, queue_id))
            findings.add("derived", where, end * UNIT_SIZE, text, code="hidden")


def check_lost(layout: StoreLayout, facts: LogFacts, findings: Findings) -> None:
    """Queue offsets that are missing in the log have units in place of them in their queues, or
    that name them as lost."""
    for lost in (gap for known in facts.queues.values() for gap in known.gaps):
        named = facts.losses.offsets.get((lost.topic, lost.queue_id), ())
        if named and all(number in named for number in range(lost.first, lost.end)):
            continue
        if not _are_stood_for(layout.queue_directory(lost.topic, lost.queue_id), lost, facts):
            text = f"{lost.topic}/{lost.queue_id}: queue offset {lost.end} follows {lost.first - 1}"
            findings.add("derived", lost.file, lost.position, text, code="gap")


def _are_stood_for(directory: Path, lost: LostUnits, facts: LogFacts) -> bool:
    """By pre-blanks and by records of `repair`."""
    first, end = lost.first * UNIT_SIZE, lost.end * UNIT_SIZE
    for start, size in list_files(directory):
        low, high = max(first, start), min(end, start + size)
        if low != first or low >= high or size % UNIT_SIZE:
            continue  # files in order: each begins where the one before ended
        file = MappedFile.open(str(directory / f"{start:020d}"), start, size, "read")
        try:
            units = numpy.frombuffer(file.read(low - start, high - low), queue_file.UNIT_FIELDS)
        finally:
            file.close()
        others = units[~_pre_blanks(units)]
        if not all(_is_at(facts, *unit[:2]) for unit in others.tolist()):
            return False
        first = high
    return first == end


def _is_at(facts: LogFacts, physical_offset: int, size: int) -> bool:
    try:
        message = facts.message_at(physical_offset)
    except CorruptRecordError:
        return False
    return message.size == size and is_pointed_filler(message)


def _pre_blanks(units: NDArray[numpy.void]) -> NDArray[numpy.bool_]:
    blank = (units["size"] == PRE_BLANK_SIZE) & (units["physical_offset"] == 0)
    return numpy.asarray(blank, numpy.bool_)
