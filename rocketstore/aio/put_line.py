"""The queue of puts that must wait: a later put does not overtake an earlier one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from rocketstore.values import without_frames

__all__ = ["Place", "Turn"]


class Turn:
    """The line of puts that wait. Only the first of it works, and no put is made past the line.

    When the first has left, the next ones are put one after the other within one turn of the loop,
    as far as there is room. With a turn of the loop for each, the line would never end: tasks that
    have put join its end again before it is empty.
    """

    def __init__(self) -> None:
        #: While there is anybody, nothing is put at once.
        self.standing = 0
        self._line: deque[Place] = deque()
        self._left = 0  # how many of the line are not there any more

    def join(self, place: Place) -> None:
        self.standing += 1
        self._line.append(place)
        if self._line[0] is place:
            place.stand_first()

    def leave(self, place: Place) -> None:
        """A place that is given up inside the line is skipped, at the latest when it is the first."""
        self.standing -= 1
        if self._line[0] is not place:
            self._left += 1
            if 2 * self._left > len(self._line):
                self._line = deque(kept for kept in self._line if not kept.left)
                self._left = 0
            return
        self._line.popleft()
        while self._line:
            if self._line[0].left:
                self._left -= 1
            elif self._line[0].come():
                return
            self._line.popleft()


class Place:
    """A place in line, taken when this is made. Inside `async with` it is the first one; until it
    is left, no later one goes on.

    `attempt` does at once, without a wait, what the place is for, and returns what is then awaited;
    None where that takes a wait. It is called when all in front are gone, unless the place was the
    first anyway.
    """

    __slots__ = ("_attempt", "_made", "_reached", "_turn", "task")

    def __init__(
        self, turn: Turn, attempt: Callable[[], asyncio.Future[Any] | None] | None = None
    ) -> None:
        self._turn: Turn | None = turn
        self._attempt = attempt
        self._reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._made: asyncio.Future[Any] | None = None
        #: Whose place it is: nothing is attempted for a task that is cancelled.
        self.task: asyncio.Task[Any] | None = None
        turn.join(self)

    # ---- by the line ----

    @property
    def left(self) -> bool:
        """Whether it is given up, or done."""
        return self._turn is None

    def stand_first(self) -> None:
        if not self._reached.done():  # cancelled: it will leave
            self._reached.set_result(None)

    def come(self) -> bool:
        """Called when this place is the first of the line: puts at once if there is room. Whether the
        place stays in the line."""
        assert self._turn is not None
        cancelled = self._reached.done() or bool(self.task and self.task.cancelling())
        if self._attempt is not None and not cancelled:
            try:
                self._made = self._attempt()
            except Exception as error:
                self._made = self._reached.get_loop().create_future()
                self._made.set_exception(without_frames(error))
        self.stand_first()
        if self._made is None:
            return True
        self._turn.standing -= 1
        self._turn = None
        return False

    # ---- by whose it is ----

    async def made(self) -> asyncio.Future[Any] | None:
        """Returns when this place is the first of the line: what `attempt` gave, or None if it has to
        put by itself."""
        await self._reached
        return self._made

    async def __aenter__(self) -> None:
        try:
            await self._reached
        except BaseException:
            self.leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self, _: object = None) -> None:
        """Idempotent. What was attempted for a task that ended before is not awaited by anybody.
        The line may keep the place for a while, but not what was going to be put."""
        made, self._made = self._made, None
        self._attempt = self.task = None
        if made is not None and not made.cancel() and not made.cancelled():
            made.exception()  # noted as seen
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.leave(self)
