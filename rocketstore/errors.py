"""Every error of its own that rocketstore raises, under one root.

A wrong option of a store or a writer is a `ConfigError`. Any other argument that means nothing is a
plain TypeError or ValueError, which names it, and what the system says of files stays an OSError.

`status` of a class is RocketMQ's word for it, so that operators find the word they know in their
logs. All errors pickle: their constructor arguments are their `args`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from rocketstore._native.append.put_result import PutResult

__all__ = [
    "HINTS",
    "BackpressureError",
    "BookmarkError",
    "ConfigError",
    "CorruptRecordError",
    "CronSyntaxError",
    "DecompressionError",
    "DiskFullError",
    "DivergedError",
    "DurabilityTimeoutError",
    "FencedError",
    "FilterSyntaxError",
    "GuestStoreError",
    "InvalidGroupError",
    "InvalidTopicError",
    "MessageNotFoundError",
    "MessageRejectedError",
    "MessageTooLargeError",
    "MissingSegmentsError",
    "NoGroupError",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "PropertiesTooLargeError",
    "QueueNotFoundError",
    "QueueOffsetMismatchError",
    "ReadFailedError",
    "ReplicaStoreError",
    "ReplicaTimeoutError",
    "ReplicasUnavailableError",
    "ReplicationError",
    "RocketStoreError",
    "StoreBehindError",
    "StoreClosedError",
    "StoreFailedError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreRecoveringError",
    "StoreReplacedError",
    "TransactionBusyError",
    "TransactionSettledError",
    "UnknownTransactionError",
]


#: Advice in errors and reports, by its code. It names arguments of Python; the command line puts
#: words of its own in the place of each.
HINTS: Final = {
    "close_or_reader": "close it there, or open with mode='r'",
    "close_or_share": "open it with shared=True there and here, close it, or open with mode='r'",
    "create": "mode='rw' would create one",
    "directories": "if the log has several directories, commit_log_dir has to name all of them",
    "finish_removal": "mode='rw' would finish it and make a new store",
    "force": "or open with force=True to go on without",
    "force_reader": "force=True reads what is left",
    "reader": "open it with mode='r'",
    "reader_meanwhile": "mode='r' reads it meanwhile",
    "reader_there": "mode='r' reads a store there",
    "stale_crc": (
        "if RocketMQ put the record again with the checksum of the old one, allow_stale_crc=True "
        "lets it pass"
    ),
}


class RocketStoreError(Exception):
    """Root of all errors of this library."""

    status: ClassVar[str] = "UNKNOWN_ERROR"


class ConfigError(RocketStoreError, ValueError):
    """An option is unknown, of the wrong type or out of range. Says which, its value, what is
    allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field, self.value, self.allowed = field, value, allowed

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r}: {self.allowed}"


class StoreLockedError(RocketStoreError):
    """A process has the store open for writing, perhaps this very one. `holder` names it, as far
    as it is known ("": no process has it, and this one only shares stores that others hold), and
    `remedy` what can be done. `waited_s`: how long an open with `wait_s` has waited for it, in
    vain; 0 where none waited."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(
        self, path: str, holder: str, remedy: str = HINTS["close_or_reader"], waited_s: float = 0.0
    ) -> None:
        super().__init__(path, holder, remedy, *([waited_s] if waited_s else []))
        self.path, self.holder, self.remedy, self.waited_s = path, holder, remedy, waited_s

    def __str__(self) -> str:
        waited = f", after {self.waited_s:.1f} s of waiting for it" if self.waited_s else ""
        if not self.holder:
            return f"{self.path} is held by no process{waited}; {self.remedy}"
        return f"{self.path} is locked by {self.holder}{waited}; {self.remedy}"


class StoreRecoveringError(StoreLockedError):
    """A process recovers or rebuilds the store, so a reader cannot say yet what it holds. `holder`
    names the process and what it has done; the same call works once that process is through."""

    def __init__(
        self, path: str, holder: str, remedy: str = "open it again once that process is through"
    ) -> None:
        super().__init__(path, holder, remedy)

    def __str__(self) -> str:
        return f"{self.path}: {self.holder} recovers this store; {self.remedy}"


class StoreReplacedError(RocketStoreError):
    """The store at `path` is not the one that this reader opened: it was removed, replaced by
    a new one, put back from a copy, or its log lost what the reader has shown. `reason` says which. Open the store
    again; positions of the old store mean nothing in the new one."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; open the store again"


