"""Whether a log has the history in which a stream's offset was made.

What distinguishes the place of an offset from the same number in another history of its store: a copy
that was put back has the name of the store that it was made of, and may have grown beyond the place
since. So an offset carries `last`, the record before its place. Where the store is a master or a
replica it carries `epochs`, too: which runs of masters wrote what lies before its place. A replica is
cut where its master's history is another one, and a copy that is promoted may lack the end; that
place follows from both lists, whatever the names of the two stores are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import rocketstore
from rocketstore import Store
from rocketstore.replication import shared_until
from rocketstore.scanning import record_at
from rocketstore.scanning import record_before as before
from rocketstore.spark.errors import SparkFaceError

__all__ = ["OtherLog", "check_store", "not_this_history", "other_log", "record_before"]

#: Physical offset, store time, bytes of the record, CRC-32 of the body.
Record = dict[str, int]


def record_before(store: Store, place: int) -> Record | None:
    """The last record that begins below `place`; None where the log begins there, or where only
    damage is near."""
    return before(rocketstore.scan(store), place)


def not_this_history(store: Store, offset: dict[str, Any]) -> str:
    """Why this log is not the one in which the offset was made; empty where it is, and where the
    record before its place is not kept or not known (offsets of an earlier release)."""
    last = offset.get("last")
    if not isinstance(last, dict) or "phys" not in last:
        return ""
    start = int(last["phys"])
    if start < store.begin_offset:
        return ""
    if start >= store.visible_offset:
        return f"the log ends at {store.visible_offset}, below the record at {start}"
    found = record_at(rocketstore.scan(store), start)
    if found is None:
        return f"no record begins at {start} any more"
    if found != last:
        return f"another record is at {start}: {found}, it was {last}"
    return ""


def check_store(path: str, uuid: str, offset: dict[str, Any]) -> None:
    """Raises SparkFaceError: RS_STORE_REPLACED, where another store than the one of this name made
    the offset, and nothing shows that the two have a history in common."""
    if not _is_of_another(uuid, offset) or _shared(path, offset) is not None:
        return
    named = " and ".join(f"{name} from {start}" for name, start in offset.get("epochs", ()))
    why = f"its epochs {named} are not" if named else "it has no epoch that could be"
    raise SparkFaceError(
        "RS_STORE_REPLACED",
        f"{path} is store {uuid or 'without a name'}, the checkpoint is of {offset['store']}, and "
        f"{why} in the history here; go on at a copy of that store, or start with a new checkpoint",
    )


class OtherLog(NamedTuple):
    """Why a log is not the one of an offset; where a stream goes on that may lose messages, and the
    place from where on the log is another one, as far as that is known."""

    text: str
    goes_on: int
    place: int


def other_log(
    path: str, uuid: str, store: Store, offset: dict[str, Any], end: int
) -> OtherLog | None:
    """None where the log, which ends at `end`, is that of an offset which `check_store` takes."""
    place = int(offset["phys"])
    because = "the store was replaced by an older copy, or lost its end"
    goes_on, shared = min(place, end), _shared(path, offset)
    parted = shared if shared is not None and shared < place else None
    if parted is not None:
        why = f"has another history from {parted} on, below {place} of the checkpoint"
        because = "what was read from there on was cut off (rocketstore/quarantine)"
        goes_on = parted
    elif end < place:
        why = f"ends at {end}, below {place} of the checkpoint"
    elif found := not_this_history(store, offset):
        why = f"was not written up to {place} of the checkpoint in this history: {found}"
    else:
        return None
    if _is_of_another(uuid, offset) and goes_on < place:
        epochs = offset["epochs"]
        name, start = ([one for one in epochs if one[1] <= goes_on] or epochs)[-1]
        because = (
            f"[{goes_on}, {place}) of store {offset['store']}, the end of its epoch {name} "
            f"from {start}, never came to this copy"
        )
    return OtherLog(f"{why}: {because}", goes_on, place if parted is None else parted)


def _is_of_another(uuid: str, offset: dict[str, Any]) -> bool:
    """Whether another store made the offset: a master or a copy of this one, perhaps."""
    # A store that RocketMQ made has no name until rocketstore first writes it.
    return offset["store"] not in (uuid, "")


def _shared(path: str, offset: dict[str, Any]) -> int | None:
    return shared_until(path, int(offset["phys"]), offset.get("epochs", ()))
