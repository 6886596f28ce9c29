"""kill -9 at random points: what was acknowledged is there, in order, and nothing is made up."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.process.other_process import number_of, numbers, open_small, other_process
from tests.support import campaign

#: Puts numbers from given[0] on, given[1] a call; says the next number after each promise is met.
ENDLESS = """
first, batch = given
store = rocketstore.open(path, **options)
writer = store.writer(TOPIC)
say("open")
while True:
    bodies = [b"%d:" % number + bytes(number * 37 % 900) for number in range(first, first + batch)]
    if batch == 1:
        writer.put(bodies[0])
    else:
        writer.put_batch(bodies)
    first += batch
    say(str(first))
"""
MODES = [("disk", 1), ("os", 1), ("memory", 1), ("disk", 7), ("os", 7), ("memory", 7)]
LONGEST_RUN_S = 0.15
#: A store with more messages is left for a new one: reading all of it again takes the time.
MESSAGES_MAX = 3000


def run_and_kill(path: Path, durability: str, first: int, batch: int, delay_s: float) -> int:
    """One writer's life; the number behind the last that it acknowledged."""
    with other_process(ENDLESS, path, given=[first, batch], durability=durability) as writer:
        assert writer.line() == "open"
        killer = threading.Timer(delay_s, writer.process.kill)
        killer.start()
        said = writer.rest().decode().splitlines()  # until the kill closes the pipe
        killer.join()
        assert writer.process.wait() == -9
    acknowledged = [int(line) for line in said]
    assert acknowledged == list(range(first + batch, first + batch * (len(said) + 1), batch))
    return acknowledged[-1] if acknowledged else first


def kill_again_and_again(root: Path, rng: random.Random, kills: Iterable[int]) -> None:
    first = 0
    path = root / "0"
    for kill in kills:
        if first > MESSAGES_MAX:
            first, path = 0, root / str(kill)
        durability, batch = MODES[kill % len(MODES)]
        delay_s = rng.uniform(0.0, LONGEST_RUN_S)
        acknowledged = run_and_kill(path, durability, first, batch, delay_s)
        in_memory = None
        if rng.random() < 0.5:
            with open_small(path, "r") as reader:
                in_memory = numbers(reader)
        with open_small(path, durability=durability) as store:
            bodies = [bytes(m.body) for m in store.consumer("Orders")]
            found = [number_of(body) for body in bodies]
        where = f"kill {kill}, {durability}, batch {batch}, after {delay_s:.4f} s"
        assert found == list(range(len(found))), f"{where}: a hole, or an order that was not put"
        assert in_memory in (None, found), where
        assert all(len(b) == len(b.partition(b":")[0]) + 1 + n * 37 % 900
                   for n, b in enumerate(bodies)), where  # fmt: skip
        if durability != "memory":
            assert len(found) >= acknowledged, f"{where}: {acknowledged} were acknowledged"
            assert len(found) in (acknowledged, acknowledged + batch), f"{where}: part of a batch"
        assert first <= len(found) <= acknowledged + batch, f"{where}: more than was sent"
        first = len(found)


@pytest.mark.proof
def test_a_hundred_kills(tmp_path: Path, rng: random.Random) -> None:
    """D-20 D-22 D-23 D-37: acknowledged ⊆ recovered ⊆ sent after each kill, of each promise with single
    puts and with batches; what a reader recovers in memory is the same."""
    kill_again_and_again(tmp_path, rng, campaign.begin("killed writers").rounds())


#: Opens with a callback that says how recovery goes on.
OPEN_AGAIN = """
say("start")
store = rocketstore.open(path, on_recovery=lambda *_: say("on"), **options)
say("open")
told()
"""


@pytest.mark.proof
def test_kills_while_the_store_is_opened(tmp_path: Path, rng: random.Random) -> None:
    """D-22 D-23: a recovery that is killed, at any point, is finished by the next one."""
    for round_ in campaign.begin("killed recoveries").rounds():
        path = tmp_path / str(round_)
        acknowledged = run_and_kill(path, "os", 0, 1, rng.uniform(0.02, 0.1))
        for _ in range(2):
            with other_process(OPEN_AGAIN, path) as opener:
                assert opener.line() == "start"
                threading.Event().wait(rng.uniform(0.0, 0.03))
                opener.kill()
        with open_small(path) as store:
            found = numbers(store)
            assert found == list(range(len(found)))
            assert len(found) in (acknowledged, acknowledged + 1)
            assert store.writer("Orders").put(b"x").queue_offset == len(found)
