"""Placeholders and JSON of messages."""

from __future__ import annotations

from typing import ClassVar

import click
import pytest

from rocketstore import Message
from rocketstore.cli.message_format import formatter

pytestmark = pytest.mark.quick


class Fake:
    topic = "orders"
    queue_id = 2
    queue_offset = 17
    physical_offset = 4096
    keys = ("a", "b")
    tags = None
    body = b"\x1b[0mhi\t\xff"
    store_timestamp_ms = 1700000000000
    properties: ClassVar = {"x": "1", "KEYS": "a b"}
    message_id = "C0A8"
    unique_id = None


def shown(form: str, *, terminal: bool = False) -> bytes:
    message: Message = Fake()  # type: ignore[assignment]
    return formatter(form, terminal=terminal)(message)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%t/%p@%o", b"orders/2@17\n"),
        ("%O %S %T", b"4096 8 1700000000000\n"),
        ("%k|%g|%u|%i", b"a b|||C0A8\n"),
        ("%h", b"x=1,KEYS=a b\n"),
        ("100%% \\t%p\\n", b"100% \t2\n\n"),
        ("\\q", b"\\q\n"),
        ("%s\\c", b"\x1b[0mhi\t\xff"),
        ("%p\\0\\c", b"2\0"),
        ("%p\\\\c", b"2\\c\n"),
        ("\\c", b""),
        ("", b"\n"),
        ("%s", b"\x1b[0mhi\t\xff\n"),
    ],
)
def test_placeholders(form: str, expected: bytes) -> None:
    assert shown(form) == expected


def test_a_terminal_is_not_steered_by_a_body() -> None:
    assert shown("%s", terminal=True) == b"\\x1b[0mhi\t\\xff\n"


@pytest.mark.parametrize("form", ["%x", "%", "abc %"])
def test_an_unknown_placeholder_is_refused(form: str) -> None:
    with pytest.raises(click.BadParameter):
        formatter(form, terminal=False)
