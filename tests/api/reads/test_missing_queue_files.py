"""Files of a queue that are gone while the log still has their messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.consumer import Consumer
from rocketstore.errors import OffsetOutOfRangeError, ReadFailedError
from rocketstore.log.follow.follower import Follower
from rocketstore.log.read.fetch_result import OFFSET_FOUND_NULL, Fetch
from rocketstore.log.read.reader import Reader
from rocketstore.tools.rebuild import rebuild
from tests.support.consumer_setting import Setting, offsets_of
from tests.support.live_writer import LiveWriter
from tests.support.made_store import UNIT_SIZE
from tests.support.small_store import open_small, put_many


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveWriter]:
    writer = LiveWriter(tmp_path / "store")
    yield writer
    writer.close()


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_messages_without_a_queue_file_are_not_passed_over(tmp_path: Path, mode: str) -> None:
    """As the table of statuses says. They are in the log, and a rebuild finds them."""
    with open_small(tmp_path) as store:
        put_many(store.writer("orders"), 40, 1)
    (tmp_path / "consumequeue" / "orders" / "0" / f"{200:020d}").unlink()
    with open_small(tmp_path, mode) as store:
        consumer = store.consumer("orders")
        assert offsets_of(next(consumer) for _ in range(10)) == list(range(10))
        for _ in range(2):
            with pytest.raises(ReadFailedError, match="no units of the offsets 10 to 19") as caught:
                next(consumer)
        assert "rebuild" in caught.value.__notes__[0]
        assert consumer.statuses == {0: "OFFSET_FOUND_NULL"}
        consumer.seek(20, queue_id=0)
        assert offsets_of(consumer) == list(range(20, 40))
    rebuild(tmp_path)
    with open_small(tmp_path) as store:
        assert offsets_of(store.consumer("orders")) == list(range(40))


def test_a_first_file_that_was_cut_beside_a_live_writer(live: LiveWriter) -> None:
    """It hides no other, and what it had is not passed over, until the log has removed it, too."""
    records = live.fill(60)
    first = live.layout.queue_directory("orders", 0) / f"{0:020d}"
    os.truncate(first, 5 * UNIT_SIZE)
    follower = Follower(live.layout, verify=3)
    try:
        reader = Reader(follower)
        assert reader.bounds("orders", 0) == (0, 60)
        consumer = Consumer(reader, "orders", queue_id=0, reset="earliest")
        with pytest.raises(ReadFailedError, match="no units of the offsets 0 to 9"):
            consumer.poll(10)
        consumer.seek(10, queue_id=0)
        assert offsets_of(consumer) == list(range(10, 60))
        live.move(live.made.end, minimum=records[9].physical_offset)
        assert reader.bounds("orders", 0) == (0, 60)
        live.move(live.made.end, minimum=records[10].physical_offset)
        assert reader.bounds("orders", 0) == (10, 60)
    finally:
        follower.close()


def test_a_first_file_that_was_cut_does_not_tell_the_size(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        put_many(store.writer("orders"), 40, 1)
    os.truncate(tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}", 5 * UNIT_SIZE)
    with open_small(tmp_path) as store:  # which gives the size, and it is the one of the files
        assert store.config.consume_queue_file_size_bytes == 200


def test_a_queue_that_was_made_anew_while_it_was_read(setting: Setting, tmp_path: Path) -> None:
    """Between two looks its directory goes and comes back: what was not there for a moment is found."""
    setting.made.fill(40)
    consumer = setting.consumer(queue_id=0)
    assert offsets_of(consumer.poll(10)) == list(range(10))
    consumer.seek(10, queue_id=0)  # looks again, where it would go on with what it has mapped
    directory = setting.layout.queue_directory("orders", 0)
    directory.rename(tmp_path / "away")
    with pytest.raises(ReadFailedError, match="no units of the offsets"):
        consumer.poll(10)
    (tmp_path / "away").rename(directory)
    assert offsets_of(consumer) == list(range(10, 40))


def test_a_file_that_was_trimmed_between_two_looks(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had is out of range then, as it is for any consumer that comes late; nothing is missing."""
    setting.made.fill(40)
    strict = setting.consumer(queue_id=0)
    floating = setting.consumer(queue_id=0, reset="earliest")
    for consumer in (strict, floating):
        assert offsets_of(consumer.poll(10)) == list(range(10))
        consumer.seek(10, queue_id=0)
    gone = Fetch([], 20, OFFSET_FOUND_NULL)
    answers = [gone]
    fetch = Reader.fetch
    monkeypatch.setattr(Reader, "fetch", lambda *asked: answers.pop() if answers else fetch(*asked))
    monkeypatch.setattr(Reader, "bounds", lambda *_: (20, 40))
    with pytest.raises(OffsetOutOfRangeError, match="offset 10 is outside 20 … 40") as caught:
        strict.poll(10)
    assert caught.value.status == "OFFSET_TOO_SMALL"
    answers.append(gone)
    assert offsets_of(floating.poll(10)) == list(range(20, 30))
