"""The dispatcher's worker beside a busy writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from rocketstore._native.dispatcher import SHORT_RUN_BYTES
from rocketstore.log.dispatcher import RUN_BYTES
from tests.made_store import MadeStore
from tests.small_store import SMALL, dispatched, everything, no_dispatch

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


@pytest.mark.parametrize("body", [b"x" * 100, b"x" * 2 * SHORT_RUN_BYTES], ids=["small", "large"])
def test_what_python_mends_it_does_not_go_on_with(store: Store, body: bytes) -> None:
    """Each of its runs waits for the GIL, 5 ms beside a thread that puts; the native service needs none."""
    store.writer("first").put(b"x")
    dispatched(store)
    runs = Runs(store._engine._dispatcher)
    with no_dispatch(store):
        count = COUNT if len(body) <= 100 else 200
        for topic in ("orders", "prices"):
            store.writer(topic).put_batch([body] * count)
    assert len(everything(dispatched(store))) == count
    assert len(runs.bytes) < 20
    assert max(runs.bytes) <= (SHORT_RUN_BYTES if len(body) <= 100 else RUN_BYTES)


@pytest.mark.parametrize("again", [0, 2, 5])
def test_a_queue_offset_that_comes_twice_hides_no_other_message(tmp_path: Path, again: int) -> None:
    """As after a writer that lost count, or a changed bit in a record without a checksum. All of it is one run."""
    made = MadeStore(tmp_path / "made")
    for number in range(6):
        made.put(body=b"%d" % number)
    made.put(body=b"again", queue_offset=again)
    made.put(body=b"6", queue_offset=6)
    with rocketstore.open(made.root, **SMALL) as store:
        found = everything(store)
    assert [message.body for message in found] == [
        b"again" if number == again else b"%d" % number for number in range(7)
    ]
