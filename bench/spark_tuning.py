"""What the settings of a scan in Spark are worth, one changed at a time, in turns in one run.

    python -m bench.spark_tuning --mib 512 --rounds 5

All columns to noop unless said otherwise; `×` is how many times as fast as the defaults, the median of the rounds'
ratios. Needs `make spark`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark_jobs import arguments, fill, in_turns, noop


def main() -> None:
    """Prints a table in Markdown."""
    given = arguments("spark_tuning", __doc__, 512)
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="bench-spark-") as store:
        fill(Path(store), given.mib << 20)
        show(
            in_turns(
                lambda session: make_cases(session, store),
                given.rounds,
                lambda: None,
                given.mib << 22 if given.given else 0,
            )
        )


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
