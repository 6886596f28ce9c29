"""What guest and host say in Python arrives as it was said, in time and within its limits, or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import pickle
import random
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import rocketstore
from rocketstore import CancelResult, Retention
from rocketstore._native.append.put_result import restore_put_result
from rocketstore.services.retention.plan import HeldLog, RetentionPlan, SegmentPlan
from rocketstore.services.transactions.transactions import OpenTransaction
from rocketstore.sharing import messages
from rocketstore.sharing.messages import (
    EndedError,
    UnsentError,
    error_fields,
    error_from,
    error_of,
    error_text,
    meant,
    receive_call,
    receive_hello,
    send_call,
    send_hello,
    told,
)

pytestmark = pytest.mark.quick

RESULT = restore_put_result(
    4096, 4200, 2, 17, 1_700_000_000_000, 1, 3, b"\x7f\0\0\1\0\0\x2a\x9f", None
)
#: One of each class, with the arguments that the library gives it.
ERRORS: list[BaseException] = [
    rocketstore.ConfigError("queues", 3, "1 or 2"),
    rocketstore.StoreLockedError("/s", "process 3", "ask it", 1.5),
    rocketstore.StoreRecoveringError("/s", "process 3"),
    rocketstore.StoreReplacedError("/s", "gone"),
    rocketstore.BookmarkError("cut", "the log ends below it"),
    rocketstore.StoreBehindError("/s", "key index", "full"),
    rocketstore.DiskFullError(28, "No space left on device", "/s/commitlog/0"),
    rocketstore.BackpressureError("a put waited"),
    rocketstore.QueueOffsetMismatchError("t", 1, 2, 3),
    rocketstore.FilterSyntaxError("a = = 1", 4, "a value"),
    rocketstore.CronSyntaxError("* *", 3, "five fields"),
    rocketstore.UnknownTransactionError(77),
    rocketstore.TransactionSettledError("ab", "commit", "rollback"),
    rocketstore.CorruptRecordError(4096, "body crc"),
    rocketstore.DecompressionError(4096, "no stream"),
    rocketstore.OffsetOutOfRangeError(9, 0, 5),
    rocketstore.DurabilityTimeoutError("flushed = 3", RESULT),
    rocketstore.ReplicasUnavailableError("one of two", RESULT),
    rocketstore.GroupClaimedError("t", "g", "process 4"),
    rocketstore.OffsetGapError("t", 0, "g", 1, 3, 5),
    rocketstore.OutcomeUnknownError("a put: process 3"),
    FileNotFoundError(2, "No such file or directory", "/s"),
    OSError(5, "Input/output error"),
    KeyError("name"),
    NotImplementedError(),
    TypeError("topic: expected a text"),
]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


Ends = tuple[socket.socket, socket.socket]


# ---- hellos and calls ----


def test_a_hello_arrives(ends: Ends) -> None:
    send_hello(ends[0], {"kind": "call", "name": "schön"}, 1.0)
    assert receive_hello(ends[1], 1.0) == {"kind": "call", "name": "schön"}


@pytest.mark.parametrize("blob", [b"", b"x", bytes(range(256)) * 4096], ids=len)
def test_a_call_arrives_with_its_bytes(ends: Ends, blob: bytes) -> None:
    sender = threading.Thread(target=send_call, args=(ends[0], {"call": "trim"}, blob, 5.0))
    sender.start()
    assert receive_call(ends[1], len(blob)) == ({"call": "trim"}, blob)
    sender.join()


def whole_call() -> bytes:
    text = json.dumps({"call": "trim", "before": 3}).encode()
    return struct.pack("<II", len(text), 5) + text + b"bytes"


def test_a_call_that_is_cut_anywhere_is_none(ends: Ends) -> None:
    call = whole_call()
    for size in range(len(call)):
        one, other = socket.socketpair()
        with one, other:
            one.sendall(call[:size])
            one.shutdown(socket.SHUT_WR)
            with pytest.raises(EndedError):
                receive_call(other, 100)


def test_calls_come_one_after_the_other(ends: Ends) -> None:
    ends[0].sendall(whole_call() * 3)
    for _ in range(3):
        assert receive_call(ends[1], 5) == ({"call": "trim", "before": 3}, b"bytes")
    with pytest.raises(TimeoutError):
        receive_call(ends[1], 5, 0.01)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack("<II", (1 << 20) + 1, 0), id="text too long"),
        pytest.param(struct.pack("<II", 2, 101) + b"{}", id="more bytes than allowed"),
        pytest.param(struct.pack("<II", 2, 0) + b"[]", id="no object"),
        pytest.param(struct.pack("<II", 3, 0) + b"{]}", id="no JSON"),
        pytest.param(struct.pack("<II", 2, 0) + b"\xff\xfe", id="no text"),
        pytest.param(struct.pack("<II", 400, 0) + b'{"a":' + b"[" * 395, id="too deep"),
    ],
)
def test_what_is_no_call_is_refused(ends: Ends, data: bytes) -> None:
    ends[0].sendall(data)
    with pytest.raises(ValueError, match=r"."):
        receive_call(ends[1], 100)


def test_a_length_that_lies_takes_no_memory(ends: Ends) -> None:
    ends[0].sendall(struct.pack("<I", messages.HELLO_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="65536 at most"):
        receive_hello(ends[1], 1.0)


def test_a_message_that_stops_has_a_limit(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a byte comes now and then."""
    monkeypatch.setattr(messages, "REST_S", 0.05)
    ends[0].sendall(whole_call()[:-1])
    with pytest.raises(TimeoutError):
        receive_call(ends[1], 100)
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.005):
            ends[0].sendall(b" ")

    dripping = threading.Thread(target=drip)
    ends[0].sendall(struct.pack("<I", 60_000))
    dripping.start()
    try:
        with pytest.raises((TimeoutError, ValueError)):
            receive_hello(ends[1], 0.05)
    finally:
        stop.set()
        dripping.join()