class BookmarkError(RocketStoreError, ValueError):
    """A scan cannot go on at this bookmark. `kind` says why: "store", it is of another store;
    "history", the log has other records where it was made; "cut", the log ends below it; "release",
    a newer release made it; "form", it is none. `reason` says it in words."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind, self.reason = kind, reason

    def __str__(self) -> str:
        return f"bookmark: {self.reason}; a scan without after= begins at the begin of the log"


class StoreClosedError(RocketStoreError):
    """The store was closed, or this process is a forked child of the one that opened it."""

    status = "SERVICE_NOT_AVAILABLE"


class StoreReadOnlyError(RocketStoreError):
    """A put, commit or trim on a store that was opened with mode='r'."""

    status = "SERVICE_NOT_AVAILABLE"


class GuestStoreError(RocketStoreError):
    """The process that holds the store (docs/several_processes.md) does not do this for another one: it says why, and
    what to do."""

    status = "SERVICE_NOT_AVAILABLE"


class OutcomeUnknownError(RocketStoreError):
    """The process that holds the store has ended, or has not answered in time, after it was asked: it may have done
    what was asked, or not. What was put with a `unique_id` can be put again and is there once then; of any other
    message a look at its queue says whether it is there."""

    status = "UNKNOWN_ERROR"


class ReplicaStoreError(StoreReadOnlyError):
    """The store is a copy of its master, which takes the puts: see `rocketstore promote`."""

    status = "SERVICE_NOT_AVAILABLE"


class FencedError(RocketStoreError):
    """Another store took the place of this master, or its lease has ended: nothing was stored."""

    status = "SERVICE_NOT_AVAILABLE"


class ReplicationError(RocketStoreError):
    """Two stores cannot go on with each other, or do not know each other."""

    status = "SERVICE_NOT_AVAILABLE"


class DivergedError(ReplicationError):
    """Replica and master have different bytes at `offset`; the replica has stopped there."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, offset)
        self.offset = offset

    def __str__(self) -> str:
        return str(self.args[0])


class MissingSegmentsError(RocketStoreError):
    """Commit log files that the store's own marks speak of are not there (D-25)."""

    status = "SERVICE_NOT_AVAILABLE"


class StoreFailedError(RocketStoreError):
    """A sync or write of the log failed; nothing can be appended until the store is opened again.

    The first cause is `__cause__` where the error is raised in the process that saw it.
    """

    status = "SERVICE_NOT_AVAILABLE"


class ReadFailedError(RocketStoreError):
    """The disk could not give back a range of the log. Other ranges stay readable."""

    status = "OFFSET_FOUND_NULL"


class StoreBehindError(ReadFailedError):
    """The log holds messages that this read cannot find: consume queues or the key index at `path`
    cannot take them. `part` says which, `reason` why. The messages are safe. The process that
    writes the store tries again by itself; then the same call works. Where a disk failed, or
    something is in place of a queue's directory or file, the next open for writing builds the
    part again."""

    def __init__(self, path: str, part: str, reason: str) -> None:
        super().__init__(path, part, reason)
        self.path, self.part, self.reason = path, part, reason

    def __str__(self) -> str:
        return (
            f"{self.path}: messages that the log holds are not in the {self.part}: {self.reason}; "
            "ask again later"
        )


class DiskFullError(RocketStoreError, OSError):
    """No room for the next file. Nothing was changed; the same call works again once there is
    room."""

    status = "CREATE_MAPPED_FILE_FAILED"


class BackpressureError(RocketStoreError):
    """A put waited `max_wait_ms` for room. Says which position is stuck, and why. Nothing was
    stored."""

    status = "OS_PAGE_CACHE_BUSY"


class MessageRejectedError(RocketStoreError, ValueError):
    """A message that cannot be stored as it is. Nothing of the call was stored."""

    status = "MESSAGE_ILLEGAL"


