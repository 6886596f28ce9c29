"""What a hostile author writes into the state files of a store, with right checksums."""

from __future__ import annotations

import copy
import json
import os
import random
import stat
import struct
import zlib
from pathlib import Path
from typing import Any

from rocketstore.consuming import commit_journal

__all__ = ["FILES", "mutate"]

#: The files, and what lies there where the store has none.
FILES: dict[str, Any] = {
    "config/consumerOffset.json": {"offsetTable": {"orders@g": {"0": 3}}},
    "config/consumerOffset.json.bak": {"offsetTable": {"orders@g": {"0": 3}}},
    "config/delayOffset.json": {
        "offsetTable": {"1": 0, "18": 1},
        "rocketstore": {"from": 0, "log": [0, 0], "undelivered": {"18": [0]}},
    },
    "config/topics.json": {"topicConfigTable": {"orders": {"perm": 6}}},
    "config/subscriptionGroup.json": {"subscriptionGroupTable": {"g": {}}},
    "rocketstore/blocked_queues": [["orders", 7, "a link"]],
    "rocketstore/cut.json": {"version": 1, "at": 1 << 40},
    "rocketstore/group_offsets": [["orders@g", 0, 5, 7]],
    "rocketstore/recovery.json": {
        "version": 1,
        "mode": "unclean",
        "clean": False,
        "start": 0,
        "end": 0,
        "dispatch_start": 0,
        "damage": [],
        "first_time_fall": -1,
    },
    "rocketstore/replication.json": {},
    "rocketstore/retention.json": {
        "version": 1,
        "emergencies": [
            {
                "time_ms": 1,
                "begin_offset": 0,
                "new_begin_offset": 9,
                "disk_used": 0.9,
                "given_up": [],
            }
        ],
    },
    "rocketstore/shipped.json": {"version": 2, "archives": {"file:///nowhere": [[0, 100, 7]]}},
    "rocketstore/store.json": {},
    "rocketstore/timers/state": {},
    "rocketstore/checkpoint": None,
    "rocketstore/positions": None,
    "rocketstore/queue_ends": None,
    "rocketstore/queue_files": None,
}
#: Those with the most in them are changed more often.
OFTEN = ("rocketstore/timers/state", "config/consumerOffset.json", "config/delayOffset.json") * 4
N63, N64 = (1 << 63) - 1, 1 << 64
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 7, 1 << 31, (1 << 32) - 1, 1 << 40, N63, N64, 10**400, 1.5, float("nan"), 1e308),
    *(None, True, "", "x", "\ud800", "\x1b[2J../../x", [], {}, [[]], ["x", None], [N64, -1]),
    *({"0": N63}, {"x": {"0": -1}}, [[0, N63]], [[0, 1, 2, 3, 4]], [0] * 100_000, [[]] * 50_000),
)  # fmt: skip
TEXTS: tuple[bytes, ...] = (
    *(b"", b" \n", b"null", b"5", b'"x"', b"{", b"[1", b"\xff\xfe\0", b"\xef\xbb\xbf{}", b"{}" * 2),
    *(b"[" * 300_000, b'{"a":' * 100_000, b'{"version":' + b"9" * 5000 + b"}", b'{"version":NaN}'),
)  # fmt: skip
BOMBS: tuple[bytes, ...] = (
    b'{"version":1,"x":[' + b"[]," * 3_000_000 + b"[]]}",
    b'{"version":1,"offsetTable":{' + b'"%d@g":{},' * 1_000_000 + b'"a@g":{}}}',
    b'{"offsetTable":{"orders@g":{0:1' + b" " * 9_000_000 + b"}}}",
    b'{"a":"' + "🚀".encode() * 2_000_000 + b'"}',
)


def mutate(rng: random.Random, root: Path, victim: Path) -> tuple[set[str], str]:
    """Changes one to three state files; which, and how."""
    names = sorted({rng.choice((*FILES, *OFTEN)) for _ in range(rng.choice((1, 1, 1, 2, 3)))})
    return set(names), "; ".join(f"{name}: {_change(rng, root, victim, name)}" for name in names)


