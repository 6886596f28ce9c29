import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final, type_check_only

from rocketstore._native.append.appender import Log
from rocketstore._native.append.put_result import PutResult
from rocketstore._native.put.writer import Writer
from rocketstore._native.sync.futex import EventCount, EventFd
from rocketstore.values.arguments import Body
from rocketstore.values.durability import Durability
from rocketstore.values.timestamps import Duration, Timestamp

@type_check_only
class Waiter(Protocol):
    """What a port completes; an asyncio or concurrent future is one."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> object: ...
    def set_exception(self, exception: BaseException, /) -> object: ...

@final
class Wait:
    def __lt__(self, other: Wait, /) -> bool: ...
    def __gt__(self, other: Wait, /) -> bool: ...

class Placed(enum.IntEnum):
    NOT_PUT = ...
    IN_LINE = ...
    ATTEND = ...
    MET = ...

class CompletionPort:
    max_pending: int
    max_pending_bytes: int
    @property
    def _bell(self) -> EventFd: ...
    @property
    def pending(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    def __init__(
        self, log: Log | None, arrival: EventCount, descriptor: int, timeout_ms: int
    ) -> None: ...
    @property
    def full(self) -> bool:
        """Whether as much waits as may wait at once. One message fits always."""

    def _stop(self) -> None: ...
    def put(
        self,
        writer: Writer,
        body: Body,
        tags: str | None,
        keys: str | Sequence[str] | None,
        properties: Mapping[str, str] | None,
        flag: int,
        born_time: Timestamp | None,
        shard_key: str | None,
        durability: Durability | None,
        waiter: Waiter,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
    ) -> int:
        """Puts a message that need not wait for room, and promises `durability`; gives a Placed.

        NOT_PUT: the port is full, or a put would have to wait; nothing was put. None as
        `durability` is that of the writer.

        Raises:
            MessageRejectedError and its kin: the message cannot be stored as it is.
            ValueError: the writer is of another store, or there is no such durability.
            StoreClosedError: the port or the store was closed.
        """

    def promise(self, result: PutResult, durability: Durability, waiter: Waiter) -> int:
        """Calls `waiter.set_result(result)` once the promise is met; gives a Placed.

        It may call it at once. Else `settle` does.

        Raises:
            ValueError: there is no such durability.
            StoreClosedError: the port was closed.
        """

    def promise_flushed(self, end_offset: int, waiter: Waiter) -> int:
        """Calls `waiter.set_result(None)` once all below `end_offset` is on disk; gives a Placed.

        Raises:
            ValueError: the log ends before `end_offset`.
            StoreReadOnlyError, StoreClosedError: nothing is flushed.
        """

    def check_durability(self, durability: Durability) -> None:
        """Checks the name of a promise before anything is put.

        Raises:
            ValueError: there is no such durability.
        """

    def request_flush(self) -> None:
        """Asks for a flush of all that was promised: once for all puts of a turn of the loop.

        Raises nothing.
        """

    def settle(self) -> int:
        """Completes every waiter that has an answer, in the order of the log; gives how many.

        Call it when the descriptor is readable.

        Raises:
            Exception: what a waiter raised, once all have their answer.
        """

    def expire(self) -> float | None:
        """Fails waiters that waited longer than the timeout; gives the seconds to the next one.

        It completes those whose promise is met. None: nothing waits.

        Raises:
            Exception: what a waiter raised, once all have their answer.
        """

    @property
    def arrivals(self) -> int:
        """A count that moves when messages become readable."""

    def watch_arrivals(self, seen: int, waiter: Waiter) -> None: ...
