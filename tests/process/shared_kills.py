"""Kills processes that share one store at random moments, the host among them, then says what is lost or there twice:

    python -m tests.process.shared_kills --kills 200 --seed 7
    python -m tests.process.shared_kills --kills 200 --gib 1     # a log of 1 GiB of default files before

Each process is `tests.process.shared_life`. A strike kills, stops and continues, or closes one of them, and another
one starts. After the death of a host the campaign measures the time until the next one has acknowledged a put that
began after it, and waits until a reader, which lives through all, has read that put. `shared_judge` says what is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import rocketstore
from rocketstore import Consumer, Message, Store, StoreRecoveringError
from rocketstore.tools import verify
from tests.process.other_process import SMALL
from tests.process.shared_judge import Event, Found, faults
from tests.process.shared_life import IN, TOPICS, pipe
from tests.sharing.hosts import host_pid
from tests.support.paths import ROOT
from tests.support.waiting import pause, wait_until

__all__ = ["Campaign", "campaign", "main"]

#: Processes at a time; of four, one may never become host.
LIVES: Final = 4
LONGEST_PAUSE_S: Final = 0.4
LONGEST_STOP_S: Final = 0.4
#: Of the errors of a life that hangs, characters: the end, where its threads are.
ERRORS_SHOWN: Final = 20_000
#: Small files, but no thousands of them for each queue, whose mappings a process could not keep: of 200 kills.
FILES: Final = {**SMALL, "consume_queue_file_size_bytes": 4096 * 20}
#: Bytes of a body, and bodies of a batch, that fill a log before the first life.
FILL_BODY, FILL_BATCH = 1 << 20, 8


@dataclass
class OneLife:
    """A process, and the lines that it has written."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    #: May never become host.
    guest: bool
    read_bytes: int = 0
    events: list[Event] = field(default_factory=list)
    left: bytes = b""

    def look(self) -> list[Event]:
        """New events."""
        if not self.log.exists():
            return []
        with open(self.log, "rb") as file:
            file.seek(self.read_bytes)
            data = file.read()
        self.read_bytes += len(data)
        *lines, self.left = (self.left + data).split(b"\n")
        new = [{**json.loads(line), "life": self.name} for line in lines]
        self.events += new
        return new

    def said(self, what: str) -> bool:
        self.look()
        return any(event["e"] == what for event in self.events)


class Watch:
    """A reader that lives through all kills: how far it has read each queue."""

    def __init__(self, path: Path) -> None:
        self.store = rocketstore.open(path, "r")
        self.nexts: dict[tuple[str, int], int] = {}
        self.wrong: list[str] = []
        #: Longest time between two looks, seconds: of a reader that freezes it is long.
        self.longest_s = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        consumers = [self.store.consumer(topic) for topic in TOPICS]
        before = time.monotonic()
        while not self._end.is_set():
            for consumer in consumers:
                for message in self._poll(consumer):
                    key = message.topic, message.queue_id
                    if message.queue_offset != self.nexts.get(key, 0):
                        self.wrong.append(
                            f"reader: {key} {message.queue_offset} after {self.nexts}"
                        )
                    self.nexts[key] = message.queue_offset + 1
            now = time.monotonic()
            self.longest_s, before = max(self.longest_s, now - before), now

    def has_read(self, queue: tuple[str, int], offset: int) -> bool:
        return self.nexts.get(queue, 0) > offset

    def _poll(self, consumer: Consumer) -> list[Message]:
        try:
            return consumer.poll(500, timeout_s=0.01)
        except StoreRecoveringError:  # on a slow disk; the same call works afterwards
            return []

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self.store.close()


