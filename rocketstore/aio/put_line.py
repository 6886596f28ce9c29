"""The line of puts that must wait: a later put does not overtake an earlier one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from rocketstore.values import without_frames

__all__ = ["Line", "Work"]

#: Does what a place in the line is for, and gives the future of this place its result; what it
#: returns, unless that is None, is the result.
Work: TypeAlias = Callable[[asyncio.Future[Any]], Awaitable[Any]]


class Line:
    """Puts that wait: for room, for a thread, or for the look at their topic. One task does them in
    the order in which they were begun, and no put is made past it.

    Puts that need not wait any more are made within one turn of the loop. With a turn of the loop
    for each, the line would never end: tasks that have put join its end again before it is empty.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: While there is anybody, nothing is put at once.
        self.busy = False
        self._line: OrderedDict[asyncio.Future[Any], Work] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def join(self, future: asyncio.Future[Any], work: Work) -> None:
        """Takes the last place for `work`. It is given up when `future` is cancelled before."""
        self._line[future] = work
        future.add_done_callback(self._leave)
        if not self.busy:
            self.busy = True
            self._task = self._loop.create_task(self._run())

    def _leave(self, future: asyncio.Future[Any]) -> None:
        self._line.pop(future, None)

    async def _run(self) -> None:
        try:
            while self._line:
                future, work = self._line.popitem(last=False)
                if not future.done():
                    await self._do(future, work)
        finally:
            self.busy = False
            for left in [*self._line]:  # the loop ends
                left.cancel()

    async def _do(self, future: asyncio.Future[Any], work: Work) -> None:
        try:
            result = await work(future)
        except Exception as error:
            if not future.done():
                future.set_exception(without_frames(error))
        except BaseException:
            future.cancel()
            raise
        else:
            if result is not None and not future.done():
                future.set_result(result)
