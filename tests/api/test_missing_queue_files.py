"""Files of a queue that are gone while the log still has their messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.errors import ReadFailedError
from rocketstore.tools.rebuild import rebuild
from tests.consumer_setting import Setting, offsets_of
from tests.small_store import open_small, put_many


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
            with pytest.raises(
                ReadFailedError, match="no queue file for the offsets 10 to 19"
            ) as caught:
                next(consumer)
        assert "rebuild" in caught.value.__notes__[0]
        assert consumer.statuses == {0: "OFFSET_FOUND_NULL"}
        consumer.seek(20, queue_id=0)
        assert offsets_of(consumer) == list(range(20, 40))
    rebuild(tmp_path)
    with open_small(tmp_path) as store:
        assert offsets_of(store.consumer("orders")) == list(range(40))


def test_a_queue_that_was_made_anew_while_it_was_read(setting: Setting, tmp_path: Path) -> None:
    """Between two looks its directory goes and comes back: what was not there for a moment is found."""
    setting.made.fill(40)
    consumer = setting.consumer(queue_id=0)
    assert offsets_of(consumer.poll(10)) == list(range(10))
    directory = setting.layout.queue_directory("orders", 0)
    directory.rename(tmp_path / "away")
    with pytest.raises(ReadFailedError, match="no queue file"):
        consumer.poll(10)
    (tmp_path / "away").rename(directory)
    assert offsets_of(consumer) == list(range(10, 40))
