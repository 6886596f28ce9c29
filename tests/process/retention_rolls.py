"""A store held at 20 segments over many rolls, with readers, a group and shipments in other processes:

    python -m tests.process.retention_rolls --rolls 2000

No reader meets an error or a wrong byte. The group is given each message once, and the archive has each
one that the log has lost; without pyarrow nothing is shipped. `tests/services/test_retention.py` does some
hundred rolls of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import rocketstore
from rocketstore import Retention, Store
from tests.support.small_store import dispatched, open_small
from tests.support.waiting import pause

SEGMENTS = 20
SEGMENT = 16_384
OPTIONS: dict[str, Any] = {
    "commit_log_file_size_bytes": SEGMENT,
    "consume_queue_file_size_bytes": 4000,
    "index_enabled": False,
    "durability": "os",
}
TOPIC, GROUP = "orders", "billing"


def body_of(number: int) -> bytes:
    return b"%08d" % number * (1 + number % 60)


def read(path: str) -> None:
    """Reads the topic from its begin to its end, until the input ends; prints how often."""
    rounds = messages = 0
    with rocketstore.open(path, "r") as store:
        while _goes_on():
            last = -1
            with store.consumer(TOPIC, reset="earliest") as consumer:
                for message in consumer:
                    assert message.queue_offset > last, (message.queue_offset, last)
                    last = message.queue_offset
                    assert message.body == body_of(last), last
                    messages += 1
            rounds += 1
    print(rounds, messages)


def ship(path: str, archive: str) -> None:
    """Ships again and again until the input ends; prints up to where."""
    end = rounds = 0
    while _goes_on():
        end = rocketstore.ship(path, archive).end_offset
        rounds += 1
    print(rounds, end)


def _goes_on() -> bool:
    """Until the standard input of this process is closed."""
    return not select.select([sys.stdin], [], [], 0)[0]


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.process.retention_rolls", *words]
    return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


def hold(rolls: int, readers: int, where: Path) -> dict[str, Any]:
    """Puts over so many rolls; gives what was counted."""
    path, archive = where / "store", (where / "archive").as_uri()
    ships = importlib.util.find_spec("pyarrow") is not None
    rule = Retention(max_bytes=SEGMENTS * SEGMENT, keep_unconsumed_by=[GROUP], keep_unshipped=ships)
    began = time.monotonic()
    with open_small(path, retention=rule, **OPTIONS) as store:
        writer = store.writer(TOPIC)
        number, most, waited, taken = 0, 0, 0, 0
        writer.put(body_of(0))
        others = [start("--read", str(path)) for _ in range(readers)]
        others += [start("--ship", str(path), archive)] if ships else []
        with store.consumer(TOPIC, group=GROUP) as consumer:
            while store.end_offset < rolls * SEGMENT:
                for _ in range(50):
                    number += 1
                    writer.put(body_of(number))
                taken = _take(consumer, taken)
                count = _count(store)
                most = max(most, count)
                while count > 2 * SEGMENTS:  # the shipments lag
                    waited += 1
                    assert all(other.poll() is None for other in others), "another process ended"
                    pause(0.01)
                    count = _count(store)
            store.flush()
            dispatched(store)
            taken = _take(consumer, taken)
            consumer.commit()
        said = [_end(other) for other in others]
        deadline = time.monotonic() + 60
        while not ships and _count(store) > SEGMENTS and time.monotonic() < deadline:
            pause(0.01)
        store.retention.run()
        assert taken == number + 1, (taken, number + 1)
        assert store.retention.last_error is None
        kept = _bodies(rocketstore.scan(store))
        lost = store.begin_offset
        if ships:
            assert lost <= rocketstore.ship(store, archive).end_offset
            kept = _bodies(rocketstore.scan(archive)) | kept
            assert kept == {body_of(n) for n in range(number + 1)}
    return {
        "rolls": rolls,
        "messages": number + 1,
        "given to the group": taken,
        "removed up to": lost,
        "most segments": most,
        "waits for shipments": waited,
        "readers and shipments said": said,
        "seconds": round(time.monotonic() - began, 1),
    }


def _take(consumer: Any, taken: int) -> int:
    """Each message once, in order; committed as they are given."""
    for message in consumer.poll(max_messages=10_000):
        assert message.body == body_of(taken), (message.queue_offset, taken)
        taken += 1
    consumer.commit(durability="os")
    return taken


def _count(store: Store) -> int:
    return (store.end_offset - store.begin_offset) // SEGMENT + 1


def _bodies(scan: Any) -> set[bytes]:
    return {bytes(body) for batch in scan for body in batch["body"]}


def _end(other: subprocess.Popen[str]) -> str:
    out, err = other.communicate("", timeout=300)
    assert other.returncode == 0, err[-2000:]
    return out.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.process.retention_rolls")
    parser.add_argument("--rolls", type=int, default=2000)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--read")
    parser.add_argument("--ship", nargs=2)
    given = parser.parse_args()
    if given.read or given.ship:
        read(given.read) if given.read else ship(*given.ship)
        return 0
    with tempfile.TemporaryDirectory() as where:
        for name, value in hold(given.rolls, given.readers, Path(where)).items():
            print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
