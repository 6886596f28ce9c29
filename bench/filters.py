"""Filters: a tag over queue units, and SQL over properties.

    python -m bench.filters [--units 10000000] [--messages 1000000] [--directory DIR]

Units are put into a queue file by themselves: all with the code of another tag, as a consumer meets them that wants
a rare one. Messages have 100 bytes and four properties. Rates are those of the fastest of five rounds, in
millions a second, by one thread, and the ratio is to the same read without a filter; of units to a copy of the
queue file's bytes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import rocketstore
from rocketstore._native.format.codec import tags_code
from rocketstore._native.format.queue_file import UNIT_SIZE, units_array
from rocketstore._native.format.queue_reader import has_address, read_units
from rocketstore._native.os.mapped_file import MappedFile

ROUNDS = 5
LOOK = 800
CASES = (
    "price > 990",
    "region IN ('eu', 'us')",
    "price > 900 AND region = 'eu'",
    "price BETWEEN 100 AND 200 AND region <> 'eu' AND weight < 10.5",
    "(price = 5) = TRUE",
)


def fastest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def told(what: str, count: int, seconds: float, plain_s: float) -> None:
    print(f"{what:<72}{count / seconds / 1e6:8.2f} M/s{plain_s / seconds:8.2f}", flush=True)


def units(count: int, directory: Path) -> None:
    """As a fetch does it: a look for addresses, then the units, 800 at a time."""
    path = directory / "units"
    path.write_bytes(b"")
    with path.open("r+b") as made:
        made.truncate(count * UNIT_SIZE)
    file = MappedFile.open(str(path), 0, count * UNIT_SIZE, "write")
    array = units_array(file, 0, 0).dtype
    import numpy as np

    rows = np.zeros(count, array)
    rows["physical_offset"] = np.arange(count) * 200
    rows["size"], rows["tags_code"] = 200, tags_code("common")
    with path.open("r+b") as made:
        made.write(rows.tobytes())
    wanted = frozenset([tags_code("rare")])

    def look() -> None:
        for first in range(0, count, LOOK):
            here = min(LOOK, count - first)
            assert not has_address(file, first * UNIT_SIZE, here)
            found = read_units(
                file,
                first * UNIT_SIZE,
                here,
                (),
                1 << 30,
                topic=b"t",
                queue_id=0,
                first_queue_offset=first,
                log_minimum=0,
                limit_offset=1 << 62,
                verify=0,
                tags_codes=wanted,
            )
            assert not found

    told(f"tag, {count} units", count, fastest(look), fastest(lambda: rows.copy()))
    file.close()


def consumed(count: int, root: Path) -> None:
    with rocketstore.open(root, "r") as store:

        def read(**chosen: str) -> int:
            return sum(1 for _ in store.consumer("t", **chosen))  # type: ignore[arg-type]

        plain_s = fastest(read)
        told("consumer", count, plain_s, plain_s)
        told("consumer, tags='none'", count, fastest(lambda: read(tags="none")), plain_s)
        for where in CASES:
            told(f"consumer, {where}", count, fastest(lambda w=where: read(where=w)), plain_s)


def scanned(count: int, root: Path) -> None:
    def read(**chosen: object) -> int:
        scan = rocketstore.scan(
            root, columns=["physical_offset"], threads=1, verify=False, **chosen
        )  # type: ignore[arg-type]
        return sum(columns.rows for columns in scan)

    plain_s = fastest(read)
    told("scan", count, plain_s, plain_s)
    told("scan, tags='a'", count, fastest(lambda: read(tags="a")), plain_s)
    for where in CASES:
        told(f"scan, {where}", count, fastest(lambda w=where: read(where=w)), plain_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=10_000_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="filters-", dir=given.directory) as made:
        directory = Path(made)
        print(f"{'':<72}{'rate':>12}{'ratio':>8}")
        units(given.units, directory)
        with rocketstore.open(directory / "store", durability="memory") as store:
            put = store.writer("t").put
            for n in range(given.messages):
                properties = {
                    "price": str(n * 7919 % 1000),
                    "region": ("eu", "us", "asia")[n % 3],
                    "weight": f"{n * 31 % 5000 / 100:.2f}",
                }
                put(bytes(100), tags="abcdefgh"[n % 8], properties=properties)
        scanned(given.messages, directory / "store")
        consumed(given.messages, directory / "store")


if __name__ == "__main__":
    main()
