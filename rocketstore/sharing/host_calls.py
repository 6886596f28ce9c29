"""What guests ask their host for by name, apart from puts: each call checked as hostile bytes, then done as a
local caller has it done.

A call gets fields out of JSON and a blob, and gives the same. What is wrong in them is a TypeError, a ValueError or a
RocketStoreError of that call alone: `Host` sends it back to the guest, which raises it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from rocketstore._native.append.put_result import restore_put_result
from rocketstore.services.delay import Delayed
from rocketstore.services.retention.service import StoreRetention
from rocketstore.services.transactions.transactions import Transactions
from rocketstore.sharing import host_commits
from rocketstore.sharing.call_values import (
    MOST_ID,
    SHARED,
    Fields,
    durability_in,
    moment_in,
    rule_fields,
    rule_of,
    texts_in,
)
from rocketstore.sharing.host_commits import Answer, Call, GuestClaims
from rocketstore.sharing.messages import error_fields
from rocketstore.store import Store
from rocketstore.values.arguments import text, whole_number

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["CALLS", "shared_options"]


def shared_options(engine: WritingEngine) -> dict[str, object]:
    """Options of the host by which guests put, and the size of its ring of records, if it has one."""
    config, ring = engine.config, engine.write.ring
    options: dict[str, object] = {name: getattr(config, name) for name in SHARED}
    options["visible"] = "flushed" if config.visible_is_flushed else "committed"
    return {"options": options, "ring_bytes": None if ring is None else ring.size}


# ---- half messages ----


def _transactions(engine: WritingEngine) -> Transactions:
    return engine.guests.get(Transactions, lambda: Transactions(engine))


def _prepare(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    born, properties = fields.get("born_ms"), texts_in("properties", fields.get("properties", {}))
    made = _transactions(engine).prepare(
        text("topic", fields.get("topic")),
        blob,
        group=text("group", fields.get("group")),
        queue_id=fields.get("queue_id", 0),
        tags=properties.pop("TAGS", None),
        keys=properties.pop("KEYS", None),
        properties=properties,
        flag=fields.get("flag", 0),
        born_time=None if born is None else whole_number("born_ms", born),
        durability=durability_in(fields),
    )
    return [made.id, made.unique_id], b""


def _settle(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    which, durability = fields.get("id"), durability_in(fields)
    name = whole_number("id", which, 0, MOST_ID)
    if fields.get("want") == "rollback":
        _transactions(engine).rollback(name, durability)
        return None, b""
    return _transactions(engine).commit(name, durability), b""


def _open(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    service = _transactions(engine)
    found = []
    for one in service.open():
        known = dataclasses.asdict(dataclasses.replace(one, error=None))
        del known["error"]
        found.append([known, _error(one.error)])
    return {"open": found, "errors": [_error(one) for one in service.errors]}, b""


def _error(error: BaseException | None) -> dict[str, object] | None:
    return None if error is None else error_fields(error)


# ---- delayed messages ----


def _waiting(fields: Fields) -> Any:
    """What a call of `Delayed` names: an id, or the place of a message."""
    at, place = fields.get("at"), fields.get("place")
    if at is None:
        return text("unique_id", fields.get("unique_id"))
    at, place = whole_number("at", at, 0, MOST_ID), whole_number("place", place, 0, MOST_ID)
    return restore_put_result(place, place, 0, at, 0, 1, 0, b"", None)


def _cancel(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    return Delayed(engine).cancel(_waiting(fields)).value, b""


def _reschedule(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    when = moment_in("when", fields.get("when"))
    return Delayed(engine).reschedule(_waiting(fields), 0 if when is None else when), b""


def _repeat(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    every, unique_id = fields.get("every"), fields.get("unique_id")
    start = moment_in("start", fields.get("start"))
    return Delayed(engine).repeat(
        text("topic", fields.get("topic")),
        blob,
        cast("Any", every if isinstance(every, str) else moment_in("every", every)),
        unique_id=None if unique_id is None else text("unique_id", unique_id),
        start=cast("int | None", start),
        timezone=text("timezone", fields.get("timezone", "UTC")),
        queue_id=whole_number("queue_id", fields.get("queue_id", 0), 0, 2**31 - 1),
        properties=texts_in("properties", fields.get("properties", {})),
    ), b""


# ---- care ----


def _configure(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    changes = fields.get("changes")
    if not isinstance(changes, dict):
        raise TypeError("changes: expected options by name")
    engine.configure(changes)
    return None, b""


def _trim(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    bounds = (fields.get("before_offset"), fields.get("before_ms"))
    if bounds.count(None) != 1:
        raise TypeError("trim: one of before_offset and before_ms")
    offset, when_ms = (
        None if one is None else whole_number("before", one, 0, MOST_ID) for one in bounds
    )
    return engine.trim(offset, when_ms), b""


def _flush(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    limit_ms = fields.get("limit_ms")
    return engine.flush(
        None if limit_ms is None else whole_number("limit_ms", limit_ms, 0, MOST_ID)
    ), b""


def _retention(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    """What `StoreRetention` of the host says and does."""
    service, given = StoreRetention(engine), fields.get("rule")
    rule = None if given is None else rule_of(given)
    asked = fields.get("asked")
    if asked == "rule":
        own, error = service.rule, service.last_error
        return [None if own is None else rule_fields(own), _error(error)], b""
    if asked in ("plan", "run"):
        plan = service.plan(rule) if asked == "plan" else service.run(rule)
        return dataclasses.asdict(plan), b""
    name = text("name", fields.get("name"))
    if asked == "release":
        return service.release(name), b""
    service.hold(name, whole_number("offset", fields.get("offset"), 0, MOST_ID))
    return None, b""


def _figures(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    return engine.guests.figures(), b""


# ---- sinks of Spark ----


def _sink_commit(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    from rocketstore.spark.sink.serve import answer_commit  # a host without sinks does without it

    return answer_commit(Store(engine), blob), b""


def _sink_offsets(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
    from rocketstore.spark.sink.serve import answer_offsets

    return answer_offsets(Store(engine), blob), b""


def _shown(call: Call) -> Call:
    """Gives besides up to where readers see the log, by which the guest sees what it has done."""

    def run(engine: WritingEngine, state: GuestClaims, fields: Fields, blob: bytes) -> Answer:
        value, data = call(engine, state, fields, blob)
        return [value, engine.positions.visible], data

    return run


#: Each call by its name. What it gives comes with the visible end of the log.
CALLS: Final[Mapping[str, Call]] = {
    name: _shown(call)
    for name, call in {
        "claim": host_commits.claim,
        "release": host_commits.release,
        "commit": host_commits.commit,
        "stored": host_commits.moving,
        "transaction": host_commits.transaction,
        "changing": host_commits.changing,
        "prepare": _prepare,
        "settle": _settle,
        "open_transactions": _open,
        "cancel": _cancel,
        "reschedule": _reschedule,
        "repeat": _repeat,
        "configure": _configure,
        "trim": _trim,
        "flush": _flush,
        "figures": _figures,
        "retention": _retention,
        "sink_commit": _sink_commit,
        "sink_offsets": _sink_offsets,
    }.items()
}
