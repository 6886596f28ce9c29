"""What a hostile author does to the files of a store. Each function changes one thing and says what."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from rocketstore._native.format.codec import (
    decode_properties,
    decode_record,
    encode_properties,
    encode_record,
)
from rocketstore.errors import CorruptRecordError
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from tests.support.checkpoints import own_checkpoint

__all__ = ["MUTATIONS", "STRANGER", "Mutation", "damage", "mutate"]

#: Numbers at the ends of what fields hold.
NUMBERS = (
    0, 1, 2, 19, 20, 400, 4096, 16384, 65536, (1 << 26) - 1, 1 << 26, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 40, (1 << 59) // 20, 1 << 62, (1 << 63) - 1,
)  # fmt: skip
NAMES = (
    "09223372036854775807", "09223372036854771712", "00000000001099511627776",
    "0000000000000000640", "00000000000000000640", "00000000000000016384",
    "00000000000000004096", "99999999999999999999",
    "20261127015449364", "readme", "00000000000000016383", "09223372036854759424",
)  # fmt: skip
#: User and group of what a hostile author makes, where the tests run as root.
STRANGER = 4321
Known = tuple[str, int, int, int, bytes]
Mutation = Callable[["random.Random", Path, Path, dict[int, Known]], str]


def mutate(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> list[str]:
    """One to three mutations. `victim`: a directory outside. A record that is written anew, with right
    checksums, is changed in `stored`, too: physical offset to topic, queue, queue offset, it again, body."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        done.append(rng.choice(MUTATIONS)(rng, root, victim, stored))
    return done


def _parts(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if not path.is_symlink())


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def _write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _named(path: Path, root: Path) -> str:
    return str(path.relative_to(root))