class Campaign:
    """Lives of one store. `run` strikes; `judge` ends all and says what was counted."""

    def __init__(self, path: Path, rng: random.Random, options: dict[str, Any]) -> None:
        self.path, self.rng, self.options = path, rng, options
        self.logs = path.with_name("lives")
        self.logs.mkdir()
        self.lives: list[OneLife] = []
        self.ended: list[OneLife] = []
        self.strikes: list[tuple[int, int]] = []
        self.takeovers_ms: list[float] = []
        self.tally: Counter[str] = Counter()

    # ---- lives ----

    def begin(self) -> OneLife:
        number = len(self.lives) + len(self.ended)
        name = f"p{number}"
        log = self.logs / name
        given = {
            "name": name,
            "log": str(log),
            "path": str(self.path),
            "seed": self.rng.getrandbits(32),
            "shared": True if any(life.guest for life in self.lives) else "guest",
            "options": self.options,
        }
        command = [sys.executable, "-m", "tests.process.shared_life", json.dumps(given)]
        guest = given["shared"] == "guest"
        with open(f"{log}.errors", "wb") as errors:
            process = subprocess.Popen(command, cwd=ROOT, stderr=errors)
        life = OneLife(name, log, process, guest)
        self.lives.append(life)
        return life

    def fill(self) -> None:
        while len(self.lives) < LIVES:
            self.begin()

    def end(self, life: OneLife) -> None:
        life.process.wait()
        life.look()
        self.lives.remove(life)
        self.ended.append(life)

    def events(self) -> list[Event]:
        return [event for life in (*self.ended, *self.lives) for event in life.events]

    # ---- strikes ----

    def run(self, kills: Iterable[int]) -> None:
        self.fill()
        wait_until(lambda: any(life.said("open") for life in self.lives), self.who_waits)
        with contextlib.closing(Watch(self.path)) as self.watch:
            for kill in kills:
                self.strike(kill)
                self.fill()
                for life in self.lives:
                    assert life.process.poll() is None, self.last_words(life)
            self.watch_longest()
        assert self.watch.wrong == [], self.watch.wrong[:5]

    def strike(self, kill: int) -> None:
        if kill % 5 == 4:
            pause(self.rng.uniform(0, 0.3))  # perhaps the newest has not opened yet
        else:
            wait_until(lambda: all(life.said("open") for life in self.lives), self.who_waits)
            pause(self.rng.uniform(0, LONGEST_PAUSE_S))
        while self.rng.random() < 0.15:
            self.stop_and_continue()
        if self.rng.random() < 0.1:
            self.close_one()
        host = host_pid(self.path)
        victim = self.rng.choice(self.lives)
        if self.rng.random() < 0.6:
            victim = next((one for one in self.lives if one.process.pid == host), victim)
        self.kill(victim, victim.process.pid == host)

    def kill(self, life: OneLife, is_host: bool) -> None:
        killed = time.monotonic_ns()
        life.process.kill()
        life.process.wait()
        reaped = time.monotonic_ns()
        self.end(life)
        self.tally["killed hosts" if is_host else "killed guests"] += 1
        if is_host:
            first = self.first_put_after(reaped)
            self.takeovers_ms.append((first["t"] - killed) / 1e6)
            self.tally["takeovers"] += 1
            self.wait_for_the_reader(first)
        # What was under way when the host went may be told until the next one is there, and somewhat later.
        self.strikes.append((killed, time.monotonic_ns()))

    def first_put_after(self, moment: int) -> Event:
        """The first acknowledgement of a put that began then or later."""
        found: list[Event] = []

        def is_there() -> bool:
            for life in self.lives:
                found.extend(
                    event
                    for event in life.look()
                    if event["e"] == "ok" and event["began"] >= moment
                )
            return bool(found)

        wait_until(is_there, self.who_waits)
        return min(found, key=lambda event: event["t"])

    def wait_for_the_reader(self, put: Event) -> None:
        """Readers go on at the next host: what it acknowledged is read."""
        tried = next(
            event
            for life in self.lives
            for event in reversed(life.events)
            if event["e"] == "try" and (event["by"], event["n"]) == (put["by"], put["n"])
        )
        for (topic, _, _), (queue, offset) in zip(tried["rows"], put["places"], strict=False):
            if topic in TOPICS:
                has_read = partial(self.watch.has_read, (topic, queue), offset)
                wait_until(has_read, lambda: f"that the reader has {put}: {self.watch.nexts}")

    def stop_and_continue(self) -> None:
        life = self.rng.choice(self.lives)
        is_host = life.process.pid == host_pid(self.path)
        began = time.monotonic_ns()
        life.process.send_signal(signal.SIGSTOP)
        pause(self.rng.uniform(0, LONGEST_STOP_S))
        life.process.send_signal(signal.SIGCONT)
        self.strikes.append((began, time.monotonic_ns()))
        self.tally["stopped hosts" if is_host else "stopped guests"] += 1

    def close_one(self) -> None:
        """In order: guests of a host that closes see a pause, and no error."""
        life = self.rng.choice(self.lives)
        is_host = life.process.pid == host_pid(self.path)
        if life.said("open"):
            self.close(life)
            self.tally["closed hosts" if is_host else "closed guests"] += 1
            self.fill()

    def close(self, life: OneLife) -> None:
        life.process.terminate()
        wait_until(lambda: life.process.poll() is not None, self.who_waits)
        self.end(life)
        assert life.process.returncode == 0, self.last_words(life)

    def who_waits(self) -> str:
        host = host_pid(self.path) if self.path.exists() else None
        return f"host {host}, " + "; ".join(map(self.last_words, self.lives))

    def last_words(self, life: OneLife) -> str:
        life.look()
        ended = life.process.poll()
        broke = [event["error"] for event in life.events if event["e"] == "broken"]
        if broke:
            return f"{life.name} broke: {broke[0]}"
        return f"{life.name} (pid {life.process.pid}, ended {ended}): {life.events[-3:]}"

    def watch_longest(self) -> None:
        self.tally["longest silence of the reader, ms"] = round(self.watch.longest_s * 1000)

    # ---- the end ----

    def judge(self) -> dict[str, Any]:
        """Closes what lives, moves what the pipe has left, waits for what is delayed, and judges."""
        wait_until(lambda: all(life.said("open") for life in self.lives), self.who_waits)
        for life in [*self.lives]:
            self.close(life)
        with rocketstore.open(self.path, **self.options) as store:
            if IN in store.topics():
                with store.consumer(IN, group="pipe") as consumer:
                    while pipe(store, consumer):
                        pass
            wait_until(lambda: len(store.delayed) == 0, lambda: f"{store.delayed}")
            found = Found(dict(queues_of(store)), self.strikes)
        events = self.events()
        wrong = faults(events, found)
        report = verify(self.path, index_slots=100, index_entries=400) if self.options else None
        wrong += [] if report is None else map(str, report.faults)
        assert not wrong, f"{len(wrong)} faults: {wrong[:10]}"
        return self.counted(events, found)

    def counted(self, events: list[Event], found: Found) -> dict[str, Any]:
        outcomes = Counter(
            event["e"] if event["e"] != "refused" else event["error"].partition(":")[0]
            for event in events
            if event["e"] in ("ok", "unknown", "refused")
        )
        claims = Counter(
            event["error"].partition(":")[0] for event in events if event["e"] == "unclaimed"
        )
        messages = sum(len(rows) for rows in found.queues.values())
        return {"messages": messages, **outcomes, "claims": dict(claims), **self.tally}

    def median_ms(self) -> float:
        return statistics.median(self.takeovers_ms) if self.takeovers_ms else 0.0


