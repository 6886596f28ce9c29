"""Puts of a guest that take more than a request: with a unique id, or for later."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rocketstore._native.append.put_result import as_waiting
from rocketstore.errors import ConfigError, MessageRejectedError, OutcomeUnknownError
from rocketstore.log.queues.delayed_puts import Change
from rocketstore.services.transactions.commit_records import record_in
from rocketstore.sharing.guest_log import deadline_of
from rocketstore.values.arguments import text

if TYPE_CHECKING:
    from rocketstore._native.append.put_result import PutResult
    from rocketstore.log.read.unique_ids import Claim
    from rocketstore.sharing.guest_log import GuestLog
    from rocketstore.sharing.guest_offsets import Ask
    from rocketstore.values.arguments import Row

__all__ = ["GuestChanging", "GuestUniqueIds"]


class GuestUniqueIds:
    """Puts with a unique id, which the host looks for. One that a host leaves without an answer goes to the next
    host, which knows whether it has the message."""

    def __init__(self, log: GuestLog, *, indexed: bool) -> None:
        self._log, self._indexed = log, indexed

    def put(self, topic: str, unique_id: str, append: Callable[[], PutResult]) -> PutResult:
        """What `append` gives, or as a duplicate what the first put with this id gave."""
        self.claim(topic, unique_id)
        deadline = deadline_of(self._log.log.sync_flush_timeout_ms)
        while True:
            try:
                result = self._log.elsewhere.once(append)
                return as_waiting(result, None, unique_id) if result.duplicate else result
            except OutcomeUnknownError:
                if time.monotonic_ns() >= deadline:
                    raise
                self._log.await_host(deadline)

    def claim(self, topic: str, unique_id: str) -> Claim:
        """Checks an id, as the host will."""
        if not self._indexed:
            raise ConfigError("index_enabled", False, "unique_id needs the index")
        if not text("unique_id", unique_id):
            raise MessageRejectedError("unique_id = '': give an id, or None")
        return topic, unique_id


class GuestChanging:
    """The records by which a transaction of a guest will end what waits; for `with`, as that of a host."""

    gone: Sequence[str] = ()
    cancelled: Sequence[tuple[str, str]] = ()

    def __init__(self, ask: Ask, changes: Sequence[Change]) -> None:
        self._ask, self._changes = ask, changes

    def __enter__(self) -> GuestChanging:
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing is held: the commit finds out what waits then."""

    def rows(self, name: str) -> list[Row]:
        _, data = self._ask("changing", {"changes": self._changes, "name": name})
        record = record_in(data)
        return [] if record is None else [*record.copies]

    def done(self) -> None:
        """The host has done it."""
