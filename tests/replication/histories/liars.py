"""Peers that lie: a copy that claims what it has not, and a master that is none.

Each lie is one that the other end can find. What cannot be found, as an acknowledgement of bytes
that were sent, needs a key; a liar has none, and with a key it tries these lies as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable

from rocketstore.errors import RocketStoreError
from rocketstore.replication.protocol.compression import Codec
from rocketstore.replication.protocol.epochs import RISE_MOST, Epoch
from rocketstore.replication.protocol.frames import (
    DATA,
    Accept,
    Ask,
    Code,
    Frame,
    FrameReader,
    Kind,
    data_frame,
    frame,
)
from rocketstore.replication.protocol.handshake import ERROR, Greeting
from rocketstore.replication.protocol.session import ACK, HEARTBEAT
from tests.support.small_store import SEGMENT

__all__ = [
    "BELIEVED_LIES",
    "BELIEVED_MASTER_LIES",
    "COPY_LIES",
    "LATER_TERM",
    "MASTER_LIES",
    "LyingMaster",
    "lie_as_copy",
]

#: A liar of a history that was sent away knows it by then, seconds, if no process is paused.
PATIENCE_S = 2.0
FAR = 2**62
#: The farthest that a master of term 1 believes.
LATER_TERM = 1 + RISE_MOST


class _Talk:
    """One connection, as frames."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._frames: list[Frame] = []

    def say(self, *parts: bytes) -> None:
        self._sock.sendall(b"".join(parts))

    def hear(self, kind: Kind) -> bytes:
        """The body of the next frame of this kind; ConnectionError once the peer has ended."""
        while True:
            for one in self._frames:
                if one.kind is kind:
                    self._frames.remove(one)
                    return bytes(one.body)
            self._hear_more()

    def hear_out(self) -> None:
        """Returns when the peer has ended the connection."""
        with contextlib.suppress(ConnectionError, RocketStoreError):
            while True:
                self._hear_more()

    def _hear_more(self) -> None:
        data = self._sock.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the peer ended the connection")
        for one in self._reader.take(memoryview(data)):
            self._frames.append(one._replace(body=memoryview(bytes(one.body))))


def _ack(received: int, synced: int) -> bytes:
    return frame(Kind.ACK, ACK.pack(received, synced))


def _random_epochs(rng: random.Random) -> tuple[Epoch, ...]:
    return (Epoch(rng.randrange(1, 9), 0, 0, rng.randbytes(8)),)


# ---- a copy ----


class _Copy:
    """What a lying copy knows once it has asked as an empty one."""

    def __init__(self, talk: _Talk, rng: random.Random, segment_bytes: int) -> None:
        self.talk, self.rng, self.segment_bytes = talk, rng, segment_bytes
        self.id = rng.randbytes(16)

    def ask(
        self, store_id: bytes = bytes(16), epochs: tuple[Epoch, ...] = (), end: int = 0
    ) -> None:
        digest = hashlib.sha256(self.rng.randbytes(8)).digest()
        ask = Ask(
            self.id, store_id, 0, end, max(0, end - 1000), digest, False, self.segment_bytes, epochs
        )
        self.talk.say(frame(Kind.ASK, ask.pack()))

    def accepted(self) -> Accept:
        self.ask()
        return Accept.unpack(memoryview(self.talk.hear(Kind.ACCEPT)))


def _noise(copy: _Copy, known: Accept | None) -> None:
    copy.talk.say(copy.rng.randbytes(copy.rng.randrange(1, 3000)))


def _early(copy: _Copy, known: Accept | None) -> None:
    copy.talk.say(_ack(0, 0))


def _beyond(copy: _Copy, known: Accept | None) -> None:
    copy.ask()
    copy.talk.say(_ack(FAR, copy.rng.choice((0, FAR))))


def _unreceived(copy: _Copy, known: Accept | None) -> None:
    copy.ask()
    copy.talk.say(_ack(0, 1))


def _backwards(copy: _Copy, known: Accept | None) -> None:
    """Of received bytes, of which no promise depends."""
    copy.ask()
    with contextlib.suppress(TimeoutError):
        copy.talk.hear(Kind.DATA)
    copy.talk.say(_ack(1, 0), _ack(0, 0))


def _other_store(copy: _Copy, known: Accept | None) -> None:
    copy.ask(copy.rng.randbytes(16), _random_epochs(copy.rng), 5000)
    copy.talk.say(_ack(5000, 5000))