def some_bytes(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    path = rng.choice(_files(root))
    size = path.stat().st_size
    if not size or size > 1 << 30:
        return "nothing"
    position = rng.randrange(min(size, rng.choice((64, 4096, size))))
    data = rng.choice((rng.randbytes(1), rng.randbytes(20), bytes(20), b"\xff" * 8))
    _write(path, position, data[: size - position])
    return f"{data.hex()} at {position} of {_named(path, root)}"


def a_number(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    """In a file without text: the index, a queue, the pages of positions and of times."""
    places = ("consumequeue", "index", "rocketstore", "checkpoint", "commitlog")
    place = rng.choice(places)
    found = [path for path in _files(root) if _named(path, root).startswith(place)]
    if not found or (path := rng.choice(found)).stat().st_size < 64:
        return "nothing"
    form, step = rng.choice(((">q", 4), (">i", 4), ("<q", 8), (">q", 20), (">i", 20)))
    position = rng.randrange(min(path.stat().st_size - 8, rng.choice((64, 2000)))) // step * step
    number = rng.choice(NUMBERS) % (1 << (63 if form[1] == "q" else 31)) - rng.choice((0, 0, 1))
    _write(path, position, struct.pack(form, number))
    return f"{number} as {form} at {position} of {_named(path, root)}"


def a_checkpoint(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    """Ours, with a right checksum."""
    try:
        own = own_checkpoint(root)
    except OSError:
        own = None
    if own is None:
        return "nothing"
    narrow = ["segment_count", "segments_digest", "queue_count", "queues_digest", "index_files"]
    wide = [
        "flushed",
        "dispatched",
        "indexed",
        "minimum",
        "cut",
        "max_unflushed",
        "last_record_start",
    ]
    fields = {
        name: rng.choice((*NUMBERS, own.flushed)) % (1 << 32 if name in narrow else 1 << 63)
        for name in rng.sample(narrow + wide, rng.choice((1, 1, 2, 4)))
    }
    file = CheckpointFile(root / "rocketstore" / "checkpoint")
    file.store(dataclasses.replace(own, generation=own.generation + 1, **fields))
    file.close()
    return f"checkpoint {fields}"


def a_length(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    path = rng.choice(_files(root))
    size = path.stat().st_size
    to = rng.choice((0, 1, size // 2, max(0, size - 1), size + 1, size + 4096, 2 * size, 1 << 36))
    os.truncate(path, to)
    return f"{_named(path, root)} of {size} has {to} bytes"


def a_name(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    path = rng.choice(_files(root))
    name = rng.choice([name for name in NAMES if name != path.name])
    if rng.random() < 0.5:
        path.rename(path.with_name(name))
        return f"{_named(path, root)} is named {name}"
    shutil.copy(path, path.with_name(name))
    return f"{_named(path, root)} is there as {name}, too"


def a_loss(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    path = rng.choice(_parts(root))
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return f"{_named(path, root)} is gone"


def another_kind(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    path = rng.choice(_parts(root))
    inside = [file for file in _files(victim) if file.parent == victim]
    kinds = ["link", "device", "fifo", "socket", "directory", "names"]
    kind = rng.choice(kinds if not path.is_dir() else ("link", "file", "fifo"))
    if kind == "link" and path.is_dir() and path.parent == root and os.geteuid():
        kind = "fifo"  # a link of ours: the owner of a store may put one there
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if kind == "link":
        path.symlink_to(rng.choice((victim, *inside)))
        if not os.geteuid():
            os.lchown(path, STRANGER, STRANGER)
    elif kind == "device":
        path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/null", "/dev/tty")))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)  # bind() takes no long path
    elif kind == "directory":
        path.mkdir()
    elif kind == "names":
        os.link(rng.choice(inside), path)
    else:
        path.touch()
    return f"{_named(path, root)} is a {kind}"


def a_swap(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    one, other = rng.sample(_files(root), 2)
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)
    return f"{_named(one, root)} and {_named(other, root)} are swapped"


def some_json(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    names = ("config/consumerOffset.json", "rocketstore/store.json", "rocketstore/recovery.json")
    path = root / rng.choice(names)
    number = rng.choice((*NUMBERS, -1, 1e300, "9" * 30))
    before = (
        path.read_text(errors="replace")
        if path.is_file() and path.stat().st_size < 1 << 20
        else "{}"
    )
    digits = [place for place, letter in enumerate(before) if letter.isdigit()] or [0]
    at = rng.choice(digits)
    table = {f"orders@g{n}": {"0": number, str(number): 1} for n in range(rng.choice((1, 100_000)))}
    texts = {
        "digit": before[:at] + str(rng.randrange(10)) + before[at + 1 :],
        "number": before[:at] + str(number) + before[at + 1 :],
        "deep": "[" * 200_000,
        "wide": json.dumps({"offsetTable": table}),
        "digits": '{"offsetTable":{"orders@g":{0:' + "9" * 5_000_000 + "}}}",
        "cut": before[: len(before) // 2],
        "list": "[1, null, 2]",
    }
    kind = rng.choice([*texts])
    with contextlib.suppress(FileExistsError):  # an earlier mutation put something in its place
        path.parent.mkdir(exist_ok=True)
    if path.is_dir() or not path.parent.is_dir():
        return "nothing"
    path.unlink(missing_ok=True)
    path.write_text(texts[kind])
    return f"{_named(path, root)}: {kind}, {str(number)[:30]}"


def a_record(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    """With right checksums: another queue, queue offset, topic, physical offset or sys flag."""
    if not stored:
        return "nothing"
    where = rng.choice([*stored])
    size = 16384
    path = root / "commitlog" / f"{where - where % size:020d}"
    if not path.is_file() or path.stat().st_size != size:
        return "nothing"
    data = path.read_bytes()[where % size :]
    try:
        fields = decode_record(data, where)
    except CorruptRecordError:
        return "nothing"
    number = rng.choice((*NUMBERS, 1_000, 30_000_000))
    change = rng.choice(
        (
            {"queue_offset": number % (1 << 63)},
            {"queue_offset": number % (1 << 63)},
            {"queue_id": number % (1 << 31)},
            {"topic": rng.choice(("../../x", "orderz", "a/b/cc", "......"))},
            {"store_timestamp_ms": number % (1 << 63)},
            {"sys_flag": rng.randrange(1 << 16) & ~0x30},
        )
    )
    if len(str(change.get("topic", fields["topic"]))) != len(fields["topic"]):
        return "nothing"
    fields |= change
    properties = decode_properties(fields["properties"])
    properties.pop("__CRC32#", None)
    record = encode_record(
        topic=fields["topic"],
        body=fields["body"],
        properties=encode_properties(properties),
        record_crc=fields["record_crc"] is not None,
        **{
            name: fields[name]
            for name in (
                "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_host",
                "born_timestamp_ms", "store_timestamp_ms", "store_host", "reconsume_times",
            )
        },
    )  # fmt: skip
    if len(record) != fields["total_size"]:
        return "nothing"
    _write(path, where % size, record)
    stored[where] = (
        fields["topic"],
        fields["queue_id"],
        fields["queue_offset"],
        where,
        fields["body"],
    )
    return f"record at {where}: {change}"


def many_gaps(rng: random.Random, root: Path, victim: Path, stored: dict[int, Known]) -> str:
    """Queue offsets that jump, in many records, each of which may take a new file of its queue."""
    said = [a_record(rng, root, victim, stored) for _ in range(20)]
    return "; ".join(one for one in said if one != "nothing") or "nothing"


MUTATIONS: tuple[Mutation, ...] = (
    some_bytes, a_number, a_number, a_checkpoint, a_length, a_name, a_loss, another_kind, a_swap,
    some_json, a_record, many_gaps,
)  # fmt: skip


# ---- what happens to files without anybody's will ----


def damage(rng: random.Random, root: Path, older: dict[str, bytes]) -> str:
    """What disks, kills, restores and hands do to one file, at random: a bit, zeros, a shorter or longer
    file, an older copy, another name, a second one, a swap, a loss. `older`: files of an earlier day."""
    path = rng.choice(_files(root))
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    name = _named(path, root)
    kind = rng.choice(
        ("bit", "bit", "zero", "zero", "cut", "longer", "older", "name", "second", "swap", "gone")
    )
    if kind == "bit" and used:
        at, bit = rng.randrange(used), rng.randrange(8)
        _write(path, at, bytes([data[at] ^ 1 << bit]))
        return f"bit {bit} at {at} of {name}"
    if kind == "zero" and used:
        at = rng.choice((0, rng.randrange(used)))
        count = min(rng.choice((1, 8, 20, 512, used)), len(data) - at)
        _write(path, at, bytes(count))
        return f"{count} zeros at {at} of {name}"
    if kind in ("cut", "longer"):
        step = rng.choice((1, 20, 400, 512, 4096, rng.randrange(1, max(2, used))))
        to = max(0, rng.choice((len(data), used)) - step) if kind == "cut" else len(data) + step
        os.truncate(path, to)
        return f"{name} of {len(data)} has {to} bytes"
    if kind == "older" and name in older:
        path.write_bytes(older[name])
        return f"{name} is an older one"
    if kind in ("name", "second"):
        return _another_name(rng, path, root, second=kind == "second")
    if kind == "swap":
        near = [one for one in _files(root) if one.parent == path.parent and one != path]
        other = rng.choice(near if near and rng.random() < 0.7 else _files(root))
        content = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(content)
        return f"{name} and {_named(other, root)} are swapped"
    path.unlink()
    return f"{name} is gone"


def _another_name(rng: random.Random, path: Path, root: Path, *, second: bool) -> str:
    if path.name.isdigit() and len(path.name) == 20:
        step = rng.choice((1, 20, 400, 8192, 16384, 1 << 40)) * rng.choice((1, 1, -1))
        to = path.with_name(f"{max(0, int(path.name) + step):020d}")
    else:
        to = path.with_name(rng.choice((path.name + ".bak", path.name + "~", "0" + path.name[1:])))
    if to.exists():
        return "nothing"
    if second:
        shutil.copy(path, to)
        return f"{_named(path, root)} is there as {to.name}, too"
    path.rename(to)
    return f"{_named(path, root)} is named {to.name}"
