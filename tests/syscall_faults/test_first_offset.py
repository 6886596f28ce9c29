"""The first offset of a queue after an open, where not all records of the log are in their queues (D-17)."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketstore import BackpressureError
from rocketstore.log.queues.queue_preallocator import NextFiles
from tests.process.other_process import TOPIC, numbers, open_small
from tests.support.small_store import store_group_offset

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_records_without_units_keep_their_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk keeps five records from their queue: no put takes their offsets, and once there is room
    the next one stands behind them."""
    with open_small(tmp_path) as store:
        for n in range(5):
            store.writer(TOPIC, queue_id=0).put(b"%d:" % n)
    shutil.rmtree(tmp_path / "consumequeue" / TOPIC)
    with monkeypatch.context() as patch:
        patch.setattr(NextFiles, "take", _refuse)
        with open_small(tmp_path) as store:
            end = store.end_offset
            with pytest.raises(BackpressureError, match=f"{TOPIC}/0: .*stuck at 0: .*No space"):
                store.writer(TOPIC, queue_id=0).put(b"5:")
            assert store.end_offset == end
            patch.undo()
            assert store.writer(TOPIC, queue_id=0).put(b"5:").queue_offset == 5
            assert numbers(store) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("stored", [5_000_000, 1 << 60, (1 << 63) - 1])
def test_an_offset_that_cannot_be_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stored: int
) -> None:
    """Messages behind a gap that large would be in no queue: acknowledged, and never read."""
    with open_small(tmp_path) as store:
        store.writer(TOPIC, queue_id=0).put(b"0:")
    with open_small(tmp_path) as store, caplog.at_level(logging.WARNING):
        store_group_offset(store, TOPIC, stored)
        assert store.writer(TOPIC, queue_id=0).put(b"1:").queue_offset == 1
        assert numbers(store) == [0, 1]
    assert f"{stored}, is not believed" in caplog.text


@pytest.mark.parametrize(("stored", "first"), [(5_000_000, 5_000_000), ((1 << 63) - 1, 0)])
def test_a_queue_that_is_not_there_begins_behind_its_groups(
    tmp_path: Path, stored: int, first: int
) -> None:
    """Where all of it was lost or trimmed, groups have their offsets still (K-56)."""
    with open_small(tmp_path) as store:
        store_group_offset(store, TOPIC, stored)
        assert store.writer(TOPIC, queue_id=0).put(b"0:").queue_offset == first
        assert numbers(store) == [0]


def _refuse(*_: Any, **__: Any) -> None:
    raise FULL
