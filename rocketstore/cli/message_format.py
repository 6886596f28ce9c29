"""Messages as text: kcat's placeholders, or JSON lines."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import click

if TYPE_CHECKING:
    from rocketstore import Message

__all__ = ["Formatter", "as_json", "formatter"]


class Formatter(Protocol):
    """Turns a message into a line, newline included unless the format says otherwise."""

    def __call__(self, message: Message, /) -> bytes: ...


_FIELDS: Final[dict[str, Callable[[Message], bytes]]] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.queue_id,
    "o": lambda message: b"%d" % message.queue_offset,
    "O": lambda message: b"%d" % message.physical_offset,
    "k": lambda message: _keys(message).encode(errors="surrogateescape"),
    "g": lambda message: (message.tags or "").encode(errors="surrogateescape"),
    "s": lambda message: bytes(message.body),
    "S": lambda message: b"%d" % len(message.body),
    "T": lambda message: b"%d" % message.store_timestamp_ms,
    "h": lambda message: _properties(message).encode(errors="surrogateescape"),
    "i": lambda message: message.message_id.encode(),
    "u": lambda message: (message.unique_id or "").encode(errors="surrogateescape"),
}
_ESCAPES: Final = {"\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\\\": b"\\", "%%": b"%"}
_PIECE: Final = re.compile(r"%.?|\\.|[^%\\]+|\\", re.DOTALL)
#: C0 and C1 but tab and newline: what could steer a terminal.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def formatter(form: str, *, terminal: bool) -> Formatter:
    """The function that turns a message into a line, newline included unless `\\c` ends the format.

    On a terminal, control characters are escaped: a body must not steer the terminal.
    """
    if form == "json":
        return lambda message: as_json(message).encode() + b"\n"
    parts: list[bytes | Callable[[Message], bytes]] = []
    pieces = _PIECE.findall(form)
    end = b"" if pieces[-1:] == ["\\c"] else b"\n"
    for piece in pieces if end else pieces[:-1]:
        if piece in _ESCAPES:
            parts.append(_ESCAPES[piece])
        elif piece[0] == "%":
            if piece[1:] not in _FIELDS:
                raise click.BadParameter(f"{piece!r} is unknown; see --help", param_hint="--format")
            parts.append(_FIELDS[piece[1:]])
        else:
            parts.append(piece.encode(errors="surrogateescape"))

    def line(message: Message) -> bytes:
        text = b"".join(part if isinstance(part, bytes) else part(message) for part in parts)
        return (_harmless(text) if terminal else text) + end

    return line


def as_json(message: Message) -> str:
    """One JSON object without line breaks. A body that is not UTF-8 goes into `body_base64`."""
    body = bytes(message.body)
    fields: dict[str, object] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size": message.size,
        "store_timestamp_ms": message.store_timestamp_ms,
        "born_timestamp_ms": message.born_timestamp_ms,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "message_id": message.message_id,
    }
    try:
        fields["body"] = body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(body).decode()
    return json.dumps(fields)


def _keys(message: Message) -> str:
    return " ".join(message.keys)


def _properties(message: Message) -> str:
    return ",".join(f"{name}={value}" for name, value in message.properties.items())


def _harmless(text: bytes) -> bytes:
    shown = text.decode(errors="backslashreplace")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", shown).encode()
