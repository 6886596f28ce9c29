"""The dispatcher's worker beside a busy writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store, tools
from rocketstore._native.dispatch.dispatch_loop import SHORT_RUN_BYTES
from rocketstore.engine import catch_up
from rocketstore.log.dispatch.dispatcher import RUN_BYTES
from rocketstore.tools._rebuild import parts as rebuild_parts
from tests.support.made_store import MadeStore
from tests.support.small_store import SEGMENT, SMALL, dispatched, engine_of, everything, no_dispatch

COUNT = 5_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path, durability="os") as store:
        yield store


class Runs:
    """The dispatcher's loop, which notes how much each run of Python may take."""

    def __init__(self, dispatcher: Any) -> None:
        self.bytes: list[int] = []
        self._loop = dispatcher._loop
        dispatcher._loop = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def run(self, segment: Any, start: int, end: int) -> Any:
        self.bytes.append(end - start)
        return self._loop.run(segment, start, end)


@pytest.fixture
def made(root: Path) -> MadeStore:
    """Without messages."""
    return MadeStore(root)


@pytest.mark.parametrize("body", [b"x" * 100, b"x" * 2 * SHORT_RUN_BYTES], ids=["small", "large"])
def test_what_python_mends_it_does_not_go_on_with(store: Store, body: bytes) -> None:
    """Each of its runs waits for the GIL, 5 ms beside a thread that puts; the native service needs none."""
    store.writer("first").put(b"x")
    dispatched(store)
    runs = Runs(engine_of(store)._dispatcher)
    with no_dispatch(store):
        count = COUNT if len(body) <= 100 else 200
        for topic in ("orders", "prices"):
            store.writer(topic).put_batch([body] * count)
    assert len(everything(dispatched(store))) == count
    assert len(runs.bytes) < 20
    assert max(runs.bytes) <= (SHORT_RUN_BYTES if len(body) <= 100 else RUN_BYTES)


@pytest.mark.parametrize("into", [1, 7, 500])
@pytest.mark.parametrize("where", [catch_up, rebuild_parts])
def test_a_step_that_ends_within_a_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, into: int
) -> None:
    """The next one begins behind it: there is no record within."""
    made = MadeStore(tmp_path / "made", segment_size=SEGMENT)
    records = [made.put(body=bytes(1500)) for _ in range(50)]
    last = [record for record in records if record.physical_offset < SEGMENT][-1]
    blank = last.physical_offset + last.size
    assert SEGMENT - blank > into
    monkeypatch.setattr(where, "STEP_BYTES", blank + into)
    with rocketstore.open(made.root, **SMALL) as store:
        assert len(everything(store)) == 50
    tools.rebuild(made.root, **SMALL)
    with rocketstore.open(made.root, **SMALL) as store:
        assert len(everything(store)) == 50


@pytest.mark.parametrize("again", [0, 2, 5])
def test_a_queue_offset_that_comes_twice_hides_no_other_message(
    again: int, caplog: pytest.LogCaptureFixture, made: MadeStore
) -> None:
    """As after a writer that lost count, or a changed bit in a record without a checksum: the first one stays,
    as in RocketMQ. All of it is one run."""
    for number in range(6):
        made.put(body=b"%d" % number)
    twice = made.put(body=b"again", queue_offset=again, properties={"KEYS": "twice"})
    made.put(body=b"6", queue_offset=6)
    with rocketstore.open(made.root, **SMALL) as store:
        found = everything(store)
        assert [message.body for message in store.query("orders", "twice")] == [b"again"]
    assert [message.body for message in found] == [b"%d" % number for number in range(7)]
    assert f"and {twice.physical_offset} both have queue offset {again}" in caplog.text


def test_a_queue_offset_of_a_further_queue_stays(made: MadeStore) -> None:
    """A record that names the queue among its further ones comes first, too."""
    for number in (0, 1):
        further = {"INNER_MULTI_DISPATCH": "%LMQ%q", "INNER_MULTI_QUEUE_OFFSET": str(number)}
        made.put("orders", body=b"%d" % number, properties=further)
    made.put("%LMQ%q", body=b"again", queue_offset=1)
    with rocketstore.open(made.root, **SMALL) as store:
        assert [message.body for message in store.consumer("%LMQ%q")] == [b"0", b"1"]


def test_a_queue_offset_too_far_ahead_hides_none_behind_it(made: MadeStore) -> None:
    """The record that has it stands out of order: where the right one comes, that takes its place."""
    for number in (0, 1, 2):
        made.put(body=b"%d" % number)
    made.put(body=b"changed", queue_offset=7)  # was 3
    for number in range(4, 10):
        made.put(body=b"%d" % number, queue_offset=number)
    with rocketstore.open(made.root, **SMALL) as store:
        bodies = [message.body for message in everything(store)]
    assert bodies == [b"%d" % number for number in range(10) if number != 3]


def test_what_comes_twice_stays_the_same_when_it_is_dispatched_again(made: MadeStore) -> None:
    """By the next open after a crash, from a unit of an older version on, and by a rebuild."""
    first = [made.put(body=b"%d" % number) for number in range(40)]
    second = [made.put(body=b"again", queue_offset=number) for number in range(30)]
    made.put(body=b"40", queue_offset=40)
    rocketstore.open(made.root, **SMALL).close()
    queue = made.root / "consumequeue/orders/0"

    def units() -> bytes:
        return b"".join(file.read_bytes() for file in sorted(queue.iterdir()))

    before = units()
    assert before[:8] == bytes(8) and int.from_bytes(before[20:28]) == first[1].physical_offset
    for leftover in (second[7].physical_offset, 1):  # the later of two, and what is of no record
        unit = leftover.to_bytes(8, "big") + before[148:160]
        made.write_unit("orders", 0, 7, unit)
        (made.root / "rocketstore/checkpoint").unlink()
        rocketstore.open(made.root, **SMALL).close()
        assert units() == before
    assert tools.rebuild(made.root, workers=2, **SMALL).odd
    assert units() == before


def test_verify_names_the_record_that_gives_a_queue_offset_again(made: MadeStore) -> None:
    """And asks for no unit of it."""
    made.fill(6)
    twice = made.put(queue_offset=2)
    made.put(queue_offset=6)
    rocketstore.open(made.root, **SMALL).close()
    (fault,) = tools.verify(made.root).faults
    assert (fault.position, fault.reason) == (
        twice.physical_offset,
        "orders/0: queue offset 2 follows 5",
    )
