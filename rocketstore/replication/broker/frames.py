"""RocketMQ's remoting protocol as bytes (docs/format.md 13.4): requests go out with a JSON header,
answers come with one in JSON or in RocketMQ's binary form."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Final

from rocketstore.errors import ReplicationError
from rocketstore.values.bounded_json import LIMITS, parse_json

__all__ = ["FRAME_BYTES_MOST", "Answer", "AnswerReader", "request"]

#: Longest frame: RocketMQ's own `com.rocketmq.remoting.frameMaxLength`.
FRAME_BYTES_MOST: Final = 16 << 20
#: Longest header. A remark of it may hold the text of an exception.
HEADER_BYTES_MOST: Final = 1 << 20
#: Characters of a remark that an error shows.
REMARK_SHOWN: Final = 200

LENGTH: Final = struct.Struct(">I")
#: Begin of the binary header: code, language, version, opaque, flag.
BINARY: Final = struct.Struct(">hBhii")
JSON_HEADER: Final = 0
BINARY_HEADER: Final = 1
#: Bit of `flag` that answers have and requests have not.
IS_ANSWER: Final = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """A frame of the broker. `opaque`: the number of the request that it answers."""

    code: int
    opaque: int
    flag: int
    remark: str
    body: bytes

    def answers(self, opaque: int) -> bool:
        """Whether it is the answer to that request, and no request of the broker's own."""
        return bool(self.flag & IS_ANSWER) and self.opaque == opaque


def request(code: int, opaque: int) -> bytes:
    """A request without fields and body. A broker answers it as that of an old slave: in one
    part."""
    header = {
        "code": code,
        "extFields": {},
        "flag": 0,
        "language": "PYTHON",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 0,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    kind = LENGTH.pack(JSON_HEADER << 24 | len(text))
    return LENGTH.pack(len(kind) + len(text)) + kind + text


class AnswerReader:
    """Bytes as they come, to answers. It keeps no more than one frame, and only what has come."""

    def __init__(self) -> None:
        self._data = bytearray()

    def receive(self, data: memoryview) -> list[Answer]:
        """What is whole now. Raises ReplicationError: it is no frame, or too long a one."""
        self._data += data
        found = []
        while len(self._data) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._data)
            if not LENGTH.size <= size <= FRAME_BYTES_MOST:
                raise ReplicationError(
                    f"a frame of {size} bytes: a broker sends {LENGTH.size} … {FRAME_BYTES_MOST}; "
                    "is it the listenPort of a broker?"
                )
            end = LENGTH.size + size
            if len(self._data) < end:
                break
            found.append(_answer(bytes(self._data[LENGTH.size : end])))
            del self._data[:end]
        return found


def _answer(frame: bytes) -> Answer:
    (mark,) = LENGTH.unpack_from(frame)
    kind, size = mark >> 24, mark & 0xFFFFFF
    end = LENGTH.size + size
    if end > len(frame) or size > HEADER_BYTES_MOST:
        raise ReplicationError(f"a header of {size} bytes in a frame of {len(frame)}")
    header, body = frame[LENGTH.size : end], frame[end:]
    if kind == JSON_HEADER:
        return _with_json(header, body)
    if kind == BINARY_HEADER:
        return _with_binary(header, body)
    raise ReplicationError(f"a header of kind {kind}: there are {JSON_HEADER} and {BINARY_HEADER}")


def _with_json(header: bytes, body: bytes) -> Answer:
    try:
        found = parse_json(header, LIMITS["answer"])
    except ValueError as error:
        raise ReplicationError(f"the header of an answer is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ReplicationError("the header of an answer is no JSON object")
    remark = found.get("remark")
    code, opaque, flag = (_number(found, name) for name in ("code", "opaque", "flag"))
    return Answer(code, opaque, flag, _shown(remark if isinstance(remark, str) else ""), body)


def _number(header: dict[str, object], name: str) -> int:
    found = header.get(name)
    if type(found) is not int or not -(2**31) <= found < 2**31:
        raise ReplicationError(f"the header of an answer lacks a number {name!r}")
    return found


def _with_binary(header: bytes, body: bytes) -> Answer:
    if len(header) < BINARY.size:
        raise ReplicationError(f"a binary header of {len(header)} bytes: {BINARY.size} or more")
    code, _, _, opaque, flag = BINARY.unpack_from(header)
    remark, at = _counted(header, BINARY.size)
    _, at = _counted(header, at)  # fields that no answer here needs
    if at != len(header):
        raise ReplicationError(f"{len(header) - at} bytes after the fields of a binary header")
    return Answer(code, opaque, flag, _shown(remark.decode(errors="replace")), body)


def _counted(header: bytes, at: int) -> tuple[bytes, int]:
    """The bytes at `at`, with their number in front, and where they end."""
    begin = at + LENGTH.size
    size = LENGTH.unpack_from(header, at)[0] if begin <= len(header) else 0
    if begin + size > len(header):
        raise ReplicationError(f"a binary header of {len(header)} bytes is too short")
    return header[begin : begin + size], begin + size


def _shown(remark: str) -> str:
    return remark if len(remark) <= REMARK_SHOWN else remark[:REMARK_SHOWN] + "…"