class MessageTooLargeError(MessageRejectedError):
    """Body or record beyond the limit."""


class PropertiesTooLargeError(MessageRejectedError):
    """More than 32,767 bytes of encoded properties, separators and record CRC included."""

    status = "PROPERTIES_SIZE_EXCEEDED"


class InvalidTopicError(MessageRejectedError):
    """A topic that RocketMQ does not allow, or that could leave the store's directory."""


class InvalidGroupError(RocketStoreError, ValueError):
    """A name of a consumer group that RocketMQ does not allow."""

    status = "MESSAGE_ILLEGAL"


class FilterSyntaxError(RocketStoreError, ValueError):
    """An expression of `where` that is none, or means nothing. `position` is the index in
    `expression` of what is wrong, its length at the end; `hint` says what would do."""

    status = "SUBSCRIPTION_PARSE_FAILED"

    def __init__(self, expression: str, position: int, hint: str) -> None:
        super().__init__(expression, position, hint)
        self.expression, self.position, self.hint = expression, position, hint

    def __str__(self) -> str:
        text, at = self.expression, self.position
        first = max(0, at - 40)
        shown = ("…" if first else "") + text[first : at + 40] + ("…" if text[at + 40 :] else "")
        near = "at the end" if at >= len(text) else f"at position {at}, {text[at : at + 12]!r}"
        return f"where = {shown!r}, {near}: {self.hint}"


class CronSyntaxError(RocketStoreError, ValueError):
    """A cron expression that is none. `position` is the index in `expression` at which the field
    begins that is wrong, its length where one is missing; `hint` says what would do."""

    def __init__(self, expression: str, position: int, hint: str) -> None:
        super().__init__(expression, position, hint)
        self.expression, self.position, self.hint = expression, position, hint

    def __str__(self) -> str:
        near = "at the end" if self.position >= len(self.expression) else f"at {self.position}"
        return f"every = {self.expression[:80]!r}, {near}: {self.hint}"


class NoGroupError(RocketStoreError, TypeError):
    """A commit of a consumer that has no group: nobody would find the offsets again."""


class UnknownTransactionError(RocketStoreError, LookupError):
    """No half message begins there: take the id from `prepare`, or `store.transactions.open()`."""

    def __init__(self, transaction_id: int) -> None:
        super().__init__(transaction_id)
        self.transaction_id = transaction_id

    def __str__(self) -> str:
        return f"transaction_id = {self.transaction_id}: no half message begins there"


class TransactionBusyError(RocketStoreError, RuntimeError):
    """A transaction is in use already: by another thread, or by a `with` around this one. Begin
    another one with `store.transaction()`."""


class TransactionSettledError(RocketStoreError, ValueError):
    """A transaction has its end, and the call asked for more of it. `outcome` is what it has:
    "commit", "rollback", "dead" where it was given up after its checks, "unknown" where that is lost.

    `transaction_id` is a text for one of `store.transaction()`, a physical offset for one of
    `store.transactions`."""

    def __init__(self, transaction_id: int | str, outcome: str, asked: str) -> None:
        super().__init__(transaction_id, outcome, asked)
        self.transaction_id, self.outcome, self.asked = transaction_id, outcome, asked

    def __str__(self) -> str:
        ends = {"commit": "was committed", "rollback": "was rolled back", "unknown": "lost its end"}
        end = ends.get(self.outcome, "was given up after its checks")
        return f"transaction {self.transaction_id} {end}: {self.asked} cannot follow"


class QueueNotFoundError(RocketStoreError, LookupError):
    """The topic, or the queue of it, does not exist in this store."""

    status = "NO_MATCHED_LOGIC_QUEUE"


class QueueOffsetMismatchError(RocketStoreError):
    """A put gave an `expected_queue_offset`, and the next message of its queue has another one: others have put
    meanwhile. Nothing was stored. Read what they put (after `Writer.put` it can be read), and decide again."""

    def __init__(self, topic: str, queue_id: int, expected: int, actual: int) -> None:
        super().__init__(topic, queue_id, expected, actual)
        self.topic, self.queue_id, self.expected, self.actual = topic, queue_id, expected, actual

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r}, queue {self.queue_id}: expected_queue_offset = "
            f"{self.expected}, but its next message has queue offset {self.actual}; nothing was "
            f"stored: read the messages up to there, then expect {self.actual}"
        )


