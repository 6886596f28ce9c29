"""What hostile peers do in one connection: copies of a master, and the master of a copy, by protocol."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rocketstore.replication.protocol import frames
from rocketstore.replication.protocol.classic import HEADER, REPORT
from rocketstore.replication.protocol.compression import Codec
from rocketstore.replication.protocol.epochs import Epoch
from rocketstore.replication.protocol.frames import Accept, Ask, Kind, frame
from rocketstore.replication.protocol.handshake import Greeting
from rocketstore.replication.protocol.link import Offsets
from rocketstore.replication.protocol.offsets import HEAD, OF_GROUPS, offset_frames
from rocketstore.replication.protocol.session import ACK, HEARTBEAT
from tests.replication.peers.hostile_talk import (
    NO_TERMS,
    NUMBERS,
    Peer,
    an_error,
    changed,
    connected,
    some_epochs,
)

__all__ = ["SCENES"]


# ---- copies of a master ----


def _greet(peer: Peer, *, with_key: bool, codec: int = Codec.NONE) -> None:
    peer.say(frame(Kind.HELLO, Greeting.pack(with_key=with_key, codec=codec)))
    if peer.plan.key:
        peer.say(frame(Kind.PROOF, peer.rng.randbytes(32)))
    peer.hear(Kind.CHALLENGE)


def _ask(peer: Peer, **said: Any) -> bytes:
    empty = Ask(
        *(peer.rng.randbytes(16), bytes(16), 0, 0, 0, bytes(32), False),
        *(peer.plan.segment_bytes, ()),
    )
    return empty._replace(**said).pack()


def _floods(peer: Peer) -> None:
    """Allowed acknowledgements, then one that is none, or an end."""
    _greet(peer, with_key=peer.plan.key, codec=peer.rng.choice((*Codec, *[Codec.NONE] * 9)))
    peer.say(frame(Kind.ASK, _ask(peer)))
    accepted = Accept.unpack(peer.hear(Kind.ACCEPT))
    peer.say_often(frame(Kind.ACK, ACK.pack(0, 0)))
    end = accepted.end
    ack = ACK.pack(peer.number(end), peer.number(end, 0))
    peer.say(changed(peer, Kind.ACK, ack) if peer.rng.random() < 0.5 else frame(Kind.ACK, ack))


def _never_ends(peer: Peer) -> None:
    """As long as the attack goes on."""
    if peer.plan.protocol == "rocketmq":
        peer.say(REPORT.pack(0))
    else:
        _greet(peer, with_key=peer.plan.key)
        peer.say(frame(Kind.ASK, _ask(peer)))
        peer.hear(Kind.ACCEPT)
    peer.sock.settimeout(None)
    one = REPORT.pack(0) if peer.plan.protocol == "rocketmq" else frame(Kind.ACK, ACK.pack(0, 0))
    while True:
        peer.say_often(one)


def _follows(peer: Peer) -> None:
    """Takes what it is sent, and says nothing more: what a copy costs that is none."""
    if peer.plan.protocol == "rocketmq":
        peer.say(REPORT.pack(0))
    else:
        _greet(peer, with_key=peer.plan.key)
        peer.say(frame(Kind.ASK, _ask(peer)))
    peer.sock.settimeout(None)
    while peer.sock.recv(1 << 16):
        pass


def _only_asks(peer: Peer) -> None:
    _greet(peer, with_key=peer.plan.key)
    peer.say(frame(Kind.ASK, _ask(peer, only_asks=True)))
    peer.say_often(frame(Kind.ACK, ACK.pack(0, 0)))


def _asks_wrongly(peer: Peer) -> None:
    """With what the master said of its store, as that has no key; of terms that cannot be."""
    rng = peer.rng
    _greet(peer, with_key=rng.random() < 0.5)
    peer.say(frame(Kind.ASK, _ask(peer, only_asks=True)))
    known = Accept.unpack(peer.hear(Kind.ACCEPT))
    with connected(peer.plan) as sock:
        again = Peer(sock, rng, peer.plan, peer._said)
        _greet(again, with_key=peer.plan.key)
        body = _ask(
            again,
            store_id=rng.choice((known.store_id, known.store_id, rng.randbytes(16))),
            begin=peer.number(known.end),
            end=peer.number(known.end),
            tail=peer.number(known.end),
            digest=rng.randbytes(32),
            segment_bytes=rng.choice((peer.plan.segment_bytes, peer.number())),
            epochs=some_epochs(peer, *known.epochs) if rng.random() < 0.5 else known.epochs,
        )
        # A changed term may be a later one, which fences: the documents say so.
        other = changed(again, Kind.ASK, body, frames.ASK.size)
        again.say(rng.choice((other, frame(Kind.ASK, body))))
        again.say_often(frame(Kind.ACK, ACK.pack(0, 0)))
        again.end()


def _out_of_turn(peer: Peer) -> None:
    """Any frames, in any state."""
    bodies = (
        (Kind.HELLO, Greeting.pack(with_key=peer.plan.key, codec=peer.rng.randrange(4))),
        (Kind.PROOF, peer.rng.randbytes(32)),
        (Kind.ASK, _ask(peer)),
        (Kind.ACK, ACK.pack(0, 0)),
        (Kind.HEARTBEAT, HEARTBEAT.pack(0, peer.number())),
        (Kind.DATA, frames.DATA.pack(1, 0, 9, 9) + bytes(9)),
        (Kind.OFFSETS, HEAD.pack(OF_GROUPS, 3, 0)),
    )
    _say_some(peer, bodies)


def _say_some(peer: Peer, bodies: Sequence[tuple[Kind, bytes]]) -> None:
    """The first of these frames as they are, perhaps, then any of them, whole or changed."""
    for kind, body in bodies[: peer.rng.randrange(4)]:
        peer.say(frame(kind, body))
    for _ in range(peer.rng.choice((1, 3, 200))):
        kind, body = peer.rng.choice(bodies)
        peer.say(peer.rng.choice((frame(kind, body), changed(peer, kind, body), an_error(peer))))


def _noise(peer: Peer) -> None:
    """Or silence, or a piece of a frame."""
    peer.say(peer.rng.randbytes(peer.rng.choice((0, 1, 9, 5000))))
    peer.say(frame(Kind.HELLO, Greeting.pack(with_key=True, codec=0))[: peer.rng.randrange(60)])


def _breaks_off(peer: Peer) -> None:
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reports(peer: Peer) -> None:
    """Of RocketMQ's protocol: allowed ones, then one that is none."""
    peer.say(REPORT.pack(0))
    peer.say_often(REPORT.pack(0))
    peer.say(struct.pack(">Q", peer.number()), peer.rng.randbytes(peer.rng.randrange(20)))


