"""`rocketstore bench`: how fast this machine stores and reads."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

import rocketstore
from rocketstore.cli.demo_results import Row, table_of
from rocketstore.cli.output import console
from rocketstore.cli.parameters import durability_option

__all__ = ["command"]

#: One put of so many is timed by itself.
SAMPLE = 64
MOST_BYTES = 256 * 1024 * 1024


@click.command(short_help="How fast this machine stores and reads.")
@click.option("--size", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(0.01, 60), default=1.0, show_default=True, help="At most."
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Where to make the store; default the system's temporary directory.",
)
@durability_option
def command(size: int, seconds: float, directory: Path | None, durability: str) -> int:
    """Puts messages of SIZE bytes from one thread, reads them, and shows rates and latencies.

    A short look at this disk; at most 256 MiB are stored. The comparisons of docs/performance.md come
    from `python -m bench.harness` in the source tree.
    """
    with (
        tempfile.TemporaryDirectory(prefix="rocketstore-bench-", dir=directory) as path,
        rocketstore.open(path, durability=durability) as store,
    ):
        put = _put(store, size, seconds)
        store.wait_flushed(store.end_offset, timeout_s=60.0)
        console().print(table_of([put, _read(store)]))
    return 0


def _put(store: rocketstore.Store, size: int, seconds: float) -> Row:
    row = Row(f"put {size} B", str(store.config.durability))
    put = store.writer("bench", queue_id=0).put
    body = bytes(size)
    clock = time.perf_counter_ns
    began = clock()
    deadline = began + int(seconds * 1e9)
    end_offset = 0
    now = began
    while now < deadline and end_offset < MOST_BYTES:
        before = clock()
        end_offset = put(body).end_offset
        now = clock()
        row.latencies_ns.append(now - before)
        row.messages += 1
        if row.latencies_ns[-1] < 20_000:
            for _ in range(SAMPLE - 1):
                put(body)
            row.messages += SAMPLE - 1
    row.seconds = (clock() - began) / 1e9
    row.bytes = row.messages * size
    return row


def _read(store: rocketstore.Store) -> Row:
    row = Row("read")
    began = time.perf_counter()
    with store.consumer("bench", queue_id=0) as consumer:
        for message in consumer:
            row.messages += 1
            row.bytes += len(message.body)
    row.seconds = time.perf_counter() - began
    return row
