"""DuckDB over a scan compared with DuckDB over the same rows in Parquet: `python -m bench.duckdb_scans`.

A store of messages of five topics, and a Parquet file of all columns of its scan (zstd). Both sides answer the same
queries in turns, each once a round; the figures are medians. A query of a dataset walks the log and tests both
checksums of each record, unless it is of a scan with `verify=False`; "columns=" is a scan that has the columns of the
query alone, handed over as a stream.
The time of the processors is given, too: other work of the machine changes it less than that on the clock. Needs
pyarrow and duckdb.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

import rocketstore
from bench.measure import machine

__all__ = ["main", "measure"]

TOPICS = ("clicks", "errors", "logs", "orders", "views")
BATCH = 10_000
QUERIES = {
    "count by topic": "select topic, count(*) from {} group by topic order by topic",
    "count, bytes of records by topic": (
        "select topic, count(*), sum(size) from {} group by topic order by topic"
    ),
    "count, bytes of bodies by topic": (
        "select topic, count(*), sum(octet_length(body)) from {} group by topic order by topic"
    ),
}
COLUMNS = {
    "count by topic": ["topic"],
    "count, bytes of records by topic": ["topic", "size"],
    "count, bytes of bodies by topic": ["topic", "body"],
}
#: What is compared with Parquet.
SIDES = ("to_dataset", "to_dataset with verify=False", "columns=")


def fill(path: Path, messages: int) -> None:
    """Messages of all topics in turns at random, with bodies of JSON."""
    random = np.random.default_rng(1)
    with rocketstore.open(path, durability="os") as store:
        for first in range(0, messages, BATCH):
            count = min(BATCH, messages - first)
            bodies = [
                b'{"user": %d, "cents": %d, "page": "/shop/%d/item", "agent": "%s"}'
                % (first + n, n * 7 % 10_000, n % 100, b"x" * 40)
                for n in range(count)
            ]
            ends = np.cumsum([0, *map(len, bodies)])
            rows = random.integers(0, len(TOPICS), count)
            column = (ends, b"".join(bodies))
            store.put_columns(column, topics=TOPICS, topic_rows=rows, queue_ids=0)
        store.flush()


#: Seconds on the clock, seconds of all processors.
Taken = tuple[float, float]


def measure(path: Path, messages: int, rounds: int) -> dict[str, tuple[Taken, ...]]:
    """What each query takes: from Parquet, from a dataset, from one that tests no checksum, from a scan with its
    columns."""
    fill(path / "store", messages)
    scan, parquet = rocketstore.scan(path / "store"), path / "messages.parquet"
    pq.write_table(scan.to_arrow().read_all(), parquet, compression="zstd")
    connection, found = duckdb.connect(), {}
    dataset = scan.to_dataset()
    untested = rocketstore.scan(path / "store", verify=False).to_dataset()
    for name, query in QUERIES.items():
        narrow = rocketstore.scan(path / "store", columns=COLUMNS[name])
        sides: dict[str, Any] = {
            "file": None,
            "dataset": dataset,
            "untested": untested,
            "narrow": narrow,
        }
        taken: dict[str, list[Taken]] = {side: [] for side in sides}
        answers = set()
        for _ in range(rounds + 1):
            for side, source in sides.items():
                if source is not None:
                    connection.register(side, source)
                asked = query.format(f"'{parquet}'" if source is None else side)
                began, used = time.perf_counter(), time.process_time()
                answers.add(str(connection.execute(asked).fetchall()))
                taken[side].append((time.perf_counter() - began, time.process_time() - used))
        if len(answers) != 1:
            raise SystemExit(f"{name}: the sides do not answer the same: {answers}")
        found[name] = tuple(_median(times[1:]) for times in taken.values())
    return found


def _median(taken: list[Taken]) -> Taken:
    clock, used = zip(*taken, strict=True)
    return statistics.median(clock), statistics.median(used)


def main(argv: list[str] | None = None) -> int:
    """Prints one line for each query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), given.messages, given.rounds)
    print(f"{machine()}\n{given.messages:,} messages, medians of {given.rounds} rounds")
    for name, sides in found.items():
        for number, what in enumerate(("clock", "processors")):
            file, *others = (side[number] for side in sides)
            print(
                f"{name}, {what}: Parquet {file * 1e3:.1f} ms, "
                + ", ".join(
                    f"{side} {taken * 1e3:.1f} ms ({taken / file:.1f} x)"
                    for side, taken in zip(SIDES, others, strict=True)
                )
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