def _other_history(copy: _Copy, known: Accept | None) -> None:
    """The same terms, begun by others."""
    if known is not None:
        epochs = tuple(_begun_by_another(one, copy.rng) for one in known.epochs)
        copy.ask(known.store_id, epochs, max(1, known.end // 2))
    copy.talk.say(_ack(100, 100))


def _begun_by_another(epoch: Epoch, rng: random.Random) -> Epoch:
    return Epoch(epoch.term, epoch.run, epoch.start, rng.randbytes(8))


def _other_bytes(copy: _Copy, known: Accept | None) -> None:
    if known is not None and known.end:
        copy.ask(known.store_id, known.epochs, known.end)
    copy.talk.say(_ack(100, 100))


def _threw_away(copy: _Copy, known: Accept | None) -> None:
    """Acknowledges all that it is sent, and keeps nothing."""
    copy.ask()
    while True:
        _, offset, _, size = DATA.unpack_from(copy.talk.hear(Kind.DATA))
        copy.talk.say(_ack(offset + size, offset + size))


def _later_term(copy: _Copy, known: Accept | None) -> None:
    """Fences the master."""
    store_id = copy.rng.randbytes(16) if known is None else known.store_id
    copy.ask(store_id, (Epoch(LATER_TERM, 0, 0, copy.rng.randbytes(8)),), 10)


#: What a master finds without a key.
COPY_LIES: dict[str, Callable[[_Copy, Accept | None], None]] = {
    "noise": _noise,
    "acknowledges before it asks": _early,
    "acknowledges what was not sent": _beyond,
    "synced what it has not received": _unreceived,
    "acknowledges backwards": _backwards,
    "is of another store": _other_store,
    "has another history": _other_history,
    "has other bytes": _other_bytes,
}
#: What a master cannot find: it is true of a copy that keeps what it is sent, or heard of a promotion.
BELIEVED_LIES: dict[str, Callable[[_Copy, Accept | None], None]] = {
    "threw away what it acknowledges": _threw_away,
    "knows a later term": _later_term,
}


def lie_as_copy(
    address: str,
    lie: str,
    rng: random.Random,
    *,
    with_key: bool,
    segment_bytes: int = SEGMENT,
    patience_s: float = PATIENCE_S,
) -> bool:
    """Tells the master at `address` a lie. False: it did not end the connection. OSError where it
    was not there."""
    known = None if with_key else _asked(address, rng, segment_bytes, patience_s)
    with _connected(address, patience_s) as sock:
        talk = _Talk(sock)
        try:
            if lie != "noise":
                _greet(talk, rng, with_key=with_key)
            (COPY_LIES | BELIEVED_LIES)[lie](_Copy(talk, rng, segment_bytes), known)
            talk.hear_out()
        except TimeoutError:
            return False
        except ConnectionError:
            return True
    return True


def _asked(
    address: str, rng: random.Random, segment_bytes: int, patience_s: float
) -> Accept | None:
    """What a master without a key says to an empty copy."""
    try:
        with _connected(address, patience_s) as sock:
            talk = _Talk(sock)
            _greet(talk, rng, with_key=False)
            return _Copy(talk, rng, segment_bytes).accepted()
    except (OSError, RocketStoreError):
        return None


def _connected(address: str, patience_s: float) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), patience_s)


def _greet(talk: _Talk, rng: random.Random, *, with_key: bool) -> None:
    """With a proof that is none, where one is wanted."""
    talk.say(frame(Kind.HELLO, Greeting.pack(with_key=with_key, codec=Codec.NONE)))
    talk.hear(Kind.CHALLENGE)
    if with_key:
        talk.say(frame(Kind.PROOF, rng.randbytes(32)))


# ---- a master ----


