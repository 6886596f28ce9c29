"""What guest and host say to each other in Python: hellos, calls with their answers, values and errors.

Each message is a short JSON text with its length before it; a call has bytes besides. What comes is weighed
before it is read, takes no more memory than has arrived, and has to arrive in time.

A value of a call or of an answer is what JSON has, or an object with one member, which `FORMS` names.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import operator
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from rocketstore import errors
from rocketstore._native.append.put_result import PutResult, restore_put_result
from rocketstore.consuming.group_claims import GroupClaimedError
from rocketstore.consuming.reading import ConsumerBusyError, OffsetGapError
from rocketstore.errors import RocketStoreError
from rocketstore.services.delay import CancelResult
from rocketstore.services.retention.plan import HeldLog, RetentionPlan, SegmentPlan
from rocketstore.services.retention.rule import Retention
from rocketstore.services.transactions.transactions import OpenTransaction, Transaction
from rocketstore.values.bounded_json import LIMITS, parse_json, weigh

if TYPE_CHECKING:
    import socket

__all__ = [
    "ASKS",
    "PROTOCOL",
    "EndedError",
    "UnsentError",
    "error_fields",
    "error_from",
    "error_of",
    "error_text",
    "meant",
    "other_protocol",
    "receive_call",
    "receive_hello",
    "release",
    "send_call",
    "send_hello",
    "told",
]

#: The number of this protocol. Two processes share a store if they have the same one.
PROTOCOL: Final = 1
#: Longest JSON text of a call, and of a hello, bytes.
JSON_BYTES_MAX: Final = 1 << 20
HELLO_BYTES_MAX: Final = 64 << 10
#: A message whose first byte is there has to be complete after so long, seconds.
REST_S: Final = 10.0
#: Bytes that a system call takes.
PART_BYTES: Final = 256 << 10
#: A host that closes asks on the first connection of a guest whether it takes the store next. One that does says
#: the same, and may get a byte with the descriptor of the lock.
ASKS: Final = b"?"
_LENGTH: Final = struct.Struct("<I")
_LENGTHS: Final = struct.Struct("<II")

#: Classes that an error keeps on its way; any other arrives as the nearest one that it is derived from.
KINDS: Final[dict[str, type[BaseException]]] = {
    kind.__name__: kind
    for kind in (
        *(getattr(errors, name) for name in errors.__all__ if name != "HINTS"),
        *(ConsumerBusyError, GroupClaimedError, OffsetGapError),
        *(ValueError, TypeError, KeyError, OSError, ModuleNotFoundError, NotImplementedError),
    )
}
#: Attributes that are set on an error after it was made.
ATTRIBUTES: Final = ("topic", "queue_id", "queue_offset")
#: Longest text of an error, characters; most notes, arguments, and causes one below the other, count.
TEXT_MAX: Final = 2048
PARTS_MAX: Final = 16
CAUSES_MAX: Final = 3
#: Longest text of an error, bytes: `RS_ERROR_SIZE_MAX`.
ERROR_BYTES_MAX: Final = 64 << 10
#: A result of a batch that is larger, bytes, is left out of its error.
RESULT_BYTES_MAX: Final = 8 << 10


class EndedError(ConnectionError):
    """The other side has ended the connection."""


class UnsentError(ConnectionError):
    """A message was not sent as a whole, so that the other side does not act upon it."""


def release() -> str:
    """The release of this process."""
    return str(getattr(sys.modules.get("rocketstore"), "__version__", "?"))


def other_protocol(theirs: object, their_release: object) -> str:
    """What is wrong with a process of another protocol, and which of the two is to be upgraded."""
    older = isinstance(theirs, int) and theirs < PROTOCOL
    return (
        f"the other process has rocketstore {str(their_release)[:40]} and shares stores by "
        f"protocol {theirs!r:.20}, this one has {release()} and protocol {PROTOCOL}: upgrade "
        f"{'the other' if older else 'this'} one"
    )


# ---- texts and bytes ----


def send_hello(sock: socket.socket, fields: Mapping[str, Any], limit_s: float) -> None:
    """Sends a hello or the answer to one. Raises OSError."""
    text = _packed(fields)
    _send(sock, _LENGTH.pack(len(text)) + text, limit_s)


def receive_hello(sock: socket.socket, limit_s: float) -> dict[str, Any]:
    """A hello, or the answer to one.

    Raises:
        ValueError: it is none. OSError: it did not come in time; EndedError: the connection ended.
    """
    deadline = time.monotonic() + limit_s
    (size,) = _LENGTH.unpack(_receive(sock, _LENGTH.size, deadline))
    return _unpacked(_receive(sock, _bounded(size, HELLO_BYTES_MAX), deadline))


def send_call(sock: socket.socket, fields: Mapping[str, Any], blob: bytes, limit_s: float) -> None:
    """Sends a call or an answer. Raises UnsentError: the other side does not get it. ValueError: the
    fields are too many."""
    text = _packed(fields)
    weigh(text, LIMITS["call"])
    try:
        _send(sock, _LENGTHS.pack(len(text), len(blob)) + text, limit_s)
        if blob:
            _send(sock, blob, limit_s)
    except OSError as error:
        raise UnsentError(error.errno, f"not sent as a whole: {error.strerror or error}") from error


def receive_call(
    sock: socket.socket, blob_bytes_max: int, limit_s: float | None = None
) -> tuple[dict[str, Any], bytes]:
    """A call, or an answer, for whose first byte this waits `limit_s`, None: as long as the connection is
    there.

    Raises:
        ValueError: it is none. TimeoutError: it did not come in time. EndedError, OSError: the
            connection has ended.
    """
    deadline = math.inf if limit_s is None else time.monotonic() + limit_s
    head = _receive(sock, 1, deadline)
    deadline = time.monotonic() + REST_S
    text_bytes, blob_bytes = _LENGTHS.unpack(head + _receive(sock, _LENGTHS.size - 1, deadline))
    _bounded(blob_bytes, blob_bytes_max)
    fields = _unpacked(_receive(sock, _bounded(text_bytes, JSON_BYTES_MAX), deadline))
    return fields, _receive(sock, blob_bytes, deadline)


def _bounded(size: int, most: int) -> int:
    if size > most:
        raise ValueError(f"a message of {size} bytes, {most} at most")
    return size


def _packed(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields, allow_nan=False).encode()
    _bounded(len(text), JSON_BYTES_MAX)
    return text


def _unpacked(text: bytes) -> dict[str, Any]:
    fields = parse_json(text, LIMITS["call"])
    if not isinstance(fields, dict):
        raise ValueError("a message that is no object")
    return fields


def _send(sock: socket.socket, data: bytes, limit_s: float) -> None:
    sock.settimeout(limit_s)
    sock.sendall(data)


def _receive(sock: socket.socket, size: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while size:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("a message did not come in time")
        sock.settimeout(None if left_s == math.inf else left_s)
        part = sock.recv(min(size, PART_BYTES))
        if not part:
            raise EndedError("the connection has ended")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# ---- errors ----


def error_text(error: BaseException) -> bytes:
    """An error as `error_from` takes it: its class, arguments, notes and causes; at most 64 KiB."""
    text = json.dumps(error_fields(error), allow_nan=False).encode()
    if len(text) > ERROR_BYTES_MAX:
        text = json.dumps(error_fields(RocketStoreError(repr(error)[:TEXT_MAX]), 0)).encode()
    return text


def error_fields(error: BaseException, causes: int = CAUSES_MAX) -> dict[str, Any]:
    """The same as an object of JSON."""
    known = [kind for kind in type(error).__mro__ if KINDS.get(kind.__name__) is kind]
    kind = known[0] if known else RocketStoreError
    args = error.args
    if isinstance(filename := getattr(error, "filename", None), str):
        args = (*args[:2], filename)
    if kind is RocketStoreError and type(error) is not kind:
        args = (f"{type(error).__name__}: {error}",)
    fields: dict[str, Any] = {
        "kind": kind.__name__,
        "args": [_argument(one) for one in args[:PARTS_MAX]],
        "text": str(error)[:TEXT_MAX],
        "notes": [str(one)[:TEXT_MAX] for one in getattr(error, "__notes__", ())[:PARTS_MAX]],
        "set": {name: _argument(vars(error)[name]) for name in ATTRIBUTES if name in vars(error)},
    }
    if error.__cause__ is not None and causes:
        fields["cause"] = error_fields(error.__cause__, causes - 1)
    return fields


def error_from(text: bytes) -> BaseException:
    """The error of an `error_text`. What is none, or of no class that is known, is a
    RocketStoreError with its text."""
    try:
        return error_of(parse_json(text, LIMITS["call"]))
    except ValueError:
        return RocketStoreError(text[:TEXT_MAX].decode(errors="replace"))


def error_of(fields: object, causes: int = CAUSES_MAX) -> BaseException:
    """The error of `error_fields`."""
    if not isinstance(fields, dict):
        return RocketStoreError(f"an error that is none: {fields!r:.200}")
    made: BaseException
    try:
        made = KINDS[fields["kind"]](*map(meant, fields["args"]))
        for name in ATTRIBUTES:
            if name in fields.get("set", {}):
                setattr(made, name, meant(fields["set"][name]))
        str(made)
    except Exception:  # whatever a class says of arguments that it does not expect
        made = RocketStoreError(str(fields.get("text"))[:TEXT_MAX])
    notes = fields.get("notes")
    for note in notes[:PARTS_MAX] if isinstance(notes, list) else ():
        made.add_note(str(note)[:TEXT_MAX])
    if causes and "cause" in fields:
        made.__cause__ = error_of(fields["cause"], causes - 1)
    return made


def _argument(value: object) -> object:
    """An argument of an error, or its text."""
    if isinstance(value, PutResult):
        size = sum(len(one) for one in value.__reduce__()[1] if isinstance(one, bytes))
        return told(value) if size <= RESULT_BYTES_MAX else None
    if isinstance(value, bytes):
        return told(value[:RESULT_BYTES_MAX])
    plain = type(value) is int and abs(value) < 1 << 64
    if value is None or isinstance(value, bool) or plain:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)[:TEXT_MAX]


# ---- values ----


def told(value: Any) -> object:
    """A value as JSON has it. TypeError, ValueError: it is of no kind that a call has."""
    if isinstance(value, BaseException):
        return {"error": error_fields(value)}
    for name, (kind, parts, _) in FORMS.items():
        if isinstance(value, kind):
            return {name: told(parts(value))}
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, SupportsIndex):
        if abs(number := operator.index(value)) >= 1 << 64:
            raise ValueError(f"{number:.4g}: it does not fit 64 bits")
        return number
    if isinstance(value, Iterable):
        return [told(one) for one in value]
    raise TypeError(f"{value!r:.200}: the process that has the store cannot be given it")


def meant(value: object, *, given: bool = False) -> Any:
    """The value that `told` has made JSON of; lists for all that has an order. `given`: by a guest.

    Raises:
        TypeError, ValueError, ConfigError: there is none.
    """
    if isinstance(value, list):
        return [meant(one, given=given) for one in value]
    if not isinstance(value, dict):
        return value
    name, parts = next(iter(value.items()), ("", None))
    if len(value) != 1 or name not in (GIVEN if given else {"error", *FORMS}):
        raise ValueError(f"{value!r:.200}: it is no value")
    try:
        return error_of(parts) if name == "error" else FORMS[name][2](meant(parts, given=given))
    except OverflowError as error:
        raise ValueError(f"{value!r:.200}: {error}") from None


#: The class of a value, what JSON has of one, and what makes it of that.
_Form = tuple[type[Any], Callable[[Any], object], Callable[[Any], object]]
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def _by_fields(kind: type[Any]) -> _Form:
    """Of a dataclass, whose sequences are tuples."""
    names = [one.name for one in dataclasses.fields(kind)]

    def made(parts: Any) -> object:
        found = (tuple(one) if isinstance(one, list) else one for one in parts)
        return kind(**dict(zip(names, found, strict=True)))

    return kind, attrgetter(*names), made


#: What a guest may ask with, besides what JSON has: by its name there.
GIVEN: Final[dict[str, _Form]] = {
    "dict": (Mapping, Mapping.items, dict),
    "set": (frozenset, sorted, frozenset),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "span": (datetime.timedelta, lambda span: span // _MICROSECOND, lambda n: n * _MICROSECOND),
    "time": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "put": (
        PutResult,
        lambda put: put.__reduce__()[1],
        lambda parts: restore_put_result(*parts),
    ),
    "Retention": _by_fields(Retention),
}
#: What a host answers with, too.
FORMS: Final[dict[str, _Form]] = {
    **GIVEN,
    "cancelled": (CancelResult, str, CancelResult),
    "prepared": (Transaction, attrgetter("id", "unique_id"), list),
    **{
        kind.__name__: _by_fields(kind)
        for kind in (RetentionPlan, SegmentPlan, HeldLog, OpenTransaction)
    },
}
