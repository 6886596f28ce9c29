"""What calls of a loop's store give that more takes than `await`: `create_task`, `async for`.

The loop completes the future of a put, and puts that are begun one after the other keep their order: the
message is in the log before the call returns. `create_task` and `TaskGroup.create_task` take
coroutines only, and what they refuse has stored its message already. So a put is both. What takes
either, as `gather` does, looks for a future first.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Final, TypeVar

__all__ = ["AlsoCoroutine", "PutFuture", "Query"]

T = TypeVar("T")

#: Messages that a thread looks up for the loop at a time, a count.
PIECE: Final = 64


class AlsoCoroutine(Coroutine[Any, Any, T]):
    """Makes a coroutine of what can be awaited: a task drives it as it drives `__await__`."""

    __slots__ = ()

    def _driven(self) -> Generator[Any, None, T]:
        waiting: Generator[Any, None, T] | None = getattr(self, "_waiting", None)
        if waiting is None:
            waiting = self.__await__()
            self._waiting: Generator[Any, None, T] | None = waiting
        return waiting

    def send(self, value: Any) -> Any:
        """Goes on until the next wait; a task calls it."""
        return self._driven().send(value)

    def throw(self, *error: Any) -> Any:
        """Raises an error where it waits; a task calls it when what it waits for has failed."""
        return self._driven().throw(*error)

    def close(self) -> None:
        """Ends the wait. What was begun goes on."""
        self._waiting = None


class PutFuture(asyncio.Future[T], AlsoCoroutine[T]):
    """What `Writer.put` gives. Await it, or hand it to `create_task`, `TaskGroup.create_task`,
    `gather`, `wait_for`, `as_completed` or `shield`. `asyncio.wait` takes tasks only."""

    __slots__ = ()


class Query(AlsoCoroutine[list[T]]):
    """Messages that are looked up: `await` gives all of them in a list, `async for` one after the other as it goes.

    Nothing is looked up before that. Each `async for` makes its own look-up.
    """

    def __init__(
        self,
        call: Callable[[Callable[[], Any]], Awaitable[Any]],
        look: Callable[[], Iterable[T]],
    ) -> None:
        """`call` runs what blocks on a thread."""
        self._call = call
        self._look = look

    async def _collect(self) -> list[T]:
        messages: list[T] = await self._call(lambda: list(self._look()))
        return messages

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._collect().__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        found = iter(await self._call(self._look))
        while piece := await self._call(lambda: list(itertools.islice(found, PIECE))):
            for message in piece:
                yield message