def queues_of(store: Store) -> Iterator[tuple[tuple[str, int], list[tuple[int, str, str | None]]]]:
    for topic in store.topics():
        if topic == "fill":
            continue
        for queue_id in store.queues(topic):
            with store.consumer(topic, queue_id=queue_id) as consumer:
                yield (
                    (topic, queue_id),
                    [(one.queue_offset, one.body.decode(), one.unique_id) for one in consumer],
                )


def campaign(
    path: Path, kills: Iterable[int], rng: random.Random, gib: float = 0.0
) -> dict[str, Any]:
    """Strikes a new store; gives what was counted, or fails with what is wrong."""
    options: dict[str, Any] = {} if gib else FILES
    if gib:
        with rocketstore.open(path, durability="os") as store:
            writer = store.writer("fill")
            for _ in range(int(gib * (1 << 30)) // (FILL_BODY * FILL_BATCH)):
                writer.put_batch([bytes(FILL_BODY)] * FILL_BATCH)
    struck = Campaign(path, rng, options)
    try:
        struck.run(kills)
        counted = struck.judge()
    except BaseException:
        for life in struck.lives:
            life.process.send_signal(signal.SIGUSR1)
        pause(1)  # for what they say of their threads
        for life in struck.lives:
            print(life.name, Path(f"{life.log}.errors").read_text()[-ERRORS_SHOWN:])
        raise
    finally:
        for life in struck.lives:
            life.process.kill()
            life.process.wait()
    return {**counted, "median ms to the next host's first put": round(struck.median_ms(), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--gib", type=float, default=0.0, help="of messages before; 0: small files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        print(f"seed {given.seed}", flush=True)
        rng = random.Random(given.seed)
        found = campaign(Path(where) / "store", range(given.kills), rng, given.gib)
    print(f"{given.kills} kills, 0 lost, 0 twice:", found)


if __name__ == "__main__":
    main()
