"""Both ends of rocketstore's protocol: identity, history, keys, and what no peer may say."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import DivergedError, ReplicationError
from rocketstore.replication.protocol.compression import Codec, is_here
from rocketstore.replication.protocol.epochs import with_promotion, with_run
from rocketstore.replication.protocol.frames import (
    Accept,
    Ask,
    FrameReader,
    Kind,
    data_frame,
    frame,
)
from rocketstore.replication.protocol.handshake import FinalError
from rocketstore.replication.protocol.link import Acknowledged, CutTo, Fenced, Heartbeat
from rocketstore.replication.protocol.session import ACK, Identity, MasterSession, ReplicaSession
from tests.replication.ends import Log, Wire, copy_of, follow, joined, master_of

KEY = b"a key of 16 bytes or more"
TEXT = bytes(range(256)) * 2


def _kinds(said: bytes) -> list[Kind]:
    return [one.kind for one in FrameReader().take(memoryview(said))]


@pytest.mark.parametrize("codec", list(Codec))
def test_empty_replica_gets_all(codec: Codec) -> None:
    if not is_here(codec):
        pytest.skip("zstandard is not here")
    master, replica = master_of(TEXT, 1000), Log()
    events = follow(master, replica, codec=codec)
    assert (replica.begin, bytes(replica.data)) == (1000, TEXT)
    assert replica.identity == master.identity
    assert events[-1] == Acknowledged(1512, 1512)


def test_empty_replica_begins_with_the_last_file() -> None:
    master, replica = master_of(TEXT), Log()
    follow(master, replica, last_file=True)
    assert (replica.begin, bytes(replica.data)) == (500, TEXT[500:])


def test_replica_goes_on_at_its_end() -> None:
    master = master_of(TEXT)
    replica = copy_of(master, 300)
    follow(master, replica)
    assert replica.data == TEXT


@pytest.mark.parametrize("key", [None, KEY])
def test_a_replica_that_only_asks_is_answered_and_gets_no_place(key: bytes | None) -> None:
    master = master_of(TEXT)
    replica = copy_of(master, 300)
    wire = Wire(MasterSession(master, key), ReplicaSession(replica, key, only_asks=True))
    wire.greet()
    assert _kinds(wire.said["master"])[-1] is Kind.ACCEPT
    assert wire.events == [Heartbeat(300)]  # of the replica; of the master none: it sends nothing
    beyond = Log(master.data + b"more", 0, master.identity)
    wire = Wire(MasterSession(master, key), ReplicaSession(beyond, key, only_asks=True))
    wire.greet()
    assert wire.events == [CutTo(512)]


def test_replica_that_is_beyond_its_master_is_cut() -> None:
    """The master lost a tail that was not synced, and was opened again."""
    master = master_of(TEXT)
    replica = copy_of(master, 400)
    del master.data[350:]
    master.identity = Identity(b"m" * 16, with_run(master.identity.epochs, begin=0, end=350))
    master.data += b"other" * 20
    events = follow(master, replica)
    assert events == [CutTo(350)]
    assert len(replica.data) == 350
    follow(master, replica)
    assert replica.data == master.data


def test_old_master_follows_the_store_that_was_promoted() -> None:
    old = master_of(TEXT)
    new = copy_of(old, 400)
    new.identity = Identity(b"m" * 16, with_promotion(new.identity.epochs, begin=0, end=400))
    new.data += b"new" * 50
    assert follow(new, old) == [CutTo(400)]
    follow(new, old)
    assert (old.data, old.identity) == (new.data, new.identity)


def test_master_hears_of_the_promotion() -> None:
    old = master_of(TEXT)
    new = copy_of(old, 400)
    new.identity = Identity(b"m" * 16, with_promotion(new.identity.epochs, begin=0, end=400))
    wire = Wire(MasterSession(old), ReplicaSession(new))
    with pytest.raises(ReplicationError, match="promoted in term 2"):
        wire.greet()
    assert wire.events == [Fenced(2)]


def test_two_promotions_to_one_term_go_no_further() -> None:
    first = master_of(TEXT)
    ones = [copy_of(first, 400) for _ in range(2)]
    for one in ones:
        epochs = with_promotion(one.identity.epochs, begin=0, end=400)
        one.identity = Identity(b"m" * 16, epochs)
    with pytest.raises(ReplicationError, match="two stores were promoted to term 2"):
        follow(ones[0], ones[1])
    lost = ones[0]  # what it had before its promotion, and with it the epoch of that
    del lost.data[350:]
    lost.identity = Identity(b"m" * 16, with_run(lost.identity.epochs, begin=0, end=350))
    for master, replica in ((lost, ones[1]), (ones[1], lost)):
        with pytest.raises(ReplicationError, match="two stores were promoted to term 2"):
            follow(master, replica)


def test_copy_of_another_store_is_refused() -> None:
    replica = copy_of(master_of(TEXT), 100)
    replica.identity = Identity(b"x" * 16, replica.identity.epochs)
    with pytest.raises(ReplicationError, match="different stores"):
        follow(master_of(TEXT), replica)


def test_store_without_a_common_epoch_is_refused() -> None:
    replica = copy_of(master_of(TEXT), 100)
    with pytest.raises(ReplicationError, match="no part"):
        follow(master_of(TEXT), replica)


def test_replica_that_is_too_far_behind_is_refused() -> None:
    master = master_of(TEXT)
    replica = copy_of(master, 100)
    del master.data[:200]
    master.begin = 200
    with pytest.raises(ReplicationError, match="removed all below 200"):
        follow(master, replica)


def test_different_bytes_are_noticed() -> None:
    """The histories are the same, the bytes are not: a disk, or somebody, changed them."""
    master = master_of(TEXT)
    replica = copy_of(master, 400)
    replica.data[390] ^= 1
    with pytest.raises(DivergedError, match="different bytes") as caught:
        follow(master, replica)
    assert caught.value.offset == 336


def test_files_of_another_size_are_refused_by_both_ends() -> None:
    master = master_of(TEXT)
    for replica in (Log(segment_bytes=200), copy_of(master, 300)):
        replica.segment_bytes = 200
        with pytest.raises(FinalError, match="files of 100 bytes, the replica of 200"):
            follow(master, replica)
    session = ReplicaSession(Log(segment_bytes=200))
    session.start()
    session.receive(memoryview(frame(Kind.CHALLENGE, bytes(34))))
    session.ask(0)
    lie = Accept(b"m" * 16, 0, False, 400, 100, master.identity.epochs)
    with pytest.raises(FinalError, match="commit_log_file_size_bytes=100"):
        session.receive(memoryview(frame(Kind.ACCEPT, lie.pack())))


# ---- keys ----


def _sessions(master_key: bytes | None, replica_key: bytes | None) -> Wire:
    return Wire(MasterSession(master_of(TEXT), master_key), ReplicaSession(Log(), replica_key))


def test_both_ends_prove_the_key() -> None:
    wire = _sessions(KEY, KEY)
    wire.greet()
    assert wire.master.ready
    assert wire.replica.ready
    assert _kinds(wire.said["master"]) == [Kind.CHALLENGE, Kind.PROOF, Kind.ACCEPT]
    assert KEY not in wire.said["master"] + wire.said["replica"]


@pytest.mark.parametrize(
    ("master_key", "replica_key", "says"),
    [
        (KEY, None, "replica has no key"),
        (None, KEY, "master has no key"),
        (KEY, KEY[:-1] + b"x", "key of the replica is another one"),
    ],
)
def test_without_the_key_nothing_of_a_store_is_said(
    master_key: bytes | None, replica_key: bytes | None, says: str
) -> None:
    wire = _sessions(master_key, replica_key)
    with pytest.raises(ReplicationError, match=rf"{says}.*key= \(--key-file\)"):
        wire.greet()
    assert not wire.master.ready
    assert set(_kinds(wire.said["master"])) <= {Kind.CHALLENGE, Kind.ERROR}
    assert set(_kinds(wire.said["replica"])) <= {Kind.HELLO, Kind.PROOF}
    assert b"m" * 16 not in wire.said["master"]


def test_replica_tells_nothing_to_a_master_without_the_key() -> None:
    """One that does not ask for a proof, gives a wrong one, or gives back that of the replica."""
    replica = ReplicaSession(copy_of(master_of(TEXT), 100), KEY)
    hello = joined(replica.start())
    plain = MasterSession(master_of(TEXT))
    with pytest.raises(ReplicationError):
        plain.receive(memoryview(hello))
    for wrong in (b"", bytes(32)):
        _expect_no_ask(wrong)
    _expect_no_ask(None)


def _expect_no_ask(answer: bytes | None) -> None:
    replica = ReplicaSession(copy_of(master_of(TEXT), 100), KEY)
    master = MasterSession(master_of(TEXT), KEY)
    master.receive(memoryview(joined(replica.start())))
    replica.receive(memoryview(joined(master.replies())))
    said = joined(replica.replies())
    if answer is None:
        answer = bytes(next(iter(FrameReader().take(memoryview(said)))).body)
    with pytest.raises(ReplicationError, match="master"):
        replica.receive(memoryview(frame(Kind.PROOF, answer)))
    assert not replica.ready


def test_proof_of_one_connection_is_none_in_another() -> None:
    first = _sessions(KEY, KEY)
    first.greet()
    again = MasterSession(master_of(TEXT), KEY)
    with pytest.raises(ReplicationError, match="key of the replica"):
        again.receive(memoryview(first.said["replica"]))
    assert not again.ready


# ---- what no peer may say ----


@pytest.mark.parametrize(("received", "synced"), [(301, 0), (200, 201), (2**63, 0)])
def test_no_acknowledgement_beyond_what_was_sent(received: int, synced: int) -> None:
    master, replica = master_of(TEXT), Log()
    wire = Wire(MasterSession(master), ReplicaSession(replica))
    wire.greet()
    wire.to_replica(wire.master.data(0, memoryview(TEXT)[:300]))
    with pytest.raises(ReplicationError, match="received"):
        wire.master.receive(memoryview(frame(Kind.ACK, ACK.pack(received, synced))))


@pytest.mark.parametrize("lower", [(199, 100), (200, 99)])
def test_acknowledgements_do_not_fall(lower: tuple[int, int]) -> None:
    wire = _sessions(None, None)
    wire.greet()
    wire.to_replica(wire.master.data(0, memoryview(TEXT)[:300]))
    wire.to_master(wire.replica.acknowledge(200, 100))
    with pytest.raises(ReplicationError, match="received"):
        wire.master.receive(memoryview(frame(Kind.ACK, ACK.pack(*lower))))


@pytest.mark.parametrize(
    "said",
    [
        data_frame(1, 10, 400, b"x"),
        data_frame(2, 0, 400, b"x"),
        data_frame(1, 0, 0, b"x"),
        data_frame(1, 0, 400, b""),
        (frame(Kind.HEARTBEAT, bytes([0, 0, 0, 0, 0, 0, 0, 9] * 2)),),
        (frame(Kind.ACCEPT, Accept(b"m" * 16, 0, False, 9, 100, ()).pack()),),
        (frame(Kind.HELLO, bytes(34)),),
        (frame(Kind.ACK, bytes(16)),),
    ],
)
def test_replica_takes_no_other_bytes_than_the_next(said: Any) -> None:
    wire = _sessions(None, None)
    wire.greet()
    with pytest.raises(ReplicationError):
        wire.replica.receive(memoryview(joined(said)))


def test_replica_checks_where_it_is_to_cut() -> None:
    """A master that lies about it gets no byte cut off."""
    master = master_of(TEXT)
    for start, cut in ((100, True), (300, False), (200, True)):
        session = ReplicaSession(copy_of(master, 200))
        lie = Accept(b"m" * 16, start, cut, 400, 100, master.identity.epochs)
        session.start()
        session.receive(memoryview(frame(Kind.CHALLENGE, bytes(34))))
        session.ask(0)
        with pytest.raises(ReplicationError, match="go on at"):
            session.receive(memoryview(frame(Kind.ACCEPT, lie.pack())))


def test_replica_does_not_follow_a_master_of_an_earlier_term() -> None:
    old = master_of(TEXT)
    replica = copy_of(old, 200)
    replica.identity = Identity(b"m" * 16, with_promotion(old.identity.epochs, begin=0, end=200))
    session = ReplicaSession(replica)
    session.start()
    session.receive(memoryview(frame(Kind.CHALLENGE, bytes(34))))
    session.ask(0)
    lie = Accept(b"m" * 16, 200, False, 400, 100, old.identity.epochs)
    with pytest.raises(ReplicationError, match="master of term 1"):
        session.receive(memoryview(frame(Kind.ACCEPT, lie.pack())))
    assert replica.identity.epochs[-1].term == 2


@given(st.integers(0, 2**32))
def test_no_peer_breaks_an_end(seed: int) -> None:
    """Frames in any order, with bodies that are changed, cut or random; bytes changed on the way."""
    rng = random.Random(seed)
    master, replica = master_of(TEXT), copy_of(master_of(TEXT), 200)
    key = KEY if rng.random() < 0.3 else None
    session: Any = (
        MasterSession(master, key) if rng.random() < 0.5 else ReplicaSession(replica, key)
    )
    session.start()
    bodies = (
        bytes(34),
        Ask(
            b"r" * 16, b"m" * 16, 0, 200, 136, bytes(32), False, 100, master.identity.epochs
        ).pack(),
        Accept(b"m" * 16, 200, False, 512, 100, replica.identity.epochs).pack(),
        rng.randbytes(rng.randrange(80)),
        ACK.pack(200, 200),
    )
    for _ in range(rng.randrange(1, 12)):
        body = bytearray(rng.choice(bodies))
        if body and rng.random() < 0.3:
            body[rng.randrange(len(body))] = rng.randrange(256)
        said = bytearray(frame(rng.choice(list(Kind)), bytes(body)))
        if rng.random() < 0.1:
            said[rng.randrange(len(said))] ^= 1 << rng.randrange(8)
        try:
            session.receive(memoryview(said))
            if session.ready and rng.random() < 0.5 and isinstance(session, ReplicaSession):
                session.ask(0)
        except (ReplicationError, ConnectionError):
            session.replies()
            return
