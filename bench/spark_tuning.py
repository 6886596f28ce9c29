"""What the settings of a scan in Spark are worth, one changed at a time, in turns in one run.

    python -m bench.spark_tuning --mib 512 --rounds 5

All columns to noop unless said otherwise; `×` is how many times as fast as the defaults, the median of the rounds'
ratios. Needs `make spark`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark_jobs import fill, noop


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_tuning", description=__doc__)
    parser.add_argument("--mib", type=int, default=512, help="of log")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where the store is made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="bench-spark-") as place:
        fill(Path(place), given.mib << 20)
        show(measure(place, given.rounds))


def measure(store: str, rounds: int) -> dict[str, list[float]]:
    from rocketstore import spark

    session = spark.session(
        master="local[2]", config={"spark.driver.memory": "4g", "spark.log.level": "ERROR"}
    )
    cases = make_cases(session, store)
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, work in cases.items():
            began = time.perf_counter()
            work()
            if number:
                times[name].append(time.perf_counter() - began)
    session.stop()
    return times


def make_cases(session: Any, store: str) -> dict[str, Callable[[], None]]:
    def scan(**options: str) -> Callable[[], None]:
        reader = session.read.format("rocketstore").options(path=store, **options)
        return lambda: noop(reader.load())

    return {
        "the defaults": scan(),
        "`columns=topic,body`": scan(columns="topic,body"),
        "`columns=topic,queue_offset,store_timestamp`": scan(
            columns="topic,queue_offset,store_timestamp"
        ),
        "`includeProperties=false`": scan(includeProperties="false"),
        "`view=kafka`": scan(view="kafka"),
        "`verify=false`": scan(verify="false"),
        "`splitBytes=64m`": scan(splitBytes="64m"),
        "`splitBytes=16m`": scan(splitBytes="16m"),
    }


def show(times: dict[str, list[float]]) -> None:
    first = next(iter(times.values()))
    print("| | s | × |")
    print("| --- | ---: | ---: |")
    for name, found in times.items():
        ratio = statistics.median(base / own for base, own in zip(first, found, strict=True))
        print(f"| {name} | {statistics.median(found):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
