"""Fills a store, kills its writers at random moments, reads everything back, and counts what is lost.

    make demo
    python examples/demo.py --kills 100 --seed 7

The data are the source lines of the Python library: a topic for each of its packages, a key for each
file. The exit code is 1 if a message is lost or differs. The store stays in `demo-store`:

    rocketstore query demo-store json json/decoder.py --format %s
    rocketstore verify demo-store
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import logging
import os
import random
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rocketstore

#: An earlier demo made the directory that has this file: the next one may remove it.
MARK = "made-by-the-demo"
KILLS_TOPIC = "demo-kills"
LONGEST_RUN_S = 0.3
#: Every fifth writer is killed while it opens the store, which is while it recovers.
OPENING_EVERY = 5

#: Topic, then its files with their keys.
Topics = dict[str, list[tuple[Path, str]]]


class Found(NamedTuple):
    """Messages that a part stored or read, and those of them that are gone or not as they were put."""

    messages: int
    lost: int = 0
    wrong: int = 0


def library(base: Path, limit: int | None = None) -> Topics:
    """Python files below `base`, at most `limit`, by topic."""
    topics: Topics = {}
    found = (path for path in sorted(base.rglob("*.py")) if "site-packages" not in path.parts)
    for path in itertools.islice(found, limit):
        relative = path.relative_to(base)
        topic = re.sub(r"[^a-zA-Z0-9_-]", "_", relative.parts[0].removesuffix(".py"))
        topics.setdefault(topic, []).append((path, re.sub(r"\s", "_", str(relative))))
    return topics


def lines(path: Path) -> list[bytes]:
    """Lines with their newlines: joined they are the file."""
    return path.read_bytes().splitlines(keepends=True)


def put_lines(store: rocketstore.Store, topics: Topics, times: dict[str, list[int]]) -> Found:
    """Puts each line as a message; `times` gets when each was stored."""
    for topic, files in topics.items():
        put = store.writer(topic, queue_id=0).put
        stored = times.setdefault(topic, [])
        for path, key in files:
            stored += [put(line, keys=key).store_timestamp_ms for line in lines(path)]
    return Found(sum(map(len, times.values())))


def compared(messages: Iterable[rocketstore.Message], expected: Iterable[bytes]) -> Found:
    """Compares messages with the bodies that they should have."""
    read = lost = wrong = 0
    for message, body in itertools.zip_longest(messages, expected):
        read += message is not None
        lost += message is None
        wrong += message is not None and message.body != body
    return Found(read, lost, wrong)


def by_group(store: rocketstore.Store, topics: Topics) -> Iterator[Found]:
    for topic, files in topics.items():
        with store.consumer(topic, group="demo") as consumer:
            yield compared(consumer, (line for path, _ in files for line in lines(path)))
            consumer.commit()
            yield Found(0, consumer.lag())


def by_key(store: rocketstore.Store, topics: Topics) -> Iterator[Found]:
    for topic, files in topics.items():
        for path, key in files:
            yield compared(store.query(topic, key, order="oldest"), lines(path))


def by_time(
    store: rocketstore.Store, topics: Topics, times: dict[str, list[int]]
) -> Iterator[Found]:
    """Reads each topic from the moment in which its middle message was stored."""
    for topic, files in topics.items():
        if not times[topic]:
            continue
        moment = times[topic][len(times[topic]) // 2]
        first = bisect.bisect_left(times[topic], moment)
        bodies = itertools.chain.from_iterable(lines(path) for path, _ in files)
        with store.consumer(topic, queue_id=0, when=moment) as consumer:
            yield compared(consumer, itertools.islice(bodies, first, None))


def body(number: int) -> bytes:
    return b"%d:" % number + bytes([number % 251]) * (number * 7919 % 1500)


def write_until_killed(path: Path, durability: Any, first: int) -> None:
    """The process that the demo kills: reports each number after its put returned."""
    os.write(1, b"open\n")
    with rocketstore.open(path, "r+", durability=durability) as store:
        writer = store.writer(KILLS_TOPIC, queue_id=0)
        for number in itertools.count(first):
            writer.put(body(number))
            os.write(1, b"%d\n" % number)


def kill_writer(path: Path, durability: str, first: int, opening: bool, run_s: float) -> int:
    """Starts a writer and kills it; gives how many messages it had reported."""
    words = [sys.executable, __file__, "--store", path, "--writer", durability, str(first)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdout is not None
        try:
            text = child.stdout.readline()  # it opens the store
            text += b"" if opening else child.stdout.readline()  # its first message is put
            child.communicate(timeout=run_s)
        except subprocess.TimeoutExpired:
            child.kill()
            text += child.communicate()[0]
        finally:
            child.kill()
    reported = text.split()[1:]
    if child.returncode >= 0 or reported != [b"%d" % (first + n) for n in range(len(reported))]:
        raise RuntimeError(f"a writer ended by itself, or its reports have gaps: {text[-100:]!r}")
    return len(reported)


def kill_writers(path: Path, kills: int, rng: random.Random) -> Iterator[Found]:
    """What recovery finds must be 0, 1, 2, … up to the last number that was reported, and at most
    one more: the one that was being put."""
    first = 0
    for kill in range(kills):
        durability: Any = ("disk", "os")[kill % 2]
        opening = kill % OPENING_EVERY == OPENING_EVERY - 1
        run_s = rng.uniform(0, 0.05 if opening else LONGEST_RUN_S)
        reported = first + kill_writer(path, durability, first, opening, run_s)
        with rocketstore.open(path, "r+", durability=durability) as store:
            end = store.max_queue_offset(KILLS_TOPIC, 0)
            yield Found(0, max(0, reported - end), max(0, end - reported - 1))
            with store.consumer(KILLS_TOPIC, queue_id=0, offset=first) as consumer:
                yield compared(consumer, map(body, range(first, end)))
        first = end


def show(what: str, work: Callable[[], Iterable[Found]]) -> Found:
    """Does the work, and prints a line of it."""
    began = time.monotonic()
    total = Found(*map(sum, zip(Found(0), *work(), strict=True)))
    seconds = time.monotonic() - began
    print(
        f"{what:24} {total.messages:>10,} messages {seconds:>6.1f} s"
        f" {total.lost:>4,} lost {total.wrong:>4,} wrong",
        flush=True,
    )
    return total


def run(path: Path, topics: Topics, kills: int, seed: int) -> int:
    """All parts; gives the exit code."""
    if path.exists() and any(path.iterdir()):
        if not (path / MARK).exists():
            print(f"{path} is not empty and was not made by the demo", file=sys.stderr)
            return 1
        shutil.rmtree(path)
    print(f"seed of the kills: {seed} (again with --seed {seed})")
    times: dict[str, list[int]] = {}
    # Small files: the log rolls several times.
    with rocketstore.open(path, durability="os", commit_log_file_size_bytes=64 << 20) as store:
        (path / MARK).touch()
        found = [show("put source lines", lambda: [put_lines(store, topics, times)])]
    found.append(show("kill -9", lambda: kill_writers(path, kills, random.Random(seed))))
    stored = sum(part.messages for part in found)
    with rocketstore.open(path, "r+") as store:
        found.append(show("read by group", lambda: by_group(store, topics)))
        found.append(show("read by key", lambda: by_key(store, topics)))
        found.append(show("read by time", lambda: by_time(store, topics, times)))
    lost, wrong = sum(part.lost for part in found), sum(part.wrong for part in found)
    print(
        f"\n{stored:,} messages stored, {kills} writers killed, {lost:,} lost, {wrong:,} wrong; "
        f"the store is in {path}"
    )
    return 1 if lost or wrong else 0


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fills a store, kills its writers, checks it.")
    parser.add_argument(
        "--store",
        type=Path,
        default=Path("demo-store"),
        help="the directory, which the demo removes first",
    )
    parser.add_argument("--kills", type=int, default=20, help="writers to kill")
    parser.add_argument("--files", type=int, help="most source files to store, a count")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the kills")
    parser.add_argument("--writer", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.writer:
        write_until_killed(given.store, given.writer[0], int(given.writer[1]))
    topics = library(Path(sysconfig.get_path("stdlib")), given.files)
    return run(given.store, topics, given.kills, given.seed)


if __name__ == "__main__":
    logging.getLogger("rocketstore").setLevel(logging.CRITICAL)  # each recovery has its lines
    sys.exit(main())
