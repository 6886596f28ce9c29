"""What groups and transactions of guests do at their host: claims, commits of offsets, and of messages with them.

The calls are those of `host_calls`, which says what they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from rocketstore._native.append.copies import check_promise
from rocketstore._native.append.put_result import as_waiting
from rocketstore._native.format.codec import decode_properties
from rocketstore._native.put.batch_append import Rows
from rocketstore.consuming.group_claims import GroupClaimedError
from rocketstore.consuming.group_positions import GroupPositions
from rocketstore.consuming.reading import Reading, Span
from rocketstore.errors import BackpressureError, RocketStoreError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.services.transactions.commit_records import (
    TOPIC,
    name_in,
    record_in,
    record_text,
)
from rocketstore.services.transactions.commits import commits_of
from rocketstore.services.transactions.new_copies import changing_of, checked_writer
from rocketstore.sharing.call_values import (
    MOST_ID,
    changes_in,
    check_moved,
    numbers_in,
    results_text,
    several,
)
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.durability import durability_of

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.values.arguments import Row

__all__ = [
    "Answer",
    "GuestClaims",
    "GuestConsumer",
    "changing",
    "claim",
    "commit",
    "delay_of",
    "release",
    "stored",
    "transaction",
]

#: Claims of one guest at a time, a count; a consumer has one.
MOST_CLAIMS: Final = 10_000
_ID: Final = re.compile("[0-9a-f]{16}")


class Answer(NamedTuple):
    """A value with bytes besides."""

    value: object
    data: bytes


class GuestClaims(Protocol):
    """What the calls ask of the state that the host keeps for a guest."""

    #: The owners of groups, by the numbers that the guest gave them.
    claims: dict[int, GuestConsumer]
    pid: int
    name: str


class GuestConsumer:
    """Owns a claim at the host for a consumer of a guest. The claim ends with it."""

    def __init__(
        self, guest: GuestClaims, topic: str, group: str, queue_ids: tuple[int, ...] | None
    ) -> None:
        self.topic, self.group, self.queue_ids = topic, group, queue_ids
        self.made_by = f"process {guest.pid} ({guest.name})"
        self.key = f"{topic}@{group}"
        # What the commit of a transaction looks at.
        self._reader: object = None
        self._reading = Reading(cast("Any", ()))


def _owner(
    state: GuestClaims, claim: object, topic: object, group: object, queue_ids: object
) -> GuestConsumer:
    """The owner of a claim, which is made where it is not there: a guest names all of it each time, so that the next
    host has it by the first call that needs it.

    GroupClaimedError: another consumer has the group."""
    number = whole_number("claim", claim, 0, MOST_ID)
    topic, group, named = text("topic", topic), text("group", group), None
    if queue_ids is not None:
        each = several("queue_ids", queue_ids)
        named = tuple(whole_number("queue_ids", one, 0, 2**31 - 1) for one in each)
    if len(state.claims) >= MOST_CLAIMS and number not in state.claims:
        raise BackpressureError(f"claim = {number}: a guest has {MOST_CLAIMS} consumers at most")
    found = state.claims.setdefault(number, GuestConsumer(state, topic, group, named))
    if (found.topic, found.group, found.queue_ids) != (topic, group, named):
        raise ValueError(f"claim = {number}: it is that of {found.key}, not of {topic}@{group}")
    return found


def _positions(engine: WritingEngine, owner: GuestConsumer) -> GroupPositions:
    def wait_flushed(end: int) -> None:
        engine.wait_flushed(end, None)

    return GroupPositions(
        engine.offsets, owner.topic, owner.group, owner, wait_flushed, owner.queue_ids
    )


def _stored(engine: WritingEngine, owner: GuestConsumer) -> object:
    """What the group has stored, and whether any commit may be lost with the power."""
    return engine.offsets.get(owner.topic, owner.group), engine.offsets.unsynced


def claim(engine: WritingEngine, state: GuestClaims, claim: object, **named: Any) -> object:
    owner = _owner(state, claim, **named)
    try:
        _positions(engine, owner)
    except BaseException:
        release(engine, state, claim)
        raise
    return _stored(engine, owner)


def release(engine: WritingEngine, state: GuestClaims, claim: object) -> None:
    owner = state.claims.pop(whole_number("claim", claim, 0, MOST_ID), None)
    if owner is not None:
        engine.offsets.release(owner.topic, owner.group, owner)


def commit(
    engine: WritingEngine, state: GuestClaims, offsets: object, sync: object, **claimed: Any
) -> object:
    owner, found = _owner(state, **claimed), numbers_in("offsets", offsets)
    places = [SimpleNamespace(queue_id=queue_id, committed=None) for queue_id in found]
    _positions(engine, owner).commit(
        cast("Any", places), engine.reader, found, sync=sync is not False
    )
    return _stored(engine, owner)


def stored(engine: WritingEngine, state: GuestClaims, key: object) -> object:
    return commits_of(engine).stored(text("key", key))


# ---- transactions of several messages ----


def _spans(
    engine: WritingEngine, state: GuestClaims, transaction_id: str, given: object
) -> dict[tuple[Any, str], dict[int, Span]]:
    """What a transaction has read, by the owner of the claim, which looks as the consumer did."""
    found: dict[tuple[Any, str], dict[int, Span]] = {}
    for one in several("offsets", given):
        claimed, believed, *read = several("offsets", one, 6)
        owner = _owner(state, **claimed)
        _positions(engine, owner)
        if believed is not None:
            commits, believed = commits_of(engine), numbers_in("offsets", believed)
            try:
                check_moved(owner.key, believed, commits.stored(owner.key), owner.queue_ids)
            except GroupClaimedError:
                if commits.find(transaction_id) is None:  # it was not the transaction itself
                    raise
        begins, ends, began, reset_to = (numbers_in("offsets", each) for each in read)
        if not begins.keys() == ends.keys() <= began.keys() == reset_to.keys():
            raise ValueError(f"offsets of {owner.key}: of other queues than their begins")
        cursors = [SimpleNamespace(queue_id=n, began=began[n], reset_to=reset_to[n]) for n in began]
        owner._reader, owner._reading = engine.reader, Reading(cast("Any", cursors))
        found[owner, owner.key] = {n: Span(begins[n], ends[n]) for n in ends}
    return found


def _rows(
    engine: WritingEngine, transaction_id: str, blob: bytes, wanted: Mapping[int, int]
) -> tuple[Rows, Sequence[Row]]:
    record = record_in(blob)
    if record is None or record.id != transaction_id or record.moves:
        raise ValueError(f"transaction {transaction_id}: bytes that are none of its messages")
    rows = Rows()
    rows.begin(engine.plain_writer(TOPIC, 0), transaction_id)
    for number, row in enumerate(record.copies):
        if row[3] or name_in(row) != f"{transaction_id}.{number}":
            raise ValueError(f"transaction {transaction_id}: message {number} is none of it")
        writer = (
            engine.plain_writer(row[0], row[1])
            if row[0] in (SCHEDULE_TOPIC, TIMER_TOPIC)
            else checked_writer(engine, row[0], row[1])
        )
        rows.take(writer, row, wanted.get(number + 1))
    return rows, record.copies


def transaction(
    engine: WritingEngine,
    state: GuestClaims,
    *,
    transaction_id: object,
    durability: object,
    claims: object,
    offsets: object,
    changes: object,
    wanted: object,
    body: bytes,
) -> Answer | None:
    """Appends, and waits for the promise. An error of that wait is in the answer: the transaction counts."""
    name = text("transaction_id", transaction_id)
    if not _ID.fullmatch(name):
        raise ValueError(f"transaction_id = {name!r}: 16 hexadecimal digits")
    promise = durability_of(durability)
    check_promise(engine.commit_log.log.group.copies, promise)
    rows, copies = _rows(engine, name, body, numbers_in("wanted", wanted))
    claimed = {}
    for row in several("claims", claims):
        number = whole_number("claims", row, 1, len(copies))
        claimed[_claimed(engine, copies[number - 1])] = number
    commits = commits_of(engine)
    appended = commits.append(
        name, rows, claimed, _spans(engine, state, name, offsets), changes_in(changes)
    )
    if appended is None:
        return None
    commits.remember(name, appended)
    for row, result in zip_longest(copies, appended.results):
        delay = delay_of(engine, row[0], row[1], row[5])
        if delay is not None:
            delay.note()
        if result is not None and not result.duplicate:
            as_waiting(result, delay, None)
    error = None
    try:
        commits.wait(name, appended, promise)
    except (RocketStoreError, OSError) as met:
        error = met
    return Answer((appended.number, appended.end_offset, error), results_text(appended.results))


def delay_of(engine: WritingEngine, topic: str, queue_id: int, properties: bytes) -> Any:
    """When a message is due that waits, as a result takes it; its `note()` wakes the service. None of any
    other."""
    delays = engine.delayed_puts
    if topic == SCHEDULE_TOPIC and queue_id < len(levels := engine.config.delay_level_ms):
        note = partial(delays.note_level, queue_id)
        return SimpleNamespace(due_ms=0, span_ms=levels[queue_id], note=note)
    if topic == TIMER_TOPIC:
        due = decode_properties(properties).get("TIMER_OUT_MS", "")
        due_ms = int(due[:18]) if due.isdecimal() else 0
        return SimpleNamespace(due_ms=due_ms, span_ms=0, note=partial(delays.note_due, due_ms))
    return None


def _claimed(engine: WritingEngine, row: Row) -> tuple[str, str]:
    """The unique id of a message, and the topic in which it is the only one."""
    properties = decode_properties(row[5])
    waits = row[0] in (SCHEDULE_TOPIC, TIMER_TOPIC)
    topic = properties.get("REAL_TOPIC", "") if waits else row[0]
    return engine.unique_ids.claim(topic, properties.get("UNIQ_KEY", ""))


def changing(engine: WritingEngine, state: GuestClaims, changes: object, name: object) -> Answer:
    name = text("name", name)
    with changing_of(engine, changes_in(changes)) as now:
        rows = [] if now is None else now.rows(name)
    return Answer(None, record_text("0" * 16, rows))
