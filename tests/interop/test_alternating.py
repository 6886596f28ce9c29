"""One directory, two writers by turns: RocketMQ, rocketstore, RocketMQ … with clean and unclean stops."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from tests.interop.messages import SMALL, Sent, config_of, oracle_batch
from tests.interop.oracle import GENERATIONS, Oracle, OracleStore
from tests.interop.views import Fields, Tally, View, expected, of_oracle, of_ours
from tests.support import campaign
from tests.support.copies import copy_if_there

pytestmark = pytest.mark.java

#: Of each version, by `make interop-long ROUNDS=1000`; "": the seconds of a whole run, or 50.
ROUNDS = os.environ.get("ROCKETSTORE_INTEROP_ROUNDS", "")
#: So many on one directory; then a new one, since every round reads all of it.
ROUNDS_A_DIRECTORY = 25
KINDS = ("clean", "unclean")


def random_message(rng: random.Random) -> Sent:
    properties = [("TAGS", rng.choice("abc")), ("KEYS", f"k{rng.randrange(9)}"), ("n", "ü" * 9)]
    return Sent(
        topic=rng.choice(["Orders", "Events", "%RETRY%group"]),
        queue_id=rng.randrange(3),
        body=rng.randbytes(rng.choice([0, 1, 50, 200, 2500])),
        properties=tuple(rng.sample(properties, rng.randrange(4))),
        flag=rng.getrandbits(31),
        sys_flag=rng.choice([0, 0, 0, 0, 4, 8, 12]),
        born_host=rng.choice(["10.0.0.1:1234", "[fd00::1]:10911"]),
    )


class Directory:
    """The store and all that anybody acknowledged in it."""

    def __init__(self, base: Path, tally: Tally) -> None:
        self.base = base
        self.path = base / "0"
        self.tally = tally
        self.acked: dict[tuple[str, int], list[Fields]] = {}
        self.copies = 0

    def note(self, sent: Sent, queue_offset: int) -> None:
        if sent.sys_flag & 0xC in (4, 12):
            return  # in no queue
        queue = self.acked.setdefault((sent.topic, sent.queue_id), [])
        assert queue_offset == len(queue), "queue offsets go on where the other one stopped"
        queue.append({**expected(sent), "queue_offset": queue_offset})

    def check(self, view: View) -> None:
        """Nothing lost, nothing twice, all in order."""
        self.tally.scenarios += 1
        assert set(view.queues) == set(self.acked)
        for name, queue in self.acked.items():
            assert view.bounds[name] == (0, len(queue)), name
            assert list(view.queues[name]) == list(range(len(queue)))
            for queue_offset, message in enumerate(queue):
                found = view.queues[name][queue_offset]
                self.tally.same_message(message, found, f"{name} at {queue_offset}")

    def crash(self) -> None:
        """The directory as it stands is the store from now on; the one that is open goes nowhere."""
        self.copies += 1
        image = self.base / str(self.copies)
        shutil.copytree(self.path, image, copy_function=copy_if_there)
        self.path = image

    # ---- a round of each ----

    def ours(self, rng: random.Random, *, clean: bool) -> None:
        path = self.path
        with rocketstore.open(path, config=config_of(SMALL)) as store:
            self.check(of_ours(store))
            for _ in range(rng.randrange(1, 20)):
                sent = random_message(rng)
                self.note(sent, sent.put(store).queue_offset)
            if not clean:
                self.crash()
        if not clean:
            shutil.rmtree(path)

    def theirs(self, rng: random.Random, store: OracleStore) -> None:
        self.check(of_oracle(store.dump()))
        singles = [random_message(rng) for _ in range(rng.randrange(1, 20))]
        for sent, result in zip(
            singles, store.put([sent.for_oracle() for sent in singles]), strict=True
        ):
            assert result["status"] == "PUT_OK"
            self.note(sent, result["queue_offset"])
        queue_id = rng.randrange(3)
        parts = [
            Sent(queue_id=queue_id, body=rng.randbytes(9), properties=(("KEYS", f"k{n}"),))
            for n in range(rng.randrange(1, 6))
        ]
        result = store.put_batch(oracle_batch(parts))
        assert result["status"] == "PUT_OK"
        for number, sent in enumerate(parts):
            self.note(sent, result["queue_offset"] + number)


class Runner:
    """A JVM that may be killed: the next round that needs one has a new one."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.running: Oracle | None = None

    def start(self, path: Path) -> OracleStore:
        if self.running is None:
            self.running = Oracle(self.version)
        return self.running.start(path, SMALL)

    def kill(self) -> None:
        if self.running is not None:
            self.running.close()
            self.running = None


@pytest.fixture
def runner(version: str) -> Iterator[Runner]:
    runner = Runner(version)
    yield runner
    runner.kill()


@pytest.mark.timeout(60 + 10 * int(ROUNDS or 100))
def test_alternating_writers(
    runner: Runner, tally: Tally, rng: random.Random, tmp_path: Path
) -> None:
    counts: dict[tuple[str, str], int] = {}
    directory: Any = None
    rounds = campaign.begin("alternating writers", asked=ROUNDS, share=1 / len(GENERATIONS))
    for number in rounds.rounds():
        if number % ROUNDS_A_DIRECTORY == 0:
            directory = Directory(Path(tempfile.mkdtemp(dir=tmp_path)), tally)
        # By turns, now and then the same one twice.
        writer = ("ours", "theirs")[(number + (rng.random() < 0.2)) % 2]
        stop = rng.choice(KINDS)
        counts[writer, stop] = counts.get((writer, stop), 0) + 1
        if writer == "ours":
            directory.ours(rng, clean=stop == "clean")
            continue
        store = runner.start(directory.path)
        directory.theirs(rng, store)
        if stop == "clean":
            store.shutdown()
        else:
            runner.kill()
        if number % ROUNDS_A_DIRECTORY == ROUNDS_A_DIRECTORY - 1:
            shutil.rmtree(directory.base)
    print(f"{rounds.did} rounds: {counts}")
    assert rounds.did < 20 or len(counts) == 4