def _reports_wrongly(peer: Peer) -> None:
    peer.say(struct.pack(">Q", peer.rng.choice((peer.number(), peer.rng.randrange(5000)))))
    peer.say_often(struct.pack(">Q", peer.rng.choice((0, 0, peer.number()))))


OWN_COPIES: Final = (
    _never_ends,
    _follows,
    _floods,
    _floods,
    _only_asks,
    _asks_wrongly,
    _out_of_turn,
    _noise,
    _breaks_off,
)
CLASSIC_COPIES: Final = (
    _never_ends,
    _follows,
    _reports,
    _reports,
    _reports_wrongly,
    _out_of_turn,
    _noise,
    _breaks_off,
)


# ---- the master of a copy ----


def _accepts(peer: Peer, **said: Any) -> Ask:
    """Accepts the copy, or says something else in the place of that."""
    peer.hear(Kind.HELLO)
    peer.say(frame(Kind.CHALLENGE, Greeting.pack(with_key=peer.plan.key, codec=Codec.NONE)))
    if peer.plan.key:
        peer.say(frame(Kind.PROOF, peer.rng.randbytes(32)))
    ask = Ask.unpack(peer.hear(Kind.ASK))
    epochs = ask.epochs or (Epoch(1, 0, 0, b"A" * 8),)
    accept = Accept(
        ask.store_id or b"S" * 16, ask.end, False, ask.end, ask.segment_bytes, epochs
    )._replace(**said)
    peer.say(frame(Kind.ACCEPT, accept.pack()))
    return ask


def _floods_copy(peer: Peer) -> None:
    ask = _accepts(peer)
    peer.say_often(frame(Kind.HEARTBEAT, HEARTBEAT.pack(ask.end, ask.end)))
    beat = HEARTBEAT.pack(peer.number(ask.end), peer.number(ask.end))
    peer.say(peer.rng.choice((frame(Kind.HEARTBEAT, beat), changed(peer, Kind.HEARTBEAT, beat))))


