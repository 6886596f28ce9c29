"""The messages of a key: `Query`, what `aio.Store.query` gives."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

from rocketstore import Message
from rocketstore.aio.loop_port import LoopPort

__all__ = ["Query"]

#: Messages that a thread looks up for the loop at a time, a count.
PIECE: Final = 64


class Query(Coroutine[Any, Any, list[Message]]):
    """Messages with a key: `await` gives them all in a list, `async for` looks them up as it goes.

    Nothing is looked up before that. Each `async for` makes its own look-up.
    """

    def __init__(self, port: LoopPort, look: Callable[[], Sequence[Message]]) -> None:
        self._port = port
        self._look = look
        self._all: Coroutine[Any, Any, list[Message]] | None = None

    async def _collect(self) -> list[Message]:
        return await self._port.call(lambda: list(self._look()))

    def _begun(self) -> Coroutine[Any, Any, list[Message]]:
        if self._all is None:
            self._all = self._collect()
        return self._all

    def __await__(self) -> Any:
        return self._collect().__await__()

    async def __aiter__(self) -> AsyncIterator[Message]:
        found = iter(await self._port.call(self._look))
        while piece := await self._port.call(lambda: list(itertools.islice(found, PIECE))):
            for message in piece:
                yield message

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        if self._all is not None:
            self._all.close()
