"""Frames of rocketstore's protocol: whole or refused, in pieces of any size."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import ReplicationError
from rocketstore.replication.protocol.classic import frame_header, report
from rocketstore.replication.protocol.epochs import EPOCHS_MAX, Epoch
from rocketstore.replication.protocol.frames import (
    DATA,
    DATA_MOST,
    HEADER,
    TAIL_MOST,
    Accept,
    Ask,
    Frame,
    FrameReader,
    Kind,
    data_frame,
    frame,
    unpack_epochs,
)

EPOCHS = (Epoch(1, 0, 0, b"a" * 8), Epoch(2, 0, 70, b"b" * 8))


def _taken(data: bytes, sizes: list[int] | None = None) -> list[tuple[Kind, int, bytes]]:
    reader, found = FrameReader(), []
    rest = memoryview(data)
    for size in [*(sizes or []), len(data)]:
        found += [(one.kind, one.flags, bytes(one.body)) for one in reader.take(rest[:size])]
        rest = rest[size:]
    return found


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.integers(0, 40), max_size=90))
def test_frames_come_back_in_pieces(bodies: list[bytes], sizes: list[int]) -> None:
    sent = b"".join(frame(Kind.HELLO, body) for body in bodies)
    assert _taken(sent, sizes) == [(Kind.HELLO, 0, body) for body in bodies]


def test_frames_in_pieces_do_not_overwrite_each_other() -> None:
    """One that came in pieces is valid while the next one begins."""
    sent = memoryview(frame(Kind.HELLO, b"x" * 100) + frame(Kind.HELLO, b"y" * 100))
    reader = FrameReader()
    assert list(reader.take(sent[:70])) == []
    first: list[Frame] = list(reader.take(sent[70:200]))
    assert [bytes(one.body) for one in first] == [b"x" * 100]
    assert [bytes(one.body) for one in reader.take(sent[200:])] == [b"y" * 100]


def test_data_is_sent_as_it_is() -> None:
    data = memoryview(b"0123456789")
    head, sent = data_frame(3, 700, 900, data)
    assert sent is data
    [(kind, _, body)] = _taken(bytes(head) + bytes(sent))
    assert kind is Kind.DATA
    assert DATA.unpack_from(body) == (3, 700, 900, 10)
    assert body[DATA.size :] == b"0123456789"


def test_each_changed_bit_is_noticed(rng: random.Random) -> None:
    sent = bytearray(frame(Kind.ACK, b"0123456789abcdef"))
    for at in range(len(sent)):
        changed = bytearray(sent)
        changed[at] ^= 1 << rng.randrange(8)
        with pytest.raises((ReplicationError, ConnectionError)):
            _taken(bytes(changed))


@pytest.mark.parametrize("said", [report(0), report(2**62), frame_header(4096, 10)])
def test_peer_of_the_other_protocol_is_told_by_its_first_byte(said: bytes) -> None:
    with pytest.raises(ReplicationError, match="protocol='rocketmq'"):
        _taken(said[:1])


def test_our_first_byte_is_no_offset_of_a_rocketmq() -> None:
    assert int.from_bytes(frame(Kind.HELLO)[:8], "big", signed=True) < 0


@pytest.mark.parametrize("first", [b"\x80", b"\xd2x", b"\xff" * 30])
def test_peer_of_no_protocol(first: bytes) -> None:
    with pytest.raises(ReplicationError, match="TLS"):
        _taken(first)


def test_sizes_have_bounds_before_a_byte_of_the_body() -> None:
    for kind, size in ((Kind.HELLO, 32 << 10), (Kind.DATA, DATA_MOST + DATA.size)):
        whole = frame(kind, bytes(size))
        assert len(_taken(whole)) == 1
        with pytest.raises(ReplicationError, match="frame of"):
            _taken(frame(kind, bytes(size + 1))[: HEADER.size])


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for said in (data, b"\xd2srp" + data, frame(Kind.HELLO)[:8] + data):
        try:
            _taken(said)
        except (ReplicationError, ConnectionError):
            continue


def test_ask_and_accept_come_back() -> None:
    ask = Ask(b"r" * 16, b"i" * 16, 10, 90, 60, b"d" * 32, True, 100, EPOCHS)
    for one in (ask, ask._replace(only_asks=True)):
        assert Ask.unpack(memoryview(one.pack())) == one
    accept = Accept(b"i" * 16, 80, False, 90, 100, EPOCHS)
    assert Accept.unpack(memoryview(accept.pack())) == accept


@given(st.binary(max_size=200))
def test_no_bytes_break_a_body(body: bytes) -> None:
    for unpack in (Ask.unpack, Accept.unpack, unpack_epochs):
        try:
            unpack(memoryview(body))
        except ValueError:
            continue


def test_whole_history_fits_into_a_frame() -> None:
    epochs = tuple(Epoch(1, run, run, b"i" * 8) for run in range(EPOCHS_MAX))
    accept = Accept(b"i" * 16, 0, False, 9, 100, epochs)
    assert len(_taken(frame(Kind.ACCEPT, accept.pack()))) == 1


def test_an_ask_is_believed_within_its_bounds() -> None:
    """A digest of the whole log would have other replicas wait, and who knows no store no term."""
    history = (Epoch(9, 0, 0, b"e" * 8),)
    sound = Ask(
        b"r" * 16, b"s" * 16, 0, 1 << 40, (1 << 40) - TAIL_MOST, bytes(32), False, 100, history
    )
    assert Ask.unpack(memoryview(sound.pack())) == sound
    for wrong in (sound._replace(tail=sound.tail - 1), sound._replace(store_id=bytes(16))):
        with pytest.raises(ValueError, match="digest of|history of no store"):
            Ask.unpack(memoryview(wrong.pack()))