def _silent(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    """Says nothing more."""


def _speaks_noise(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    talk.say(rng.randbytes(rng.randrange(1, 3000)))


def _of_another_store(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    _accept(talk, ask, store_id=rng.randbytes(16), epochs=_random_epochs(rng))


def _of_no_common_history(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    epochs = tuple(_begun_by_another(one, rng) for one in ask.epochs)
    _accept(talk, ask, epochs=epochs)


def _goes_on_elsewhere(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    _accept(talk, ask, start=rng.choice((ask.end + 1, ask.end // 2)))


def _has_it_cut(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    """Where the histories say that nothing is to be cut."""
    _accept(talk, ask, start=ask.end // 2, cut=True)


def _has_it_cut_by_a_promotion(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    """A later term, which began where the copy does: nothing that it has is of it."""
    start, term = ask.begin, ask.epochs[-1].term + 1
    before = tuple(one for one in ask.epochs if one.start <= start)
    epochs = (*before, Epoch(term, 0, start, rng.randbytes(8)))
    _accept(talk, ask, epochs=epochs, start=start, cut=True)


def _sends_wrong_checksums(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    _accept(talk, ask)
    whole = bytearray(b"".join(_data(ask, ask.end, rng)))
    whole[-1] ^= 1
    talk.say(bytes(whole))


def _sends_another_offset(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    _accept(talk, ask)
    talk.say(*_data(ask, ask.end + rng.randrange(1, 1000), rng))


def _sends_another_term(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    _accept(talk, ask)
    talk.say(*_data(ask, ask.end, rng, term=10**6))


def _sends_no_records(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    _accept(talk, ask)
    talk.say(*_data(ask, ask.end, rng))


def _has_nothing_where_it_is(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    _accept(talk, ask)
    talk.say(frame(Kind.HEARTBEAT, HEARTBEAT.pack(ask.end + 1, FAR)))


def _gives_up(talk: _Talk, ask: Ask, rng: random.Random) -> None:
    code = rng.choice(list(Code))
    talk.say(frame(Kind.ERROR, ERROR.pack(code, rng.randrange(FAR)) + b"a lie"))


def _accept(
    talk: _Talk,
    ask: Ask,
    *,
    store_id: bytes = b"",
    epochs: tuple[Epoch, ...] = (),
    start: int = -1,
    cut: bool = False,
) -> None:
    start = ask.end if start < 0 else start
    end = max(start, ask.end)
    said = Accept(
        store_id or ask.store_id, start, cut, end, ask.segment_bytes, epochs or ask.epochs
    )
    talk.say(frame(Kind.ACCEPT, said.pack()))


def _data(ask: Ask, offset: int, rng: random.Random, term: int = -1) -> list[bytes]:
    term = ask.epochs[-1].term if term < 0 else term
    data = rng.randbytes(rng.randrange(8, 3000))
    return [bytes(one) for one in data_frame(term, offset, offset + len(data), data)]


#: What a copy with messages finds without a key.
MASTER_LIES: dict[str, Callable[[_Talk, Ask, random.Random], None]] = {
    "is silent": _silent,
    "speaks noise": _speaks_noise,
    "is of another store": _of_another_store,
    "has no common history": _of_no_common_history,
    "goes on elsewhere": _goes_on_elsewhere,
    "has the copy cut": _has_it_cut,
    "sends wrong checksums": _sends_wrong_checksums,
    "sends another offset": _sends_another_offset,
    "sends another term": _sends_another_term,
    "sends no records": _sends_no_records,
    "has nothing where it is": _has_nothing_where_it_is,
    "gives up": _gives_up,
}
#: What a copy cannot find: it is true of a store that was promoted.
BELIEVED_MASTER_LIES: dict[str, Callable[[_Talk, Ask, random.Random], None]] = {
    "has the copy cut by a promotion": _has_it_cut_by_a_promotion,
}


class LyingMaster:
    """Listens at `address`, where copies think that their master is. It tells each one lie; without a
    key an empty copy hears noise only, as it has nothing to compare with."""

    def __init__(self, rng: random.Random, *, with_key: bool, lie: str = "") -> None:
        """`lie`: another one for each connection, if not given."""
        self.told: Counter[str] = Counter()
        self._rng, self._with_key, self._lie = rng, with_key, lie
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def __enter__(self) -> LyingMaster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError, RocketStoreError, ValueError):
                sock.settimeout(PATIENCE_S)
                self._deceive(_Talk(sock))

    def _deceive(self, talk: _Talk) -> None:
        rng = self._rng
        lies = MASTER_LIES | BELIEVED_MASTER_LIES
        lie = self._lie or rng.choice([*(lies if self._with_key else MASTER_LIES)])
        talk.hear(Kind.HELLO)
        greeting = Greeting.pack(with_key=self._with_key, codec=Codec.NONE)
        talk.say(frame(Kind.CHALLENGE, greeting))
        if self._with_key:
            talk.say(frame(Kind.PROOF, rng.randbytes(32)))
            ask = Ask(
                bytes(16),
                secrets.token_bytes(16),
                0,
                100,
                0,
                bytes(32),
                False,
                SEGMENT,
                _random_epochs(rng),
            )
        else:
            ask = Ask.unpack(memoryview(talk.hear(Kind.ASK)))
            if ask.begin == ask.end:
                lie = "speaks noise"
        self.told[lie] += 1
        lies[lie](talk, ask, rng)
        talk.hear_out()
