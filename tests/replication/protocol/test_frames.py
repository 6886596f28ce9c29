"""Frames of rocketstore's protocol, and those of offsets: whole or refused, in pieces of any size."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import ReplicationError
from rocketstore.replication.protocol import offsets as offset_module
from rocketstore.replication.protocol.classic import frame_header, report
from rocketstore.replication.protocol.epochs import EPOCHS_MAX, Epoch
from rocketstore.replication.protocol.frames import (
    DATA,
    DATA_MOST,
    HEADER,
    OFFSETS_MOST,
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
from rocketstore.replication.protocol.link import Offsets
from rocketstore.replication.protocol.offsets import (
    HEAD,
    LAST,
    OF_GROUPS,
    PAIR,
    ROW,
    WHOLE,
    OffsetsReader,
    changed_offsets,
    offset_frames,
)
from rocketstore.replication.protocol.session import MasterSession, ReplicaSession
from rocketstore.values.bounded_json import Limits
from tests.replication.ends import Log, Wire, master_of

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


NAMES = st.text("ab%_-ü\ud800", min_size=1, max_size=6)
ROWS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=5)
GROUPS = st.dictionaries(st.builds("{}@{}".format, NAMES, NAMES), ROWS, max_size=30)


def through(offsets: Offsets, reader: OffsetsReader | None = None) -> tuple[Offsets, int]:
    """What arrives, and of how many frames."""
    reader = reader or OffsetsReader()
    said = b"".join(offset_frames(offsets))
    came = [(one.kind, reader.take(one.body, 1000)) for one in FrameReader().take(memoryview(said))]
    assert {kind for kind, _ in came} == {Kind.OFFSETS}
    assert all(found is None for _, found in came[:-1])
    found = came[-1][1]
    assert found is not None
    return found, len(came)


@given(groups=GROUPS)
def test_all_arrives(groups: dict[str, dict[int, int]]) -> None:
    offsets = Offsets(1000, True, groups)
    assert through(offsets) == (offsets, 1)


def test_large_tables_are_several_frames() -> None:
    groups = {"a@b": dict.fromkeys(range(50_000), 7), **{f"t@{n}": {0: n} for n in range(10_000)}}
    found, count = through(Offsets(1000, True, groups))
    assert found.groups == groups
    assert count > 50_000 * PAIR.size // OFFSETS_MOST


def test_changes_after_the_whole() -> None:
    reader = OffsetsReader()
    through(Offsets(5, True, {}), reader)
    assert through(Offsets(9, False, {"a@b": {}}), reader)[0].groups == {"a@b": {}}


def body(
    rows: bytes = b"", what: int = OF_GROUPS, flags: int = WHOLE | LAST, end: int = 7
) -> bytes:
    return HEAD.pack(what, flags, end) + rows


def row(key: bytes, *pairs: tuple[int, int], count: int | None = None) -> bytes:
    head = ROW.pack(len(key), len(pairs) if count is None else count)
    return head + key + b"".join(PAIR.pack(*pair) for pair in pairs)


@pytest.mark.parametrize(
    "said",
    [
        [b""],
        [body(what=2)],
        [body(flags=4 | WHOLE | LAST)],
        [body(flags=LAST)],  # changes before the whole
        [body(end=1001)],  # of a log that did not come
        [body(flags=WHOLE), body(flags=LAST)],
        [body(flags=WHOLE, end=5), body(end=7)],
        [body(b"\0")],
        [body(row(b"a@b", (0, 1), count=2))],
        [body(row(b"a@b", count=2**32 - 1))],
        [body(row(b"ab", (0, 1)))],
        [body(row(b"a@b@c", (0, 1)))],
        [body(row(b"\xff@b", (0, 1)))],
        [body(row(b"", (0, 1)))],
        [body(row(b"a@b", (2**31, 1)))],
        [body(row(b"a@b", (0, 2**63)))],
    ],
)
def test_what_no_master_says(said: list[bytes]) -> None:
    reader = OffsetsReader()
    with pytest.raises((ValueError, struct.error)):
        for one in said:
            reader.take(memoryview(one), 1000)


@pytest.mark.parametrize("most", [Limits(100_000, 1 << 40), Limits(1 << 40, 10_000)])
def test_a_table_without_an_end_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, most: Limits
) -> None:
    """The log goes on without such a table; changes without end are refused."""
    monkeypatch.setattr(offset_module, "TABLE", most)
    reader = OffsetsReader()
    rows = b"".join(row(b"a%d@b" % n, (0, 1)) for n in range(2500))
    for _ in range(9):
        assert reader.take(memoryview(body(rows, flags=WHOLE)), 1000) is None
        assert len(reader._groups) <= 2500
    assert reader.take(memoryview(body()), 1000) == Offsets(7, True, None)
    with pytest.raises(ValueError, match="more changes than a copy waits for"):
        reader.take(memoryview(body(rows, flags=0)), 1000)


@given(said=st.binary(max_size=80))
def test_any_bytes_are_offsets_or_refused(said: bytes) -> None:
    reader = OffsetsReader()
    try:
        found = reader.take(memoryview(said), 1000)
    except (ValueError, struct.error):
        return
    assert found is None or found.end <= 1000


def _wire() -> Wire:
    wire = Wire(MasterSession(master_of(b"x" * 100)), ReplicaSession(Log()))
    wire.greet()
    return wire


def test_offsets_come_in_turn() -> None:
    wire = _wire()
    offsets = Offsets(0, True, {"a@b": {0: 1}})
    wire.to_replica(list(wire.master.offsets(offsets)))
    assert wire.events[-1] == offsets


@pytest.mark.parametrize("to_master", [True, False])
def test_offsets_out_of_turn(to_master: bool) -> None:
    said = frame(Kind.OFFSETS, body(end=0))
    wire: Any = _wire() if to_master else Wire(MasterSession(master_of(b"")), ReplicaSession(Log()))
    with pytest.raises(ReplicationError, match="out of its turn"):
        (wire.to_master if to_master else wire.to_replica)([said])


def test_large_frames_are_refused_by_their_header() -> None:
    said = frame(Kind.OFFSETS, bytes(OFFSETS_MOST + 1))
    with pytest.raises(ReplicationError, match="OFFSETS frame of"):
        list(FrameReader().take(memoryview(said[:20])))


def test_changes_of_tables() -> None:
    same: dict[str, object] = {"0": 1}
    before = {"t@same": same, "t@a": {"0": 1}, "t@gone": {"0": 1}, "nonsense": {"0": 1}}
    after = {"t@same": same, "t@a": {"0": 2, "x": 3}, "t@new": {"5": 6}, "t@empty": {}}
    assert changed_offsets(before, after) == {"t@a": {0: 2}, "t@new": {5: 6}, "t@gone": {}}
    assert changed_offsets(None, after) == {"t@same": {0: 1}, "t@a": {0: 2}, "t@new": {5: 6}}
