"""Frames of offsets: what they say, and what no master says."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import ReplicationError
from rocketstore.replication.protocol import offsets as offset_module
from rocketstore.replication.protocol.frames import OFFSETS_MOST, FrameReader, Kind, frame
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
