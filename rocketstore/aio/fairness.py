"""How long the tasks of one loop may put before the other callbacks of the loop run."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import Any, Final, TypeVar

from rocketstore.aio.awaited import PutFuture

__all__ = ["Fairness"]

T = TypeVar("T")

#: Puts that a task does at once before it lets the other tasks run.
SLICE: Final = 64
#: Puts after which the clock is looked at.
LOOK_EVERY: Final = 16
#: The time that all tasks together put in one turn of the loop. After it each task that is ready
#: does one put more.
BUDGET_S: Final = 0.002
#: Tasks that go on in one turn of the loop.
GO_ON: Final = 4


class Fairness:
    """A put that is done at once does not leave the task, so a task that only puts never lets the
    loop go. This delays the result of a put now and then: its task waits in a line, and a turn of
    the loop lets the first of the line go on.

    One budget of time is shared by all tasks. A slice for each of them is not enough: 500 tasks
    that are ready would use 500 slices before a timer runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Puts that were done at once since the last look, and the number that makes a look due.
        self.puts = 0
        self.look_at = LOOK_EVERY
        self._slice = 0
        self._turn_ends_s = 0.0
        self._counting = False  # whether `_next_turn` will run
        self._line: deque[tuple[PutFuture[Any], PutFuture[Any]]] = deque()

    def look(self, done: PutFuture[T]) -> PutFuture[T]:
        """Gives `done`, or what becomes done in a later turn of the loop."""
        self._slice += self.puts
        self.puts = 0
        now_s = perf_counter()
        if not self._counting:
            self._count(now_s)
        spent = now_s >= self._turn_ends_s
        if spent:
            self.look_at = 1
        elif self._slice < SLICE:
            return done
        self._slice = 0
        later: PutFuture[T] = PutFuture(loop=self._loop)
        self._line.append((later, done))
        return later

    def _count(self, now_s: float) -> None:
        self._counting = True
        self._turn_ends_s = now_s + BUDGET_S
        self.look_at = LOOK_EVERY
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Runs once in each turn of the loop, as long as tasks wait."""
        self._counting = False
        self._slice = 0
        line = self._line
        for _ in range(min(GO_ON, len(line))):
            later, done = line.popleft()
            if not later.done():
                later.set_result(done.result())
        if line:
            self._count(perf_counter())
