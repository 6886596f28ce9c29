"""Spark over a store: scans, jobs and the sink, compared with Spark's own ways in the same run.

    python -m bench.spark_jobs --mib 1024 --rounds 5

`local[2]`; records of about 1 KiB in 16 topics of 4 queues, in the page cache. Each round takes every case once;
the first round is warm-up and not counted. GB/s are bytes of the log; medians. Needs `make spark`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore
from bench.memory import given_memory

TOPICS, QUEUES = 16, 4
BODY_BYTES = 870
BATCH = 500
PIECE = 8 << 20


def fill(root: Path, total_bytes: int) -> int:
    """A log of about `total_bytes`; its messages."""
    rng, count = random.Random(1), 0
    with rocketstore.open(root, durability="memory") as store:
        writers = [
            store.writer(f"topic-{number:02}", queue_id=queue)
            for number in range(TOPICS)
            for queue in range(QUEUES)
        ]
        while store.end_offset < total_bytes:
            bodies = [rng.randbytes(BODY_BYTES // 2).hex().encode() for _ in range(BATCH)]
            rng.choice(writers).put_batch(bodies, tags="bench")
            count += BATCH
    return count


def plain_write(path: Path, total_bytes: int) -> None:
    """`total_bytes` by write(2), and on the disk."""
    piece = os.urandom(PIECE)
    with path.open("wb", buffering=0) as file:
        for _ in range(total_bytes // PIECE):
            file.write(piece)
        os.fsync(file.fileno())
    path.unlink()


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def arguments(name: str, text: str | None, mib: int) -> argparse.Namespace:
    """The options of a program that measures Spark over a log."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=text)
    parser.add_argument("--mib", type=int, default=mib, help="of log")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    parser.add_argument(
        "--given", action="store_true", help="each with memory that the host has given"
    )
    return parser.parse_args()


def in_turns(
    cases: Callable[[Any], dict[str, Callable[[], Any]]],
    rounds: int,
    between: Callable[[], None],
    given_bytes: int = 0,
) -> dict[str, list[float]]:
    """Seconds of each case in each round, but for a first one, in one session; `between` is not counted. So
    much memory that the host has given is there for each."""
    from rocketstore import spark

    # The workers find this package, too.
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    session = spark.session(
        master="local[2]", config={"spark.driver.memory": "4g", "spark.log.level": "ERROR"}
    )
    made = cases(session)
    times: dict[str, list[float]] = {name: [] for name in made}
    for number in range(rounds + 1):
        for name, work in made.items():
            between()
            with given_memory(given_bytes) if given_bytes else contextlib.nullcontext():
                began = time.perf_counter()
                work()
                took = time.perf_counter() - began
            if number:
                times[name].append(took)
    session.stop()
    return times


def main() -> None:
    """Prints a table in Markdown."""
    given = arguments("spark_jobs", __doc__, 1024)
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="bench-spark-") as place:
        root, size = Path(place), given.mib << 20
        count = fill(root / "store", size)

        def clean() -> None:
            for leftover in ("out", "frame", "copy"):
                shutil.rmtree(root / leftover, ignore_errors=True)
            os.sync()  # what the last one wrote

        times = in_turns(
            lambda session: make_cases(session, root, size, count),
            given.rounds,
            clean,
            4 * size if given.given else 0,
        )
    show(times, count, size)


def make_cases(session: Any, root: Path, size: int, count: int) -> dict[str, Callable[[], Any]]:
    from bench.null_ends import NullEnds
    from rocketstore.spark import jobs

    session.dataSource.register(NullEnds)
    store = str(root / "store")
    kept = str(root / "parquet")

    def read(kind: str = "rocketstore", **options: str) -> Any:
        return session.read.format(kind).options(path=store, **options).load()

    def write(kind: str, **options: str) -> None:
        rows = session.read.parquet(kept).select("body", "topic", "queue_id", "tags", "keys")
        to = rows.write.format(kind).mode("append")
        to.options(path=str(root / "copy"), **options).save()

    read().write.option("compression", "zstd").parquet(kept)
    return {
        "scan, all columns": lambda: noop(read()),
        "scan, two columns": lambda: noop(read(columns="topic,queue_id")),
        "a source in Python that does nothing": lambda: noop(read("null", messages=str(count))),
        "the same rows from Parquet": lambda: noop(session.read.parquet(kept)),
        "job: stats": lambda: jobs.stats(session, store).collect(),
        "job: audit": lambda: jobs.audit(session, store).collect(),
        "job: export, zstd": lambda: jobs.export(session, store, str(root / "out")).collect(),
        "df.write.parquet, zstd": lambda: (
            read().write.option("compression", "zstd").parquet(str(root / "frame"))
        ),
        "sink, from Parquet": lambda: write("rocketstore"),
        "sink, shards=auto": lambda: write("rocketstore", shards="auto"),
        "a sink in Python that does nothing": lambda: write("null"),
        "plain write and fsync": lambda: plain_write(root / "plain", size),
    }


def show(times: dict[str, list[float]], count: int, size: int) -> None:
    print(f"\n{count:,} messages, {size >> 20:,} MiB of log, {os.cpu_count()} cores\n")
    print("| case | s | GB/s | messages/s | slowest |")
    print("| --- | ---: | ---: | ---: | ---: |")
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, seconds in medians.items():
        rate = f"{size / seconds / 1e9:.2f} | {count / seconds:,.0f}"
        print(f"| {name} | {seconds:.2f} | {rate} | {max(times[name]):.2f} |")
    export = medians["df.write.parquet, zstd"] / medians["job: export, zstd"]
    plain = medians["plain write and fsync"]
    parquet = medians["the same rows from Parquet"] / medians["scan, all columns"]
    print(f"\nexport is {export:.2f} × as fast as df.write.parquet")
    for name in ("sink, from Parquet", "sink, shards=auto", "a sink in Python that does nothing"):
        print(f"{name}: {plain / medians[name]:.2f} × the plain rate of the disk")
    nothing = medians["a source in Python that does nothing"] / medians["scan, all columns"]
    print(f"a scan of all columns is {parquet:.2f} × as fast as Parquet of the same rows,")
    print(f"{nothing:.2f} × as fast as a source in Python that does nothing")


if __name__ == "__main__":
    main()
