"""A link between a copy and its master that goes wrong when it is told to.

It is two ways, one in each direction, over loopback. A way can be held (its bytes come later), lose
what it is given (a connection that lost bytes carries no more that way, so it ends by silence only),
be slow, change one bit, or end its connection within a frame. Both ways held are a partition: a
connection is accepted, and nothing passes, not even its end.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter

__all__ = ["FaultyLink", "Way"]

#: What one read takes, bytes; of a slow way less.
PIECE_BYTES = 1 << 16
#: A slow way passes so much time's worth of bytes at once, seconds.
TURN_S = 0.02


class Way:
    """One direction of a link, for all of its connections. Any thread may set it."""

    def __init__(self, rng: random.Random, counts: Counter[str]) -> None:
        self._rng, self._counts = rng, counts
        self._changed = threading.Condition()
        self._held = self._over = False
        self.loses = False
        self.bytes_per_s: float | None = None
        self.delay_s = 0.0
        self._flips = 0
        self._left: int | None = None

    def hold(self) -> None:
        """Nothing passes until `heal`."""
        self._held = True

    def flip(self) -> None:
        """The next bytes have a bit that was another one."""
        self._flips += 1

    def cut_after(self, size: int) -> None:
        """The connection that passes this many bytes more ends there."""
        self._left = size

    def heal(self) -> None:
        """Passes on what comes, and what was held. What was lost stays lost."""
        with self._changed:
            self._held = self.loses = False
            self.bytes_per_s, self.delay_s = None, 0.0
            self._changed.notify_all()

    def close(self) -> None:
        """It passes nothing any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Returns once it is not held. False: it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._over)
            return not self._over

    def pump(self, source: socket.socket, sink: socket.socket) -> bool:
        """Passes on what comes until the source ends. False: the sink must not hear of that."""
        lost = False
        while (data := self._received(source)) and self.wait():
            if lost or self.loses:
                self._counts["bytes lost"] += len(data)
                lost = True
                continue
            data, ends = self._as_it_arrives(data)
            try:
                sink.sendall(data)
            except OSError:
                break
            if ends:
                break
            self._keep_pace(len(data))
        return self.wait() and not lost

    def _received(self, source: socket.socket) -> bytes:
        limit = self.bytes_per_s
        most = PIECE_BYTES if limit is None else max(1, int(limit * TURN_S))
        try:
            return source.recv(most)
        except OSError:
            return b""

    def _as_it_arrives(self, data: bytes) -> tuple[bytes, bool]:
        """With its flipped bits, up to where the connection ends; and whether it does."""
        if self._flips:
            self._flips -= 1
            self._counts["bits flipped"] += 1
            changed = bytearray(data)
            changed[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
            data = bytes(changed)
        left = self._left
        if left is None:
            return data, False
        if len(data) < left:
            self._left = left - len(data)
            return data, False
        self._left = None
        self._counts["connections cut"] += 1
        return data[:left], True

    def _keep_pace(self, size: int) -> None:
        pause_s = self.delay_s
        if self.bytes_per_s is not None:
            pause_s += size / self.bytes_per_s
        if pause_s:
            time.sleep(pause_s)


class FaultyLink:
    """Accepts at `address`, and connects to where it leads."""

    def __init__(self, rng: random.Random, target: str = "") -> None:
        self.counts: Counter[str] = Counter()
        #: From the copy to the master, and back.
        self.up, self.down = Way(rng, self.counts), Way(rng, self.counts)
        self.target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def ways(self) -> tuple[Way, Way]:
        return self.up, self.down

    def lead_to(self, target: str) -> None:
        """New connections go to `target`; those that are end."""
        self.target = target
        with self._lock:
            _end(*self._open)

    def heal(self) -> None:
        for way in self.ways:
            way.heal()

    def close(self) -> None:
        """Ends all connections. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for way in self.ways:
            way.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        with self._lock:
            _end(*self._open)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> FaultyLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._keep(near)
            thread = threading.Thread(target=self._serve, args=(near,), daemon=True)
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    def _keep(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.add(sock)

    def _serve(self, near: socket.socket) -> None:
        """One connection. It reaches the master once both ways are open."""
        with near:
            try:
                if self.up.wait() and self.down.wait():
                    host, port = self.target.rsplit(":", 1)
                    with (
                        contextlib.suppress(OSError),
                        socket.create_connection((host, int(port)), 10) as far,
                    ):
                        far.settimeout(None)
                        self._keep(far)
                        try:
                            self._pass_on(near, far)
                        finally:
                            self._forget(far)
            finally:
                self._forget(near)

    def _forget(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.discard(sock)

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        def up() -> None:
            if self.up.pump(near, far):
                _end(near, far)

        back = threading.Thread(target=up, daemon=True)
        back.start()
        if self.down.pump(far, near):
            _end(near, far)
        back.join()


def _end(*sockets: socket.socket) -> None:
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
