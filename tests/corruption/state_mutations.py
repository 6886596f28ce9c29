"""What a hostile author writes into the state files of a store, with right checksums."""

from __future__ import annotations

import copy
import json
import os
import random
import stat
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketstore._native.sync import positions
from rocketstore.consuming import commit_journal
from rocketstore.log.layout.state_files import checksum
from rocketstore.log.queues.saved_ends import QueueEnds, queue_key
from rocketstore.values.bounded_json import LIMITS, parse_json
from tests.corruption import mutations
from tests.corruption.state_files import ALONE, FILES, PATTERNS

__all__ = ["mutate"]

#: Those with the most in them are changed more often.
OFTEN = ("rocketstore/timers/state", "config/consumerOffset.json", "config/delayOffset.json") * 4
N63, N64 = (1 << 63) - 1, 1 << 64
#: Queue offsets, physical offsets and times.
PLACES = (0, 1, 7, 3000, 1 << 31, (1 << 40), (1 << 59) // 20, 1 << 62, N63)
ENDS = (*PLACES, 100_000, 4_000_000, -1)
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


def mutate(rng: random.Random, root: Path, victim: Path, aim: str) -> tuple[set[str], str]:
    """Changes a state file, and by chance one or two others; which, and how."""
    others = [name for name in (*FILES, *OFTEN) if name not in ALONE]
    names = sorted({aim, *(rng.choice(others) for _ in range(rng.choice((0, 0, 0, 1, 2))))})
    return set(names), "; ".join(f"{name}: {_change(rng, root, victim, name)}" for name in names)


def _change(rng: random.Random, root: Path, victim: Path, name: str) -> str:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name in CROWDED and rng.random() < 0.25:
        return _crowd(rng, path)
    if path.suffix == ".bak":  # which counts where the file itself is no use
        _spoil(rng, path.with_suffix(""))
    document = _document(path, FILES[name])
    how = rng.random()
    if how < 0.12:
        return _another_kind(rng, path, victim)
    if name in CHECKED and how < 0.8:
        return CHECKED[name](rng, root, path)
    if document is None or how < 0.2:
        return _other_bytes(rng, path)
    if how < 0.4:
        text = rng.choice(rng.choice((TEXTS, BOMBS)))
        _put(path, text)
        return f"{text[:20]!r} of {len(text)}"
    said = [_other_value(rng, document) for _ in range(rng.choice((1, 1, 2, 4)))]
    if isinstance(document, dict) and rng.random() < 0.9:
        _check(document)
    _put(path, json.dumps(document).encode(), rng.choice((0, 1, 3, 500, (1 << 62) - 3)))
    return ", ".join(said)


def _spoil(rng: random.Random, path: Path) -> None:
    how = rng.randrange(3)
    if how == 0 and not path.is_dir():
        path.unlink(missing_ok=True)
    elif how == 1 and (path.is_file() or not os.path.lexists(path)) and not path.is_symlink():
        path.write_bytes(rng.choice((b"", b"{", b"[1]")))


def _check(document: dict[str, Any]) -> None:
    """Gives a document the checksums that it is to have: of its table of offsets, and of all, which counts as
    the last member only."""
    own, table = document.get("rocketstore"), document.get("offsetTable")
    if isinstance(own, dict) and isinstance(table, dict) and "merged" in own:
        own["crc"] = commit_journal.mark_of(table, 0)["crc"]
    if "crc" in document:
        del document["crc"]
        document["crc"] = checksum(document)


def _document(path: Path, template: Any) -> Any:
    if template is None or not path.is_file() or path.name == "group_offsets":
        return copy.deepcopy(template)
    data = path.read_bytes()
    if path.name == "state":
        data = data.partition(b"\n")[2]
    try:
        return parse_json(data, LIMITS["side file"])
    except ValueError:
        return copy.deepcopy(template)


def _put(path: Path, text: bytes, number: int = 1) -> None:
    """The text with what its file has around it; `number`: of the first block of a journal."""
    if path.name == "state":
        text = b"%08x\n" % zlib.crc32(text) + text
    if path.name == "group_offsets":
        room, most = commit_journal.ROOM, commit_journal.JOURNAL_BYTES // commit_journal.BLOCK - 1
        parts = [text[at : at + room] for at in range(0, len(text), room)][:most] or [b""]
        ring = bytearray(commit_journal.JOURNAL_BYTES)
        for n, part in enumerate(parts):
            at = (number + n) * commit_journal.BLOCK % len(ring)
            ring[at : at + commit_journal.BLOCK] = commit_journal._bytes_of(
                part, n, len(parts) - 1 - n, number & 0xFFFF, number + n, number
            )
        text = bytes(ring)
    path.write_bytes(text)


# ---- files that are no JSON, with right checksums ----


def _own_checkpoint(rng: random.Random, root: Path, path: Path) -> str:
    return mutations.a_checkpoint(rng, root, path.parent, {})


def _queue_ends(rng: random.Random, root: Path, path: Path) -> str:
    ends = {
        queue_key(rng.choice(("orders", "later", "x")), rng.randrange(3)): rng.choice(ENDS)
        for _ in range(rng.choice((1, 3, 20)))
    }
    stamps = tuple((rng.choice((0, 1, -1, N63)), rng.randrange(1 << 32)) for _ in range(2))
    found = QueueEnds(rng.choice((0, 1, 1 << 40, N63)), ends, stamps)
    path.write_bytes(found.pack())
    return f"ends {[*ends.values()]}, log {found.log_end}"


def _positions(rng: random.Random, root: Path, path: Path) -> str:
    """Native numbers at the places of its fields (format.md 20.3)."""
    data = bytearray(path.read_bytes() if path.is_file() else bytes(4096))
    data[:8] = positions.MAGIC.to_bytes(8, sys.byteorder)
    places = [rng.choice((*range(64, 512, 64), 520)) for _ in range(rng.choice((1, 2, 5)))]
    for place in places:
        data[place : place + 8] = rng.choice((-1, *PLACES)).to_bytes(8, sys.byteorder, signed=True)
    struct.pack_into("=I", data, 512, rng.choice((0, 1, 2, 3, N63 & 0xFFFFFFFF)))
    path.write_bytes(data)
    return f"numbers at {places}, state {data[512]}"


def _timer_run(rng: random.Random, root: Path, path: Path) -> str:
    """Other entries in a run, and a state that says their number and checksum."""
    state = path.with_name("state")
    document = _document(state, {})
    rows = document.get("runs") if isinstance(document, dict) else None
    if not path.is_file() or not rows or not isinstance(rows, list):
        return _other_bytes(rng, path)
    entries = [list(one) for one in struct.iter_unpack("<qqQ", path.read_bytes())]
    for _ in range(rng.choice((1, 3))):
        if entries:
            rng.choice(entries)[rng.randrange(2)] = rng.choice((*PLACES, -1))
    entries *= rng.choice((1, 1, 2, 1000))
    data = b"".join(struct.pack("<qqQ", *one) for one in entries)
    path.write_bytes(data)
    rows[0] = [1, len(entries), zlib.crc32(data), rng.choice((0, 0, 1, len(entries)))]
    _put(state, json.dumps(document).encode())
    return f"{len(entries)} entries, {rows[0]}"


def _staged_frames(rng: random.Random, root: Path, path: Path) -> str:
    """Any bytes with right checksums, in a commit that was begun."""
    data = rng.randbytes(rng.choice((0, 1, 91, 4096)))
    path.write_bytes(data)
    chunk = [len(data), rng.choice((0, 1, len(data))), zlib.crc32(data)]
    staged = {"path": str(path), "rows": chunk[1], "chunks": [chunk] * rng.choice((1, 3))}
    document = {**FILES["rocketstore/sink/pending.json"], "files": [staged]}
    (root / "rocketstore/sink/pending.json").write_text(json.dumps(document))
    return f"{chunk}"


CHECKED: dict[str, Callable[[random.Random, Path, Path], str]] = {
    "rocketstore/checkpoint": _own_checkpoint,
    "rocketstore/queue_ends": _queue_ends,
    "rocketstore/positions": _positions,
    f"rocketstore/timers/{1:020d}": _timer_run,
    "rocketstore/sink/staging/run/1.frames": _staged_frames,
}


#: In directories whose names a store lists.
CROWDED = {*PATTERNS.values()}


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
        more = rng.choice((3, 300, 60_000, 200_000))
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


def _crowd(rng: random.Random, path: Path) -> str:
    """Many files beside it, or directories that lie deep in each other."""
    if rng.random() < 0.5:
        count = rng.choice((300, 3000))
        for number in range(count):
            name = f"{number << 14:020d}" if path.stem.isdigit() else f"{number}{path.suffix}"
            path.with_name(name).touch()
        return f"{count} beside it"
    depth = rng.choice((20, 500))
    at = os.open(path.parent, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 100, dir_fd=at)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    return f"{depth} directories in each other beside it"


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
