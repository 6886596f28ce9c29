"""rocketstore compared with RocketMQ 5.3.3's own store in its JVM: `python -m bench.java_store`.

The same messages, the same durability, sides in turns; one topic, one queue, one thread. Puts go to stores that
stay open, as a program's do, a round of each before those that count; and, as "new", each round to a store that was
just made. The JVM stays, warmed up with 300,000 puts, and keeps RocketMQ's defaults: segments of 1 GiB and the index
on, which are rocketstore's too. What is printed are medians of the rounds; a ratio is the median of the ratios of one
round. Needs a JDK (11 or newer) and Maven.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import rocketstore
from bench.java_rates import SIZES, TOPIC, WARM_UP, rates, row
from bench.jvm import ROCKETMQ, Jvm, prepare
from bench.measure import machine

__all__ = ["main"]

LATENCY_RATE = 10_000
LATENCY_PUTS = 30_000
#: A process that fills a store and waits to be killed.
FILL = """
import sys
from bench.java_rates import bodies_of
import rocketstore
path, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = rocketstore.open(path, durability="os")
writer = store.writer("bench", queue_id=0)
bodies = bodies_of(size)
for n in range(count):
    writer.put(bodies[n & 255], tags="tag", keys="key-%d" % n)
assert store.max_queue_offset("bench", 0) == count
print("ready", flush=True)
sys.stdin.read()
"""


# ---- from a put until its message can be read ----


def latency_ours(path: Path, size: int) -> tuple[float, float]:
    """Before the put until another thread's consumer holds the message."""
    body = os.urandom(size)
    sent, came = [0] * LATENCY_PUTS, [0] * LATENCY_PUTS
    with rocketstore.open(path, durability="os") as store:
        writer = store.writer(TOPIC, queue_id=0)
        consumer = store.consumer(TOPIC, queue_id=0)

        def consume() -> None:
            clock = time.perf_counter_ns
            for message in consumer.follow(timeout_s=10.0):
                came[message.queue_offset] = clock()
                if message.queue_offset == LATENCY_PUTS - 1:
                    return

        thread = threading.Thread(target=consume)
        thread.start()
        period_ns = 1_000_000_000 // LATENCY_RATE
        due = time.perf_counter_ns()
        for n in range(LATENCY_PUTS):
            left = due - time.perf_counter_ns()
            if left > 0:
                time.sleep(left / 1e9)
            due += period_ns
            sent[n] = time.perf_counter_ns()
            writer.put(body)
        thread.join()
        consumer.close()
    took = sorted(after - before for before, after in zip(sent, came, strict=True))
    return took[LATENCY_PUTS // 2] / 1e3, took[int(LATENCY_PUTS * 0.99)] / 1e3


def latencies(jvm: Jvm, root: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Microseconds. Theirs end when RocketMQ says that the message can be pulled, before it is."""
    for size in SIZES:
        ours, theirs = [], []
        for _ in range(rounds):
            path = Path(tempfile.mkdtemp(prefix="latency-", dir=root))
            ours.append(latency_ours(path / "ours", size))
            with jvm.opened(path / "theirs", "os"):
                p50, p99 = jvm.ask("latency", LATENCY_PUTS, size, LATENCY_RATE)
                theirs.append((p50 / 1e3, p99 / 1e3))
            shutil.rmtree(path)
        for at, name in enumerate(("p50", "p99")):
            yield row(
                f"put until readable, {LATENCY_RATE // 1000} k/s, {name}", "os", size, "µs",
                [found[at] for found in ours], [found[at] for found in theirs],
            )  # fmt: skip


# ---- opening 1 GiB after a crash ----


def killed_stores(
    output: Path, root: Path, size: int, log_bytes: int
) -> dict[str, tuple[Path, int]]:
    """A store of each side whose process was killed, and its number of messages."""
    record = 91 + len(TOPIC) + size + len("TAGS.tag.KEYS.key-1000000.") + 20
    count = log_bytes // record
    ours, theirs = root / f"killed-ours-{size}", root / f"killed-theirs-{size}"
    words = [sys.executable, "-c", FILL, str(ours), str(count), str(size)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.kill()
    jvm = Jvm(output)
    jvm.ask("open", theirs, "os")
    jvm.ask("keyed", count, size)
    jvm.ask("settle")
    jvm.kill()
    return {"ours": (ours, count), "theirs": (theirs, count)}


def recoveries(output: Path, root: Path, rounds: int, log_bytes: int) -> Iterator[dict[str, Any]]:
    """Seconds until every message can be read, after a kill, in a process that runs already."""
    for size in SIZES:
        killed = killed_stores(output, root, size, log_bytes)
        for name, gone in (("crash recovery", ()), ("rebuild", ("consumequeue", "index"))):
            took: dict[str, list[float]] = {"ours": [], "theirs": []}
            for _ in range(rounds):
                for side, (made, count) in killed.items():
                    path = root / "copy"
                    # A copy that forgot which names are one file would be a larger store than was killed.
                    copy = ["cp", "-r", "--preserve=links", "--sparse=always", made, path]
                    subprocess.run(copy, check=True)
                    for folder in gone:
                        shutil.rmtree(path / folder)
                    os.sync()
                    took[side].append(
                        open_ours(path, count)
                        if side == "ours"
                        else open_theirs(output, path, count)
                    )
                    shutil.rmtree(path)
            yield row(
                f"{name} of {log_bytes >> 20} MiB", "os", size, "s", took["ours"], took["theirs"]
            )
        for made, _ in killed.values():
            shutil.rmtree(made)


def open_ours(path: Path, count: int) -> float:
    began = time.perf_counter_ns()
    with rocketstore.open(path, "r+", durability="os") as store:
        found = store.max_queue_offset(TOPIC, 0)
        took = (time.perf_counter_ns() - began) / 1e9
    assert found == count, f"{found} of {count} messages"
    return took


def open_theirs(output: Path, path: Path, count: int) -> float:
    jvm = Jvm(output)
    try:
        took = jvm.ask("open", path, "os")[0] / 1e9
        jvm.ask("read", count)
    finally:
        jvm.kill()
    return took


def chosen(
    parts: Sequence[str], jvm: Jvm, output: Path, root: Path, given: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    if "rates" in parts:
        yield from rates(jvm, root, given.rounds)
    if "latency" in parts:
        yield from latencies(jvm, root, given.rounds)
    if "recovery" in parts:
        yield from recoveries(output, root, given.rounds, given.mib << 20)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.java_store", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each side; at least five")
    parser.add_argument("--parts", default="rates,latency,recovery", help="which, with commas")
    parser.add_argument("--mib", type=int, default=960, help="of log that is recovered")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    given = parser.parse_args(words)
    if given.rounds < 5:
        parser.error("--rounds is at least 5")
    output, root = prepare(parser, given.directory, ROCKETMQ)
    facts = {
        **machine(),
        "rocketmq": ROCKETMQ.version,
        "load": os.getloadavg()[0],
        "rounds": given.rounds,
    }
    print(json.dumps(facts))
    results = []
    jvm = Jvm(output)
    try:
        with jvm.opened(root / "warm", "os"):
            jvm.ask("put", WARM_UP, 100)
        for result in chosen(given.parts.split(","), jvm, output, root, given):
            results.append(result)
            print(
                f"{result['what']:32} {result['durability']:4} {result['size']:5} B  "
                f"rocketstore {result['ours']:14,.2f}  RocketMQ {result['theirs']:14,.2f} "
                f"{result['unit']:10}  × {result['ratio']:.2f}",
                flush=True,
            )
    finally:
        jvm.kill()
        shutil.rmtree(root)
    found_text = json.dumps({"machine": facts, "results": results}, indent=1)
    (given.directory / "java_store.json").write_text(found_text + os.linesep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
