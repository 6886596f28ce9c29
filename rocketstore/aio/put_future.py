"""What a put of a loop gives: a future that `create_task` takes too.

The loop completes a future, and puts that are begun one after the other keep their order: the
message is in the log before the call returns. `create_task` and `TaskGroup.create_task` take
coroutines only, `asyncio.wait` refuses them. What either refuses has stored its message already, so
a put is both: a coroutine until it is in a set or a dictionary, where `asyncio.wait` puts it before
it looks, and a future always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["AlsoCoroutine", "PutFuture", "put_task"]

T = TypeVar("T")


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
    `gather`, `wait_for`, `wait`, `as_completed` or `shield`."""

    __slots__ = ()

    def __hash__(self) -> int:
        self.__class__ = _KeptFuture  # type: ignore[assignment]
        return object.__hash__(self)


class _KeptFuture(asyncio.Future[T]):
    """The same in a set or a dictionary: no coroutine any more."""

    __slots__ = ()


class _PutTask(asyncio.Task[T], PutFuture[T]):
    __slots__ = ()

    def __hash__(self) -> int:
        self.__class__ = _KeptTask  # type: ignore[assignment]
        return object.__hash__(self)


class _KeptTask(asyncio.Task[T]):
    __slots__ = ()


def put_task(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> _PutTask[T]:
    """The task of a put that waits."""
    task: Any = _KeptTask(coroutine, loop=loop)  # asyncio puts it into its set of all tasks
    task.__class__ = _PutTask
    put: _PutTask[T] = task
    return put
