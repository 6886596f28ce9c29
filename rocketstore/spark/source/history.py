"""What distinguishes a place of a checkpoint from the same number in another history of its store.

A copy that was put back has the name of the store that it was made of, and may have grown beyond
the place since. So an offset carries `last`, the record before its place. Where the store is a master
or a replica it carries `epochs`, too: which runs of masters wrote what lies before its place. A
replica is cut where its master's history is another one; that place follows from both lists.
"""

from __future__ import annotations

from typing import Any

import rocketstore
from rocketstore import Store
from rocketstore.replication import epochs_before, parted_at
from rocketstore.scanning import record_at
from rocketstore.scanning import record_before as before

__all__ = ["epochs_before", "not_this_history", "parted_at", "record_before"]

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
