"""Writes seed inputs for the fuzz targets, one file each, from the golden vectors.

python make_seeds.py DIRECTORY    # makes DIRECTORY/<target>/<id>
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors" / "vectors.json"


def records(vectors: dict[str, Any]) -> Iterator[bytes]:
    for row in vectors["records"] + vectors["bad_records"]:
        yield bytes.fromhex(row["hex"])
    for record in vectors["batch"]["records_hex"]:
        yield bytes.fromhex(record)


def properties(vectors: dict[str, Any]) -> Iterator[bytes]:
    for row in vectors["properties"]:
        yield row["text"].encode()
    for row in vectors["records"]:
        yield row["fields"]["properties"].encode()
    for row in vectors["tags"]:
        yield row["tags"].encode()
    yield b"__CRC32#\x018523023731\x02"
    for number in (0, 7, -1, 2**31, 2**63 - 1, -(2**63), 2**63):
        yield str(number).encode()
    yield bytes.fromhex("e4b861eda080f09f98c0aff490808041")  # not UTF-8


def filters(vectors: dict[str, Any]) -> Iterator[bytes]:
    """A count of operations, three bytes for each, then properties."""
    numbers = [
        "0",
        "-0",
        "10",
        "+10",
        "010",
        "1.5",
        "-2.5",
        "1e3",
        ".5",
        "5.",
        "1e22",
        "1e-5",
        "123456.75",
        "2147483648",
        "eu",
        "true",
    ]
    for number, text in enumerate(numbers):
        for code in range(14):
            ops = bytes((11, 1, number, 13, 7, number, code, number, 4, 1, 0, 0, 2, 0, 0))
            yield bytes((len(ops) // 3 - 1,)) + ops + f"a\x01{text}\x02price\x01{text}".encode()
    for row in vectors["properties"]:
        yield bytes((2, 7, 1, 0, 8, 1, 2, 3, 0, 0)) + row["text"].encode()


def scans(vectors: dict[str, Any]) -> Iterator[bytes]:
    """Log files: the stores of the vectors, and records behind each other with a blank at the end."""
    good = [bytes.fromhex(row["hex"]) for row in vectors["records"] if len(row["hex"]) < 2000]
    yield b"".join(good) + struct.pack(">iI", 64, 0xCBD43194) + bytes(56)
    yield b"".join(good[:4]) + bytes(100)
    yield b"".join([*good[:3], b"damage" * 9, *good[3:6]])
    yield bytes.fromhex(vectors["mixed_versions"]["log_hex"])
    for store in (vectors["mini_store"]["files"], vectors["pre_blank"][0]["log"]):
        for name, file in store.items():
            if name.startswith("commitlog/"):
                yield bytes.fromhex(file["hex"]).ljust(file["size"], b"\0")


def queues(vectors: dict[str, Any]) -> Iterator[bytes]:
    """Two bytes of choices, then units, then a log."""
    units = b"".join(bytes.fromhex(row["hex"]) for row in vectors["queue"]["entries"])
    pre_blanks = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 3
    for kind, log in enumerate(scans(vectors)):
        for these in (units, pre_blanks + units, bytes(200), units * 4):
            yield bytes((len(these) // 20, 1 + kind * 5)) + these + log


def indexes(vectors: dict[str, Any]) -> Iterator[bytes]:
    """Two bytes of shape, then the file. Made here: those of the vectors have millions of slots."""
    for slots, entries, keys in ((1, 2, 1), (3, 8, 5), (16, 65, 40), (4, 65, 64)):
        heads, chain = [0] * slots, []
        for number in range(1, keys + 1):
            key_hash = number * 2654435761 & 0x7FFFFFFF
            chain.append(
                struct.pack(">iqii", key_hash, 100 * number, number, heads[key_hash % slots])
            )
            heads[key_hash % slots] = number
        head = struct.pack(
            ">qqqqii", 1_700_000_000_000, 1_700_000_000_000 + 1000 * keys, 100, 100 * keys,
            sum(map(bool, heads)), keys + 1,
        )  # fmt: skip
        shape = bytes((slots - 1, entries - 2))
        yield shape + head + struct.pack(f">{slots}i", *heads) + bytes(20) + b"".join(chain)
    yield bytes(300)


def logs(vectors: dict[str, Any]) -> Iterator[bytes]:
    yield from records(vectors)
    yield b"".join(map(bytes.fromhex, vectors["batch"]["records_hex"]))
    yield from scans(vectors)


SEEDS = {
    "record": records,
    "properties": properties,
    "scan": scans,
    "queue": queues,
    "index": indexes,
    "filter": filters,
    "columns": logs,
}


def write_seeds(directory: Path) -> None:
    vectors = json.loads(VECTORS.read_text())
    for target, seeds in SEEDS.items():
        (directory / target).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(vectors)):
            (directory / target / f"{number:03d}").write_bytes(seed)


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