def test_a_call_to_a_reader_that_is_away_is_not_sent(ends: Ends) -> None:
    with pytest.raises(UnsentError):
        send_call(ends[0], {"call": "x"}, bytes(64 << 20), 0.05)
    ends[1].close()
    with pytest.raises(UnsentError):
        send_call(ends[0], {"call": "x"}, b"", 0.05)


def test_fields_that_are_too_many_are_not_sent(ends: Ends) -> None:
    with pytest.raises(ValueError, match="1048576 at most"):
        send_call(ends[0], {"call": "x" * (1 << 20)}, b"", 1.0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        send_call(ends[0], {"call": float("nan")}, b"", 1.0)


def test_random_bytes_are_refused_or_end(rng: random.Random) -> None:
    for _ in range(300):
        one, other = socket.socketpair()
        with one, other:
            data = bytearray(whole_call())
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ValueError, EndedError):
                fields, blob = receive_call(other, 1000)
                assert isinstance(fields, dict)
                assert len(blob) <= 1000


# ---- values ----

VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        (1 << 64) - 1,
        1.5,
        "schön",
        "",
        b"\0\xff",
        [1, [2, []]],
        frozenset({"b", "a"}),
    ),
    {"a": {0: [1], "b": {}}},
    datetime.timedelta(days=-1, microseconds=1),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC),
    RESULT,
    Retention(max_age=datetime.timedelta(hours=1), hours={1, 2}, keep_latest_of=["a", "b"]),
    RetentionPlan(
        *((SegmentPlan(0, 8, None, True, ("old", "large")),), 0, 8, 0.5, False, ("h",), True),
        (HeldLog("archives", "never shipped", 0, 8),),
    ),
    CancelResult.ABSENT,
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_arrives_as_it_was(value: Any) -> None:
    found = meant(json.loads(json.dumps(told(value))))
    assert (found, type(found)) == (value, type(value))


def test_an_error_in_a_value_arrives() -> None:
    lost = OpenTransaction(0, "", -1, "", "", 0.0, 3, rocketstore.CorruptRecordError(7, "body crc"))
    (found,) = meant(json.loads(json.dumps(told((lost,)))))
    assert type(found.error) is rocketstore.CorruptRecordError
    assert dataclasses.replace(found, error=None) == dataclasses.replace(lost, error=None)


