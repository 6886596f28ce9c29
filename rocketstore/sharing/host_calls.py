"""What guests ask their host for by name, apart from puts: a table of what may be asked, each done as a local
caller has it done.

A call gets values by the names of its arguments, which it checks as those of hostile callers. What is wrong in them is
a TypeError, a ValueError or a RocketStoreError of that call alone: `Host` sends it back to the guest, which raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rocketstore.services.delay import Delayed
from rocketstore.services.retention.service import StoreRetention
from rocketstore.services.transactions.transactions import Transactions
from rocketstore.sharing import host_commits
from rocketstore.sharing.call_values import MOST_ID, SHARED
from rocketstore.sharing.host_commits import Answer, GuestClaims
from rocketstore.sharing.messages import meant, told
from rocketstore.store import Store
from rocketstore.values.arguments import whole_number

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["CALLS", "Call", "shared_options"]

#: Takes a guest's fields out of JSON, and bytes; gives the same.
Call: TypeAlias = Callable[
    ["WritingEngine", GuestClaims, Mapping[str, Any], bytes], tuple[object, bytes]
]
#: Takes engine and claims, and values by name.
Act: TypeAlias = Callable[..., object]


def shared_options(engine: WritingEngine) -> dict[str, object]:
    """Options of the host by which guests put, and the size of its ring of records, if it has one."""
    config, ring = engine.config, engine.write.ring
    options: dict[str, object] = {name: getattr(config, name) for name in SHARED}
    options["visible"] = "flushed" if config.visible_is_flushed else "committed"
    return {"options": options, "ring_bytes": None if ring is None else ring.size}


# ---- care ----


def _configure(engine: WritingEngine, state: GuestClaims, changes: dict[str, Any]) -> None:
    engine.configure(changes)


def _trim(
    engine: WritingEngine, state: GuestClaims, before_offset: object, before_ms: object
) -> int:
    bounds = (before_offset, before_ms)
    if bounds.count(None) != 1:
        raise TypeError("trim: one of before_offset and before_ms")
    return engine.trim(
        *(None if one is None else whole_number("before", one, 0, MOST_ID) for one in bounds)
    )


def _flush(engine: WritingEngine, state: GuestClaims, limit_ms: object) -> int:
    return engine.flush(whole_number("limit_ms", limit_ms, 0, MOST_ID))


def _figures(engine: WritingEngine, state: GuestClaims) -> object:
    return engine.guests.figures()


# ---- sinks of Spark ----


def _sink_commit(engine: WritingEngine, state: GuestClaims, body: bytes) -> object:
    from rocketstore.spark.sink.serve import answer_commit  # a host without sinks does without it

    return answer_commit(Store(engine), body)


def _sink_offsets(engine: WritingEngine, state: GuestClaims, body: bytes) -> object:
    from rocketstore.spark.sink.serve import answer_offsets

    return answer_offsets(Store(engine), body)


# ---- services ----


def _transactions(engine: WritingEngine) -> Transactions:
    return engine.guests.get(Transactions, lambda: Transactions(engine))


def _done_by(service: Callable[[WritingEngine], object], name: str) -> Act:
    """What a method of a service does, or what a property of it says."""

    def act(engine: WritingEngine, state: GuestClaims, **values: Any) -> object:
        found = attrgetter(name)(service(engine))
        return found(**values) if callable(found) else found

    return act


#: Services, and what a guest may ask of each by its name: methods, and properties.
SERVICES: Final[Mapping[str, tuple[Callable[[WritingEngine], object], tuple[str, ...]]]] = {
    "Transactions": (_transactions, ("prepare", "commit", "rollback", "open", "errors")),
    "Delayed": (Delayed, ("cancel", "reschedule", "repeat")),
    "StoreRetention": (
        StoreRetention,
        ("rule", "last_error", "plan", "run", "hold", "release"),
    ),
}
#: Calls whose argument `body` is the bytes that come with them.
WITH_BODY: Final = frozenset(
    ("transaction", "Transactions.prepare", "Delayed.repeat", "sink_commit", "sink_offsets")
)


def _call(name: str, act: Act) -> Call:
    """Gives besides up to where readers see the log, by which the guest sees what it has done."""

    def run(
        engine: WritingEngine, state: GuestClaims, fields: Mapping[str, Any], blob: bytes
    ) -> tuple[object, bytes]:
        values = {one: meant(value, given=True) for one, value in fields.items() if one != "call"}
        found = act(engine, state, **values, **({"body": blob} if name in WITH_BODY else {}))
        value, data = found if isinstance(found, Answer) else (found, b"")
        return [told(value), engine.positions.visible], data

    return run


#: What each call does.
ACTS: Final[Mapping[str, Act]] = {
    "claim": host_commits.claim,
    "release": host_commits.release,
    "commit": host_commits.commit,
    "stored": host_commits.stored,
    "transaction": host_commits.transaction,
    "changing": host_commits.changing,
    "configure": _configure,
    "trim": _trim,
    "flush": _flush,
    "figures": _figures,
    "sink_commit": _sink_commit,
    "sink_offsets": _sink_offsets,
    **{
        f"{kind}.{name}": _done_by(service, name)
        for kind, (service, names) in SERVICES.items()
        for name in names
    },
}
#: Each call by its name. What it gives comes with the visible end of the log.
CALLS: Final[Mapping[str, Call]] = {name: _call(name, act) for name, act in ACTS.items()}