def _tables(peer: Peer) -> None:
    """Offsets of groups that speak of bytes of which only the begin came, without an end."""
    rng, ask = peer.rng, _accepts(peer)
    term = ask.epochs[-1].term if ask.epochs else 1
    head = struct.pack(">II", 500, 0xDAA320A7)
    peer.say(frame(Kind.DATA, frames.DATA.pack(term, ask.end, ask.end + 8, 8) + head))
    end, count = ask.end + rng.choice((0, 8)), rng.choice((1, 30, 1500))
    for number in range(count):
        rows = {f"t{number}_{n}@g": {0: n} for n in range(rng.choice((1, 100)))}
        peer.say(*offset_frames(Offsets(end, not number, rows)))
    table = HEAD.pack(OF_GROUPS, rng.randrange(4), peer.number(end)) + rng.randbytes(40)
    peer.say(changed(peer, Kind.OFFSETS, table))


def _accepts_wrongly(peer: Peer) -> None:
    rng = peer.rng
    _accepts(
        peer,
        **rng.choice(
            (
                {"start": min(peer.number(), 2**63 - 1), "end": 2**63 - 1},
                {"cut": True},
                {"store_id": rng.randbytes(16)},
                {"segment_bytes": peer.number()},
                {"epochs": some_epochs(peer)},
            )
        ),
    )
    peer.say_often(frame(Kind.HEARTBEAT, HEARTBEAT.pack(0, 0)))


def _sends_wrongly(peer: Peer) -> None:
    """Bytes that are none of a log, of another place or term, or said to be compressed."""
    rng, ask = peer.rng, _accepts(peer)
    term, end = (ask.epochs[-1].term if ask.epochs else 1), ask.end
    data = rng.choice((rng.randbytes(900), zlib.compress(bytes(1 << 20)), b""))
    head = (
        rng.choice((term, term, rng.choice(NO_TERMS))),
        rng.choice((end, end, peer.number(end))),
        rng.choice((end + len(data), peer.number(end))),
        rng.choice((len(data), rng.choice(NUMBERS[:6]))),
    )
    body = frames.DATA.pack(*head) + data
    for _ in range(rng.choice((1, 1, 300))):
        whole = frame(Kind.DATA, body, rng.choice((0, 0, 1, 2)))
        peer.say(rng.choice((whole, changed(peer, Kind.DATA, body))))


def _answers_anything(peer: Peer) -> None:
    bodies = (
        (Kind.CHALLENGE, Greeting.pack(with_key=peer.plan.key, codec=peer.rng.randrange(4))),
        (Kind.PROOF, peer.rng.randbytes(32)),
        (
            Kind.ACCEPT,
            Accept(b"S" * 16, 0, False, 0, peer.plan.segment_bytes, some_epochs(peer)).pack(),
        ),
        (Kind.HEARTBEAT, HEARTBEAT.pack(0, peer.number())),
        (Kind.ACK, ACK.pack(0, 0)),
    )
    _say_some(peer, bodies)


def _sends_classic(peer: Peer) -> None:
    """The bytes that the copy has, then heartbeats, then what is no frame or no record."""
    rng = peer.rng
    (asked,) = REPORT.unpack(peer.sock.recv(REPORT.size, socket.MSG_WAITALL))
    own = Path(peer.plan.log).read_bytes()[asked:]
    if rng.random() < 0.9:
        peer.say(HEADER.pack(asked, len(own)) + own)
    end = asked + len(own)
    peer.say_often(HEADER.pack(end, 0))
    size = rng.choice((1, 9, 5000))
    numbers = rng.choice((end, peer.number(end))), rng.choice((size, size, peer.number()))
    data = rng.choice((rng.randbytes(size), struct.pack(">II", 500, 0xDAA320A7)[:size]))
    peer.say(struct.pack(">QI", numbers[0], numbers[1] % 2**32) + data)


def _beats_classic(peer: Peer) -> None:
    peer.say_often(struct.pack(">QI", peer.number(), 0))
    peer.say(struct.pack(">QI", peer.number(), peer.number() % 2**32))


OWN_MASTERS: Final = (
    *(_floods_copy, _floods_copy, _floods_copy, _tables, _accepts_wrongly, _sends_wrongly),
    *(_answers_anything, _noise, _breaks_off),
)
CLASSIC_MASTERS: Final = (
    *(_sends_classic, _sends_classic, _sends_classic, _beats_classic, _answers_anything),
    *(_noise, _breaks_off),
)

#: By the role of what is attacked, and the protocol.
SCENES: Final[dict[tuple[str, str], tuple[Callable[[Peer], None], ...]]] = {
    ("master", "rocketstore"): OWN_COPIES,
    ("master", "rocketmq"): CLASSIC_COPIES,
    ("replica", "rocketstore"): OWN_MASTERS,
    ("replica", "rocketmq"): CLASSIC_MASTERS,
}
