"""Sustained puts compared with raw writes of the same bytes, in one run: `python -m bench.harness`.

Rounds alternate: store, raw, store, raw, … Each ends with its bytes on the disk, outside the clock,
so that neither pays for the other's write-back. What is compared are medians over the rounds.
Warm: a round of each before those that count, and before every round the kernel is given memory that
its host has backed; cold: neither. `--gib 20` is one cold round of each, with a roll every GiB; the raw
side first, since its file gives its memory back afterwards, and the host some seconds to take that; with
`--given` each side has memory that the host has given. `--batch 1000`: `put_batch`, and a raw write of the same
records at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rocketstore
from bench.measure import PREWRITTEN_BYTES, Case, RawFile, Round, fetch_memory, machine, run_threads
from bench.memory import given_memory

__all__ = ["main", "measure"]

#: What a round without --seconds writes at most: less than a store lets pile up unflushed.
ROUND_BYTES = {"memory": 64 << 20, "os": 64 << 20, "disk": 1 << 20}
ROUND_MESSAGES = {"memory": 400_000, "os": 400_000, "disk": 500}
#: The same where calls are batches, whatever the durability.
BATCHES_BYTES = 64 << 20
FLUSH_TIMEOUT_S = 120.0
#: After it a virtual machine's free memory is its host's again.
COLD_S = 10.0


def measure(case: Case, directory: Path) -> dict[str, Any]:
    """Runs all rounds of one case in a new directory below `directory`; gives what is printed."""
    root = Path(tempfile.mkdtemp(prefix="harness-", dir=directory))
    stored: list[Round] = []
    raw: list[Round] = []
    try:
        with rocketstore.open(root / "store", durability=case.durability) as store:
            record = _record(store, case)
            if case.durability == "disk" and len(record) * case.batch > PREWRITTEN_BYTES:
                raise ValueError(
                    f"a batch of {case.batch} records of {len(record)} bytes is more than the "
                    f"{PREWRITTEN_BYTES} that are prewritten: choose a smaller --batch"
                )
            count = _calls_a_round(case, len(record))
            with RawFile(root / "raw", record, case) as file:
                if not case.cold:
                    _store_round(store, case, count)
                    file.round(case, count)
                if case.gib is not None:
                    _settle(case)
                    with _memory(case):
                        raw.append(file.round(case, count))
                for _ in range(case.rounds):
                    _settle(case)
                    with _memory(case):
                        stored.append(_store_round(store, case, count))
                    if case.gib is None:
                        _settle(case)
                        raw.append(file.round(case, count))
    finally:
        shutil.rmtree(root)
    return _summary(case, len(record), stored, raw)


def _settle(case: Case) -> None:
    """Between two rounds, outside the clock; warm means that the machine has its memory at hand."""
    if case.gib is not None:
        time.sleep(COLD_S)
    elif not case.cold:
        fetch_memory()


def _memory(case: Case) -> AbstractContextManager[None]:
    """For the log, its queues and what else is written with it."""
    if case.gib is None or not case.given:
        return nullcontext()
    return given_memory(int(case.gib * 1.25 * (1 << 30)))


def _record(store: rocketstore.Store, case: Case) -> bytes:
    """The bytes that a message takes in the log."""
    result = store.writer("bench", queue_id=0).put(bytes(case.size))
    store.wait_flushed(result.end_offset, timeout_s=FLUSH_TIMEOUT_S)  # `memory`: visible then
    return bytes(store.get(result.physical_offset))


def _calls_a_round(case: Case, record_bytes: int) -> int:
    """Calls of each thread in a round; 0 where the time decides."""
    if case.gib is not None:
        return int(case.gib * (1 << 30)) // (record_bytes * case.batch) // case.threads
    if case.seconds is not None:
        return 0
    if case.batch > 1:
        return max(1, BATCHES_BYTES // (record_bytes * case.batch) // case.threads)
    most = ROUND_BYTES[case.durability] // record_bytes
    return max(1, min(most, ROUND_MESSAGES[case.durability]) // case.threads)


def _store_round(store: rocketstore.Store, case: Case, count: int) -> Round:
    """Every thread puts into a queue of its own."""
    body = bytes(case.size)
    writers = [store.writer("bench", queue_id=n) for n in range(case.threads)]
    if case.batch == 1:
        round_ = run_threads([writer.put for writer in writers], body, case, count)
    else:
        bodies = [body] * case.batch
        round_ = run_threads([writer.put_batch for writer in writers], bodies, case, count)
    store.wait_flushed(store.end_offset, timeout_s=FLUSH_TIMEOUT_S)
    return round_


def _summary(
    case: Case, record_bytes: int, stored: Sequence[Round], raw: Sequence[Round]
) -> dict[str, Any]:
    ratios = [mine.rate / other.rate for mine, other in zip(stored, raw, strict=True)]
    return {
        **asdict(case),
        "pages": "cold" if case.cold else "warm",
        "record_bytes": record_bytes,
        "store": _side(stored, record_bytes),
        "raw": {"what": _raw_name(case.durability), **_side(raw, record_bytes)},
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def _side(rounds: Sequence[Round], record_bytes: int) -> dict[str, Any]:
    rate = statistics.median(item.rate for item in rounds)
    latencies = sorted(latency for item in rounds for latency in item.latencies_ns)
    return {
        "messages_per_s": rate,
        "mb_per_s": rate * record_bytes / 1e6,
        "rates": [item.rate for item in rounds],
        "messages": sum(item.messages for item in rounds),
        "p50_ns": latencies[len(latencies) // 2],
        "p99_ns": latencies[int(len(latencies) * 0.99)],
        "p999_ns": latencies[int(len(latencies) * 0.999)],
        "max_ns": max(item.longest_ns for item in rounds),
    }


def _raw_name(durability: str) -> str:
    return "pwritev2(RWF_DSYNC), prewritten" if durability == "disk" else "os.write"


def _print(found: dict[str, Any]) -> None:
    what = "put" if found["batch"] == 1 else f"put_batch of {found['batch']}:"
    limit = f"{found['seconds']} s" if found["seconds"] is not None else "short"
    if found["gib"] is not None:
        limit = f"{found['gib']:g} GiB"
    print(
        f"{what} {found['size']} B ({found['record_bytes']} B records), {found['durability']}, "
        f"{found['threads']} threads, {found['pages']}, {found['rounds']} {limit} rounds"
    )
    for name, side in (("rocketstore", found["store"]), (found["raw"]["what"], found["raw"])):
        print(
            f"  {name:32} {side['messages_per_s']:>12,.0f} msgs/s {side['mb_per_s']:>8,.0f} MB/s  "
            f"p50 {side['p50_ns'] / 1e3:.2f}  p99 {side['p99_ns'] / 1e3:.2f}  "
            f"p99.9 {side['p999_ns'] / 1e3:.2f}  max {side['max_ns'] / 1e3:.0f} µs"
        )
    print(f"  ratio {found['ratio']:.2f} (median of {found['rounds']})", flush=True)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.harness", description=__doc__)
    parser.add_argument("--size", type=int, action="append", help="bytes of a body; 100 and 1024")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1, help="messages a call; latencies of calls")
    parser.add_argument("--durability", choices=["memory", "os", "disk"], default="os")
    parser.add_argument(
        "--seconds", type=float, default=None, help="a round; default: short rounds"
    )
    parser.add_argument(
        "--gib", type=float, default=None, help="a round; one of each side, cold, into one log"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each side, at least five")
    parser.add_argument(
        "--cold", action="store_true", help="no round and no memory before those that count"
    )
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    parser.add_argument("--json", type=Path, default=None, help="default: a new file there")
    parser.add_argument(
        "--given", action="store_true", help="with --gib: memory that the host has given"
    )
    found = parser.parse_args(words)
    if found.rounds < 5 or found.threads < 1 or found.batch < 1:
        parser.error("--rounds is at least 5, --threads and --batch at least 1")
    if found.gib is not None:
        found.rounds, found.cold = 1, True
    return found


def main(words: Sequence[str] | None = None) -> int:
    given = _arguments(words)
    given.directory.mkdir(parents=True, exist_ok=True)
    results = []
    for size in given.size or (100, 1024):
        case = Case(
            size=size,
            durability=given.durability,
            threads=given.threads,
            rounds=given.rounds,
            seconds=given.seconds,
            gib=given.gib,
            cold=given.cold,
            given=given.given,
            batch=given.batch,
        )
        results.append(measure(case, given.directory))
        _print(results[-1])
    path = given.json or given.directory / f"harness-{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + os.linesep)
    print(f"saved {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
