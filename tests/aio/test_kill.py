"""kill -9 while tasks put: what any task was told is there, whole, and nothing is made up."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from tests.process.other_process import TOPIC, number_of, open_small, other_process

#: given[0] tasks put numbers from given[1] on; each says a number once its put has returned.
TASKS = """
import asyncio, itertools, rocketstore.aio
tasks, first = given
async def main():
    async with rocketstore.aio.open(path, max_in_flight=tasks - 1 or 1, **options) as store:
        writer = store.writer(TOPIC)
        numbers = itertools.count(first)
        async def work():
            for number in numbers:
                await writer.put(b"%d:" % number + bytes(number * 37 % 900))
                say(str(number))
        say("open")
        await asyncio.gather(*[work() for _ in range(tasks)])
asyncio.run(main())
"""
#: With each of the two loops.
KILLS = 4
LONGEST_RUN_S = 0.2


def test_acknowledged_tasks_survive_a_kill(tmp_path: Path, rng: random.Random) -> None:
    """Acknowledged ⊆ recovered ⊆ sent; each number once, each body whole."""
    first, told = 0, set[int]()
    for kill in range(KILLS):
        tasks = rng.choice([1, 8, 64])
        with other_process(TASKS, tmp_path, given=[tasks, first]) as writer:
            assert writer.line() == "open"
            killer = threading.Timer(rng.uniform(0.01, LONGEST_RUN_S), writer.process.kill)
            killer.start()
            said = writer.rest().decode().splitlines()
            killer.join()
            assert writer.process.wait() == -9
        told |= {int(line) for line in said}
        with open_small(tmp_path) as store:
            bodies = [bytes(message.body) for message in store.consumer(TOPIC)]
        found = [number_of(body) for body in bodies]
        where = f"kill {kill}, {tasks} tasks"
        assert len(found) == len(set(found)), f"{where}: a message twice"
        assert told <= set(found), f"{where}: lost {sorted(told - set(found))[:5]}"
        for number, body in zip(found, bodies, strict=True):
            assert len(body) == len(b"%d:" % number) + number * 37 % 900, where
        # What was sent and not acknowledged may be there; it is never more than was in flight.
        assert len(set(found) - told) <= (kill + 1) * 64, where
        first = max(found, default=first - 1) + 1