#: What the short reasons of a `CorruptRecordError` mean.
MEANINGS: Final = {
    "end": "the log ends there",
    "blank": "it is what fills the end of a segment",
    "zeros": "nothing was written there",
    "truncated": "it reaches beyond the end of its file",
    "magic": "no record begins there",
    "length": "its lengths contradict each other",
    "topic": "its topic is not one",
    "properties": "its properties cannot be read",
    "physical offset": "it names another offset than its own",
    "body crc": "its body is not the one that was stored",
    "record crc": "it is not the one that was stored",
    "missing segment": "its file is not there",
    "unit": "the unit in its queue is of another record, or its segment is missing",
}


class CorruptRecordError(RocketStoreError):
    """The bytes at `physical_offset` are not the record that should be there; `reason` says in a
    word why. A read through a queue says which message that is: `topic`, `queue_id` and
    `queue_offset`; any other read leaves them None."""

    status = "MESSAGE_WAS_REMOVING"
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(physical_offset, reason)
        self.physical_offset, self.reason = physical_offset, reason

    def __str__(self) -> str:
        meaning = MEANINGS.get(self.reason)
        more = f" ({meaning})" if meaning else ""
        return f"record at physical offset {self.physical_offset}: {self.reason}{more}"


class DecompressionError(RocketStoreError, ValueError):
    """The record is whole, but its body is not the compressed stream that its `sys_flag`
    promises."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(physical_offset, reason)
        self.physical_offset, self.reason = physical_offset, reason

    def __str__(self) -> str:
        return f"body of the record at physical offset {self.physical_offset}: {self.reason}"


class OffsetOutOfRangeError(RocketStoreError, LookupError):
    """A queue or physical offset outside [minimum, maximum]. `topic` and `queue_id` say which queue
    it is of; of a physical offset they are None."""

    topic: str | None = None
    queue_id: int | None = None

    def __init__(
        self, asked: int, minimum: int, maximum: int, status: str = "OFFSET_OVERFLOW_BADLY"
    ) -> None:
        super().__init__(asked, minimum, maximum, status)
        self.asked, self.minimum, self.maximum = asked, minimum, maximum
        self.status = status  # type: ignore[misc]  # the read status of this very call

    def __str__(self) -> str:
        of = "" if self.topic is None else f"topic {self.topic!r}, queue {self.queue_id}: "
        bounds = f"{self.minimum} … {self.maximum}"
        return f"{of}offset {self.asked} is outside {bounds} ({self.status})"


class MessageNotFoundError(RocketStoreError, LookupError):
    """There is no message at the place that was asked for."""

    status = "NO_MESSAGE_IN_QUEUE"


class DurabilityTimeoutError(RocketStoreError, TimeoutError):
    """The message *is* in the log (`result`), but whether it is durable is not known. Wait on it
    again with `store.wait_flushed(error.result.end_offset)`; putting it again would store it
    twice."""

    status = "FLUSH_DISK_TIMEOUT"

    def __init__(self, message: str, result: PutResult | None = None) -> None:
        super().__init__(message, result)
        self.errno, self.strerror = errno.ETIMEDOUT, message
        self.result = result

    def __str__(self) -> str:
        return str(self.args[0])


class ReplicaTimeoutError(DurabilityTimeoutError):
    """The disk of this machine has it (`result`); too few replicas have said that they do."""

    status = "FLUSH_SLAVE_TIMEOUT"


class ReplicasUnavailableError(DurabilityTimeoutError):
    """The disk of this machine has it (`result`); too few replicas are connected, or near."""

    status = "SLAVE_NOT_AVAILABLE"


for _value in [globals()[_name] for _name in __all__]:
    if isinstance(_value, type):  # so that pickles and tracebacks name the public place
        _value.__module__ = "rocketstore"