def _change(rng: random.Random, root: Path, victim: Path, name: str) -> str:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    document = _document(path, FILES[name])
    how = rng.random()
    if how < 0.12:
        return _another_kind(rng, path, victim)
    if document is None or how < 0.2:
        return _other_bytes(rng, path)
    if how < 0.4:
        text = rng.choice(rng.choice((TEXTS, BOMBS)))
        _put(path, text)
        return f"{text[:20]!r} of {len(text)}"
    said = [_other_value(rng, document) for _ in range(rng.choice((1, 1, 2, 4)))]
    _put(path, json.dumps(document).encode())
    return ", ".join(said)


def _document(path: Path, template: Any) -> Any:
    if template is None or not path.is_file():
        return json.loads(json.dumps(template))
    data = path.read_bytes()
    if path.name == "state":
        data = data.partition(b"\n")[2]
    if path.name == "group_offsets":
        return json.loads(json.dumps(template))
    try:
        return json.loads(data)
    except ValueError:  # RocketMQ's form
        return json.loads(json.dumps(template))


def _put(path: Path, text: bytes) -> None:
    """The text with what its file has around it."""
    if path.name == "state":
        text = b"%08x\n" % zlib.crc32(text) + text
    if path.name == "group_offsets":
        parts = [
            text[at : at + commit_journal.ROOM] for at in range(0, len(text), commit_journal.ROOM)
        ]
        most = commit_journal.JOURNAL_BYTES // commit_journal.BLOCK - 1
        parts = parts[:most] or [b""]
        blocks = [
            commit_journal._bytes_of(part, n, len(parts) - 1 - n, 1 + n, 1)
            for n, part in enumerate(parts)
        ]
        text = (bytes(commit_journal.BLOCK) + b"".join(blocks)).ljust(
            commit_journal.JOURNAL_BYTES, b"\0"
        )
    path.write_bytes(text)


def _other_value(rng: random.Random, document: Any) -> str:
    """Another value or none at a random place of the document."""
    places: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        one = todo.pop()
        keys = [*one] if isinstance(one, dict) else [*range(len(one))]
        places += [(one, key) for key in keys]
        todo += [one[key] for key in keys if isinstance(one[key], dict | list)][:200]
    if not places:
        return "nothing"
    where, key = rng.choice(places)
    how = rng.randrange(6)
    if how == 0:
        del where[key]
        return f"no {key}"
    if how == 1 and isinstance(where, list):
        where.extend([where[key]] * rng.choice((1, 2, 300, 20_000)))
        return f"{key} again and again"
    if how == 2 and isinstance(where, dict):
        more = rng.choice((3, 300, 60_000))
        where.update({f"{n}@g" if rng.random() < 0.5 else str(n): where[key] for n in range(more)})
        return f"{more} like {key}"
    where[key] = copy.deepcopy(rng.choice(VALUES))
    return f"{key} = {where[key]!r:.40}"


def _other_bytes(rng: random.Random, path: Path) -> str:
    data = bytearray(path.read_bytes() if path.is_file() else rng.randbytes(4096))
    how = rng.choice(("bytes", "number", "zeros", "cut", "long", "none"))
    if how == "bytes" and data:
        for _ in range(rng.choice((1, 8, 100))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif how == "number" and len(data) > 16:
        number = rng.choice((-1, 1 << 31, 1 << 40, N63))
        struct.pack_into(
            rng.choice("<>") + "q", data, rng.randrange(len(data) - 8) // 4 * 4, number
        )
    elif how == "zeros":
        data = bytearray(len(data))
    elif how == "cut":
        del data[rng.randrange(len(data) + 1) :]
    path.write_bytes(data)
    if how == "long":
        os.truncate(path, rng.choice((len(data) + 1, 60 << 20, 1 << 40)))
    if how == "none":
        path.unlink()
    return how


def _another_kind(rng: random.Random, path: Path, victim: Path) -> str:
    path.unlink(missing_ok=True)
    kind = rng.choice(("fifo", "directory", "link", "loop", "socket", "second name"))
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(victim / "secret")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        os.link(victim / "secret", path)
    return kind
