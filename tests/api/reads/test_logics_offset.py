"""Byte 40 of RocketMQ's checkpoint: where its recovery begins since 5.5 (format.md 8)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketstore import Store
from tests.support.made_store import MadeStore
from tests.support.small_store import dispatched, open_small, parts


def offset_in(root: Path) -> int:
    return int(struct.unpack_from(">q", (root / "checkpoint").read_bytes(), 40)[0])


def claim(root: Path, offset: int) -> None:
    with (root / "checkpoint").open("r+b") as file:
        file.seek(40)
        file.write(struct.pack(">q", offset))


def put(store: Store, count: int = 10) -> int:
    """Start of the last record."""
    writer = store.writer("orders")
    return [writer.put(b"x" * 90).physical_offset for _ in range(count)][-1]


def test_it_is_the_last_record_whose_units_are_forced(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        first = put(store)
        dispatched(store)
        parts(store).checkpointer.save(derived=True)
        assert offset_in(tmp_path) == first
        second = put(store)
        parts(store).checkpointer.save(derived=False)
        assert offset_in(tmp_path) in (first, second)  # each second it is saved, too
    assert offset_in(tmp_path) == second
    with open_small(tmp_path):  # RocketMQ 5.5 with accelerated recovery does not start without it
        assert offset_in(tmp_path) == second


@pytest.mark.parametrize("claimed", [1 << 40, -5, (1 << 63) - 1])
@pytest.mark.parametrize("clean", [True, False])
def test_what_lies_beyond_the_log_is_not_believed(
    claimed: int, clean: bool, tmp_path: Path
) -> None:
    """Another program's log that was cut; before a put could give its place to another record."""
    made = MadeStore(tmp_path / "made")
    made.fill(40)
    if not clean:
        (made.root / "abort").touch()
    (made.root / "checkpoint").write_bytes(bytes(4096))
    claim(made.root, claimed)
    with open_small(made.root) as store:
        last = store.recovery.last_record_start
        assert offset_in(made.root) in (0, last)
    assert offset_in(made.root) == last == made.records[-1].physical_offset


def test_after_a_cut_it_is_within_the_log(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        last = put(store, 30)
    (tmp_path / "abort").touch()
    newest = max((tmp_path / "commitlog").iterdir())
    with newest.open("r+b") as file:
        file.write(b"\xff" * 64)
    assert offset_in(tmp_path) == last
    with open_small(tmp_path, force=True) as store:
        assert offset_in(tmp_path) <= max(0, store.recovery.last_record_start)
        put(store, 1)


def test_a_store_without_records_claims_none(tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    assert offset_in(tmp_path) == 0
