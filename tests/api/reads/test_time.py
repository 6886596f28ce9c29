"""offset_at: from a time to a queue offset."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from rocketstore import QueueNotFoundError, Store
from rocketstore.log.layout import store_json as store_state
from rocketstore.store import Mode
from tests.support.made_store import MadeStore
from tests.support.small_store import SEGMENT, open_small, segments

FIRST = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)


def after(ms: int) -> datetime.datetime:
    return FIRST + datetime.timedelta(milliseconds=ms)


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """35 messages, 10 ms apart, over several queue files and segments."""
    made = MadeStore(tmp_path / "store")
    made.fill(35)
    return made


@pytest.mark.parametrize(
    ("ms", "lower", "upper"),
    [(-1, 0, -1), (0, 0, 0), (1, 1, 0), (95, 10, 9), (170, 17, 17), (340, 34, 34), (341, 35, 34)],
)
def test_boundaries(made: MadeStore, ms: int, lower: int, upper: int) -> None:
    """First stored at or after; last stored at or before."""
    with open_small(made.root, "r") as store:
        assert store.offset_at("orders", 0, after(ms)) == lower
        assert store.offset_at("orders", 0, after(ms), "upper") == upper


def test_ties(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    for _ in range(25):
        made.put(store_ms=1_700_000_000_000)
    made.dispatch()
    with open_small(made.root, "r") as store:
        assert store.offset_at("orders", 0, FIRST) == 0
        assert store.offset_at("orders", 0, FIRST, "upper") == 24


def test_queue_that_is_not_there(made: MadeStore) -> None:
    with open_small(made.root, "r") as store:
        with pytest.raises(QueueNotFoundError, match="no queue 5"):
            store.offset_at("orders", 5, FIRST)
        with pytest.raises(ValueError):  # noqa: PT011
            store.offset_at("orders", 0, FIRST.replace(tzinfo=None))


def test_a_live_store(store: Store) -> None:
    results = [store.writer("orders").put(b"x") for _ in range(5)]
    when = datetime.datetime.fromtimestamp(results[-1].store_timestamp_ms / 1000, datetime.UTC)
    hour = datetime.timedelta(hours=1)
    assert store.offset_at("orders", 0, when - hour) == 0
    assert store.offset_at("orders", 0, when + hour) == 5


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_time_that_is_damaged_hides_no_message(tmp_path: Path, mode: Mode) -> None:
    """A flipped bit makes the message in the middle older than all: what is younger was passed over."""
    with open_small(tmp_path) as store:
        results = [store.writer("orders").put(b"%02d" % n * 300) for n in range(40)]
        when = results[0].store_timestamp_ms
    segment, position = divmod(results[20].physical_offset, SEGMENT)
    with segments(tmp_path)[segment].open("r+b") as file:
        file.seek(position + 56 + 2)  # of the store time
        byte = file.read(1)[0]
        file.seek(position + 56 + 2)
        file.write(bytes([byte & ~1]))
    with open_small(tmp_path, mode) as store:
        assert store.offset_at("orders", 0, when) == 0
        with store.consumer("orders", queue_id=0) as consumer:
            consumer.seek(when=store.get(results[0].physical_offset).store_time)
            assert consumer.positions == {0: 0}


def test_no_file_is_read_for_it(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Where times fall is known since the open."""
    result = store.writer("orders").put(b"x")
    monkeypatch.setattr(store_state, "read_json", lambda *_: pytest.fail("read"))
    assert store.offset_at("orders", 0, result.store_timestamp_ms) == 0