@pytest.mark.parametrize("value", [1 << 64, len, [print]], ids=repr)
def test_what_is_no_value_is_not_sent(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        told(value)


@pytest.mark.parametrize("value", [CancelResult.ABSENT, OSError(5), VALUES[-2]], ids=repr)
def test_a_guest_does_not_say_what_only_a_host_says(value: object) -> None:
    text = told(value)
    meant(text)
    with pytest.raises(ValueError, match="no value"):
        meant(text, given=True)


# ---- errors ----


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_itself(error: BaseException) -> None:
    error.add_note("and this")
    found = error_from(error_text(error))
    assert type(found) is type(error)
    assert (found.args, str(found)) == (error.args, str(error))
    assert found.__notes__ == error.__notes__
    assert vars(found).keys() >= {*vars(error)}
    assert getattr(found, "result", None) == getattr(error, "result", None)
    assert pickle.loads(pickle.dumps(found)).args == error.args


def test_every_class_of_errors_is_known() -> None:
    exported = {
        kind
        for name in rocketstore.__all__
        if isinstance(kind := getattr(rocketstore, name), type)
        and issubclass(kind, rocketstore.RocketStoreError)
    }
    assert exported <= set(messages.KINDS.values())


def test_what_was_set_on_an_error_and_its_causes_arrive() -> None:
    error = rocketstore.CorruptRecordError(7, "body crc")
    error.topic, error.queue_id, error.queue_offset = "t", 3, 5
    failed = rocketstore.StoreFailedError("an earlier sync failed")
    failed.__cause__ = OSError(5, "Input/output error")
    failed.__cause__.__cause__ = error
    found = error_from(error_text(failed))
    cause = found.__cause__
    assert isinstance(cause, OSError)
    assert cause.errno == 5
    assert vars(cause.__cause__) == vars(error)


def test_an_unknown_error_is_its_text() -> None:
    class StrangeError(RuntimeError):
        pass

    found = error_from(error_text(StrangeError("what is it?")))
    assert type(found) is rocketstore.RocketStoreError
    assert str(found) == "StrangeError: what is it?"

    class NearError(rocketstore.MessageRejectedError):
        pass

    assert type(error_from(error_text(NearError("near")))) is rocketstore.MessageRejectedError


def test_an_error_of_any_size_fits() -> None:
    huge = rocketstore.ConfigError("x" * 100_000, "\U0001f600" * 100_000, "\0" * 100_000)
    huge.__cause__ = rocketstore.ConfigError("y" * 100_000, object(), "\ud800" * 100_000)
    for _ in range(40):
        huge.add_note("\U0001f600" * 10_000)
    text = error_text(huge)
    assert len(text) <= messages.ERROR_BYTES_MAX
    assert isinstance(error_from(text), rocketstore.RocketStoreError)
    many = restore_put_result(0, 8, 0, 0, 0, 4096, 1, b"", bytes(8 * 4096))
    late = error_from(error_text(rocketstore.DurabilityTimeoutError("late", many)))
    assert isinstance(late, rocketstore.DurabilityTimeoutError)
    assert late.result is None


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        {},
        {"kind": "Exit", "args": [0], "text": "none"},
        {"kind": "SystemExit", "args": [0]},
        {"kind": "ConfigError", "args": ["one"], "text": "too few"},
        {"kind": "ConfigError", "args": 3, "text": "no list"},
        {"kind": ["ConfigError"], "args": []},
        {"kind": "FilterSyntaxError", "args": [None, [], {}], "text": "no texts"},
        {"kind": "DurabilityTimeoutError", "args": ["x", {"put": [1, 2]}], "text": "no result"},
        {"kind": "OSError", "args": [], "notes": 5, "set": [], "cause": 7},
        {"kind": "OSError", "args": [], "set": {"topic": {"bytes": "zz"}}, "text": "no bytes"},
    ],
)
def test_what_is_no_error_is_one_all_the_same(fields: object) -> None:
    found = error_of(fields)
    assert isinstance(found, rocketstore.RocketStoreError | OSError)
    str(found)
    json.dumps(error_fields(found))


@pytest.mark.parametrize("text", [b"", b"nothing", b"\xff", b"[" * 5000, b'{"kind":'])
def test_a_text_that_is_no_error_is_the_text_of_one(text: bytes) -> None:
    found = error_from(text)
    assert type(found) is rocketstore.RocketStoreError
    assert len(str(found)) <= messages.TEXT_MAX


def test_which_release_is_to_be_upgraded() -> None:
    assert "upgrade this one" in messages.other_protocol(messages.PROTOCOL + 1, "9.0.0")
    assert "upgrade the other one" in messages.other_protocol(0, "0.1.0")
    assert rocketstore.__version__ in messages.other_protocol(None, None)
