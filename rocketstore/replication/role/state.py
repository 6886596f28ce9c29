"""`rocketstore/replication.json`: a store's history, its role, and the masters that wrote it.

The file is there once a store was a master or a replica. It is replaced as a whole, and one that
cannot be read is an error: without it a replica would take puts, and a fenced master go on.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rocketstore.errors import ReplicationError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json_file, write_own_json
from rocketstore.replication.protocol.epochs import (
    NUMBER_MAX,
    Epoch,
    believable,
    check_epochs,
    term_of,
    with_promotion,
    with_run,
)
from rocketstore.values.bounded_json import LIMITS

__all__ = [
    "ReplicationState",
    "Role",
    "as_master",
    "as_replica",
    "epochs_before",
    "fenced",
    "load_state",
    "note_stopped",
    "promoted",
    "save_state",
    "shared_until",
]

Role = Literal["master", "replica"]
VERSION: Final = 1
STORE_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationState:
    """What `replication.json` says. `store_id`: of the first master of this history, random."""

    role: Role
    store_id: bytes = b""
    #: Which master wrote which part of the log; none of a replica of RocketMQ.
    epochs: tuple[Epoch, ...] = ()
    #: The term in which another store took the place of this master; None: it may take puts.
    fenced_by: int | None = None
    #: Why the copy stopped, until it goes on; empty: it did not.
    stopped: str = ""

    @property
    def term(self) -> int:
        """The term of the last epoch; 0 without one."""
        return term_of(self.epochs)


def load_state(layout: StoreLayout) -> ReplicationState | None:
    """None for a store that never was a master or a replica.

    Raises:
        ReplicationError: the file is damaged, or of a newer release.
    """
    path = layout.replication
    try:
        return _parse(read_json_file(path, LIMITS[path.name]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReplicationError(
            f"{path} does not tell the role of this store: {error!r}; restore the file, or make a "
            "new copy of the master in another directory"
        ) from error


def save_state(layout: StoreLayout, state: ReplicationState) -> None:
    """Replaces the file; durable when this returns."""
    document = {
        "version": VERSION,
        "store_id": state.store_id.hex(),
        "role": state.role,
        "epochs": [
            {"term": one.term, "run": one.run, "start": one.start, "id": one.id.hex()}
            for one in state.epochs
        ],
        "fenced_by": state.fenced_by,
        "stopped": state.stopped,
    }
    write_own_json(layout, layout.replication, document)


def as_master(state: ReplicationState | None, *, begin: int, end: int) -> ReplicationState:
    """The state of a master that has opened its log [begin, end), with an epoch of its own."""
    before = state or ReplicationState(role="master")
    return dataclasses.replace(
        before,
        role="master",
        store_id=before.store_id or secrets.token_bytes(STORE_ID_BYTES),
        epochs=with_run(before.epochs, begin=begin, end=end),
        stopped="",
    )


def promoted(
    state: ReplicationState | None, *, begin: int, end: int, above: int = 0
) -> ReplicationState:
    """The state of a store that becomes the master by hand: a new term, above all that it knows and
    above `above`."""
    before = state or ReplicationState(role="master")
    known = max(before.term, before.fenced_by or 0)
    if not believable(above, known or 1):
        raise ReplicationError(
            f"above: {above} is no term of this history, of which the store knows {known}: give "
            "the largest one that 'rocketstore promote --dry-run' shows on its machines"
        )
    return dataclasses.replace(
        before,
        role="master",
        store_id=before.store_id or secrets.token_bytes(STORE_ID_BYTES),
        epochs=with_promotion(before.epochs, begin=begin, end=end, above=max(above, known)),
        fenced_by=None,
        stopped="",
    )


def note_stopped(layout: StoreLayout, why: str) -> None:
    """Keeps why a copy stopped; empty: it goes on. OSError, ReplicationError: as it is."""
    state = load_state(layout)
    if state is not None and state.stopped != why:
        save_state(layout, dataclasses.replace(state, stopped=why))


def fenced(state: ReplicationState, term: int) -> ReplicationState:
    """The state of a master that has heard of a later term."""
    return dataclasses.replace(state, fenced_by=max(term, state.fenced_by or 0))


def as_replica(
    state: ReplicationState | None, store_id: bytes, epochs: tuple[Epoch, ...]
) -> ReplicationState:
    """The state of a copy of a master with this identity. It goes on to know of a later term."""
    before = state or ReplicationState(role="replica")
    heard = before.fenced_by if (before.fenced_by or 0) > term_of(epochs) else None
    return dataclasses.replace(
        before, role="replica", store_id=store_id, epochs=epochs, fenced_by=heard
    )


def _parse(found: Any) -> ReplicationState:
    if found["version"] != VERSION:
        raise ValueError(f"version {found['version']!r}")
    if found["role"] not in ("master", "replica"):
        raise ValueError(f"role {found['role']!r}")
    store_id = bytes.fromhex(found["store_id"])
    if len(store_id) not in (0, STORE_ID_BYTES):
        raise ValueError(f"a store id of {len(store_id)} bytes")
    epochs = tuple(
        Epoch(
            _whole(one["term"]), _whole(one["run"]), _whole(one["start"]), bytes.fromhex(one["id"])
        )
        for one in found["epochs"]
    )
    check_epochs(epochs)
    fenced_by = found["fenced_by"]
    if fenced_by is not None and _whole(fenced_by) > NUMBER_MAX:
        raise ValueError(f"fenced by a term above {NUMBER_MAX}")
    return ReplicationState(
        role=found["role"],
        store_id=store_id,
        epochs=epochs,
        fenced_by=fenced_by,
        stopped=str(found.get("stopped", "")),
    )


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number")
    return value


# What a reader keeps of a history with a place in the log, to know later whether it is still there.
# A replica is cut where its master's history is another one, and grows on: the same place may be
# of other messages then.

#: As many epochs are kept with a place. Where a store has none of them any more, nothing is known.
EPOCHS_MOST: Final = 8


def epochs_before(path: str | os.PathLike[str], place: int) -> list[list[Any]]:
    """[id, start] of the last epochs that begin at `place` or before it; none of a store that was no
    master and no replica, or whose role cannot be read."""
    return [[one.id.hex(), one.start] for one in _epochs(path) if one.start <= place][-EPOCHS_MOST:]


def shared_until(
    path: str | os.PathLike[str], place: int, epochs: Iterable[tuple[str, int]]
) -> int | None:
    """Up to where, at most `place`, the history of the store is the one that had `epochs`. None where
    they have no epoch in common, or where that is not known."""
    here = _epochs(path)
    starts = [one.start for one in here]
    ends = {one.id.hex(): end for one, end in zip(here, [*starts[1:], place], strict=False)}
    end = place
    for name, start in reversed(list(epochs)):
        if name in ends:
            return min(end, ends[name])
        end = int(start)
    return None


def _epochs(path: str | os.PathLike[str]) -> tuple[Epoch, ...]:
    try:
        state = load_state(StoreLayout(Path(path)))
    except ReplicationError:  # messages of such a store can be read
        return ()
    return () if state is None else state.epochs
