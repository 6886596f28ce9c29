"""A slave of RocketMQ's HA protocol, in a few lines and a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading

from rocketstore.replication.protocol.classic import HEADER, REPORT
from tests.support.waiting import PATIENCE_S

__all__ = ["ClassicSlave"]


class ClassicSlave:
    """Keeps what it is sent in memory. It acknowledges each frame, unless `acknowledges` is False."""

    def __init__(self, address: str, begin: int = 0, *, acknowledges: bool = True) -> None:
        host, port = address.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.begin: int | None = None
        self.data = bytearray()
        self.frames: list[tuple[int, int]] = []
        self.acknowledges = acknowledges
        #: Whether the master has ended the connection.
        self.ended = threading.Event()
        self.report(begin)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def end(self) -> int:
        return (self.begin or 0) + len(self.data)

    def report(self, offset: int) -> None:
        self.sock.sendall(REPORT.pack(offset))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.sock.close()

    def __enter__(self) -> ClassicSlave:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while (header := self._read(HEADER.size)) is not None:
                offset, size = HEADER.unpack(header)
                self.frames.append((offset, size))
                if not size:
                    continue
                data = self._read(size)
                if data is None:
                    break
                if self.begin is None:
                    self.begin = offset
                assert offset == self.end
                self.data += data
                if self.acknowledges:
                    self.report(self.end)
        except OSError:
            pass
        self.ended.set()

    def _read(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            piece = self.sock.recv(min(size - len(data), 1 << 20))
            if not piece:
                return None
            data += piece
        return bytes(data)
