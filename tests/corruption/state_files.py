"""Every file that a store may have under `config/` and `rocketstore/`, and what lies there in a store that
has none."""

from __future__ import annotations

import fnmatch
from typing import Any, Final

from rocketstore.spark.sink.journal import file_name
from rocketstore.tools._verify.broker import SIDE_FILES

__all__ = ["ALONE", "FILES", "ORDERS", "PATTERNS", "row_of"]

OFFSETS: Final = {"offsetTable": {"orders@g": {"0": 3}}}
TOPICS: Final = {"topicConfigTable": {"orders": {"perm": 6, "readQueueNums": 2}}}
GROUPS: Final = {"subscriptionGroupTable": {"g": {"groupName": "g", "retryQueueNums": 1}}}
DELAYS: Final = {
    "offsetTable": {"1": 0, "18": 1},
    "rocketstore": {"from": 0, "log": [0, 0], "undelivered": {"18": [0]}},
}
RECOVERY: Final = {
    "version": 1,
    "mode": "unclean",
    "clean": False,
    "start": 0,
    "end": 0,
    "dispatch_start": 0,
    "damage": [{"start": 0, "end": 9, "reason": "x", "topics": ["orders"]}],
    "first_time_fall": -1,
}
EMERGENCY: Final = {"time_ms": 1, "begin_offset": 0, "new_begin_offset": 9, "disk_used": 0.9}
RETENTION: Final = {"version": 1, "emergencies": [{**EMERGENCY, "given_up": ["never shipped"]}]}
SHIPPED: Final = {"version": 2, "archives": {"file:///nowhere": [[0, 100, 7]]}}
STORE: Final = {"version": 1, "uuid": "01234567-89ab-cdef-0123-456789abcdef", "foreign": [[0, 9]]}
PIECE: Final = {"file": f"{0:020d}", "offset": 0, "length": 100, "crc32c": 7}
MANIFEST: Final = {
    "version": 1,
    "created_ms": 1,
    "reason": "x",
    "offset": 0,
    "length": 100,
    "pieces": [PIECE, {**PIECE, "reason": "y", "topics": ["orders"]}],
    "topics": ["orders"],
    "valid_records": [{"offset": 0, "records": 3}],
}

STAGED: Final = {"path": "/x.frames", "rows": 1, "chunks": [[100, 1, 7]], "topics": ["t"]}
COMMIT: Final = {"version": 0, "begin": 0, "end": 9, "rows": 1}
ASKED: Final = {"format": 1, "writer": "w", "version": 0, "files": [STAGED]}

KEPT: Final = f"rocketstore/quarantine/{0:020d}-0"
#: Files of a broker: what each holds, by its name under `config/`.
OF_A_BROKER: Final[dict[str, Any]] = {
    **{name: {"table": {"orders": {"0": [1]}}} for name in SIDE_FILES},
    "consumerOffset.json": OFFSETS,
    "delayOffset.json": DELAYS,
    "topics.json": TOPICS,
    "subscriptionGroup.json": GROUPS,
    "timercheck": None,
}
#: By path. None: bytes, that are no JSON.
FILES: Final[dict[str, Any]] = {
    **{f"config/{name}": held for name, held in OF_A_BROKER.items()},
    **{f"config/{name}.bak": held for name, held in OF_A_BROKER.items()},
    "rocketstore/blocked_queues": [["orders", 7, "a link"]],
    "rocketstore/checkpoint": None,
    "rocketstore/compacted.json": {
        "version": 1,
        "store": "",
        "topics": ["orders"],
        "keep_offsets": True,
        "source": [0, 0],
        "made": [100, 7],
    },
    "rocketstore/cut.json": {"version": 1, "at": 1 << 40},
    "rocketstore/group_offsets": [["orders@g", 0, 5, 7]],
    "rocketstore/host.sock": None,
    "rocketstore/holds.json": {"version": 1, "holds": {"snapshot": 0, "audit": 100}},
    "rocketstore/journal": None,
    f"rocketstore/live/{0:020d}": None,
    f"rocketstore/live/{1 << 40:020d}": None,
    "rocketstore/positions": None,
    f"{KEPT}/{0:020d}": None,
    f"{KEPT}/manifest.json": MANIFEST,
    f"{KEPT}/manifest.json.bak": MANIFEST,
    "rocketstore/queue_ends": None,
    "rocketstore/queue_files": None,
    f"rocketstore/rebuild/consumequeue/orders/0/{0:020d}": None,
    "rocketstore/recovery.json": RECOVERY,
    "rocketstore/recovery.json.bak": RECOVERY,
    "rocketstore/removal": None,
    "rocketstore/replication.json": {},
    "rocketstore/retention.json": RETENTION,
    "rocketstore/retention.json.bak": RETENTION,
    "rocketstore/shipped.json": SHIPPED,
    "rocketstore/shipped.json.bak": SHIPPED,
    "rocketstore/sink/journal.lock": None,
    "rocketstore/sink/pending.json": {**ASKED, "begin": 0, "present": 0},
    "rocketstore/sink/staging/run/1.frames": None,
    f"rocketstore/sink/writers/{file_name('w')}.json": {
        "format": 1,
        "writer": "w",
        "commits": [COMMIT, {**COMMIT, "version": 1}],
    },
    "rocketstore/store.json": STORE,
    "rocketstore/store.json.bak": STORE,
    "rocketstore/timers/state": {},
    f"rocketstore/timers/{1:020d}": None,
    "rocketstore/tmp/store.json.1.0": None,
}
#: By these an author may order a cut, or the end of the store.
ORDERS: Final = {"rocketstore/cut.json", "rocketstore/checkpoint", "rocketstore/removal"}
#: With one of these most opens end before they come to another file.
ALONE: Final = {"rocketstore/removal", f"rocketstore/live/{1 << 40:020d}"}
#: Names with numbers in them, any of which the row stands for.
PATTERNS: Final = {
    "rocketstore/live/[0-9]*": f"rocketstore/live/{0:020d}",
    "rocketstore/quarantine/*/manifest.json": f"{KEPT}/manifest.json",
    "rocketstore/quarantine/*/manifest.json.bak": f"{KEPT}/manifest.json.bak",
    "rocketstore/quarantine/*/[0-9]*": f"{KEPT}/{0:020d}",
    "rocketstore/rebuild/*": f"rocketstore/rebuild/consumequeue/orders/0/{0:020d}",
    "rocketstore/sink/staging/*": "rocketstore/sink/staging/run/1.frames",
    "rocketstore/sink/writers/*": f"rocketstore/sink/writers/{file_name('w')}.json",
    "rocketstore/timers/[0-9]*": f"rocketstore/timers/{1:020d}",
    "rocketstore/tmp/*": "rocketstore/tmp/store.json.1.0",
}


def row_of(path: str) -> str | None:
    """The row for a file of a store, by its path below the root; None: there is none."""
    if path in FILES:
        return path
    return next((row for form, row in PATTERNS.items() if fnmatch.fnmatchcase(path, form)), None)
