"""Writes seed inputs for the fuzz targets, one file each, from the golden vectors.

python make_seeds.py DIRECTORY    # makes DIRECTORY/<target>/<id>
"""

from __future__ import annotations

import json
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


def batches(vectors: dict[str, Any]) -> Iterator[bytes]:
    whole = bytes.fromhex(vectors["batch"]["input_hex"])
    yield whole
    yield whole * 3
    yield whole[:32]
    yield b""
    for row in vectors["records"]:
        if row["id"] == "inner_batch":
            yield bytes.fromhex(row["fields"]["body"])


def logs(vectors: dict[str, Any]) -> Iterator[bytes]:
    yield from records(vectors)
    yield b"".join(map(bytes.fromhex, vectors["batch"]["records_hex"]))


SEEDS = {"record": records, "properties": properties, "batch": batches, "columns": logs}


def write_seeds(directory: Path) -> None:
    vectors = json.loads(VECTORS.read_text())
    for target, seeds in SEEDS.items():
        (directory / target).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(vectors)):
            (directory / target / f"{number:03d}").write_bytes(seed)


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
