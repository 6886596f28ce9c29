"""A proxy that ends connections after a random number of bytes from the master."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

__all__ = ["CuttingProxy"]


class CuttingProxy:
    """Accepts at `address` and passes everything on to `target`. The first `cuts` connections end
    after 1 … `most` bytes of the target, in the middle of whatever these are."""

    def __init__(self, target: str, rng: random.Random, cuts: int, most: int) -> None:
        self.target = target
        #: Connections that were ended.
        self.cut = 0
        self._rng, self._cuts, self._most = rng, cuts, most
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            left = self._rng.randint(1, self._most) if self.cut < self._cuts else None
            threading.Thread(target=self._serve, args=(peer, left), daemon=True).start()

    def _cuts_one(self) -> bool:
        """Whether one more is to be cut: a peer may have left another connection for a new one."""
        with self._lock:
            if self.cut < self._cuts:
                self.cut += 1
                return True
            return False

    def _serve(self, peer: socket.socket, left: int | None) -> None:
        host, port = self.target.rsplit(":", 1)
        try:
            master = socket.create_connection((host, int(port)))
        except OSError:
            peer.close()
            return
        back = threading.Thread(target=_pass_on, args=(peer, master), daemon=True)
        back.start()
        while left is None or left > 0:
            try:
                data = master.recv(min(65536, left or 65536))
                peer.sendall(data)
            except OSError:
                break
            if not data:
                break
            if left is not None:
                left -= len(data)
            if left == 0 and not self._cuts_one():
                left = None
        for sock in (peer, master):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        back.join()
        peer.close()
        master.close()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(4096):
            sink.sendall(data)
