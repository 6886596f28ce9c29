"""A broker of RocketMQ that a socket plays: it answers requests with what it was given."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from typing import Any

__all__ = ["BrokerLike", "binary_frame", "json_frame"]

RESPONSE = 1


def json_frame(
    opaque: int, body: bytes, *, code: int = 0, flag: int = RESPONSE, remark: str | None = None
) -> bytes:
    """A frame with a JSON header, as Java writes it."""
    header: dict[str, Any] = {
        "code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 465,
        "serializeTypeCurrentRPC": "JSON", "extFields": {"totalTopicNum": "3"},
    }  # fmt: skip
    if remark is not None:
        header["remark"] = remark
    return _frame(0, json.dumps(header).encode(), body)


def binary_frame(opaque: int, body: bytes, *, code: int = 0, remark: bytes = b"") -> bytes:
    """A frame with RocketMQ's own header."""
    fields = struct.pack(">h", 1) + b"k" + struct.pack(">i", 2) + b"vv"
    header = struct.pack(">hBhii", code, 0, 465, opaque, RESPONSE)
    header += struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(fields)) + fields
    return _frame(1, header, body)


def _frame(kind: int, header: bytes, body: bytes) -> bytes:
    inner = struct.pack(">I", kind << 24 | len(header)) + header + body
    return struct.pack(">I", len(inner)) + inner


class BrokerLike:
    """`bodies` by request code; a number is the code of a failure, a tuple has frames as they are."""

    def __init__(self, bodies: dict[int, Any], *, binary: bool = False) -> None:
        self.bodies = bodies
        self.binary = binary
        #: Codes that were asked.
        self.asked: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> BrokerLike:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        # A copy that closes may be in the middle of a question.
        with contextlib.suppress(OSError), sock, sock.makefile("rb") as stream:
            while len(head := stream.read(8)) == 8:
                size, mark = struct.unpack(">II", head)
                header = json.loads(stream.read(size - 4)[: mark & 0xFFFFFF])
                self.asked.append(header["code"])
                if header["code"] not in self.bodies:
                    return
                self._answer(sock, header["opaque"], self.bodies[header["code"]])

    def _answer(self, sock: socket.socket, opaque: int, body: Any) -> None:
        if isinstance(body, tuple):
            sock.sendall(b"".join(body))
        elif isinstance(body, int):
            sock.sendall(json_frame(opaque, b"", code=body, remark="No such thing in this broker"))
        else:
            frame = binary_frame if self.binary else json_frame
            sock.sendall(frame(opaque, body))
