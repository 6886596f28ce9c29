"""What retention leaves of the log where messages wait for their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from rocketstore.testing import ManualClock
from tests.services.delay_tools import bodies, idle
from tests.support.retention_tools import ALL, fill
from tests.support.small_store import SEGMENT, open_small
from tests.support.waiting import wait_until


def reasons(store: Store) -> set[str]:
    return {reason for segment in store.retention.plan(ALL).segments for reason in segment.reasons}


@pytest.mark.quick
@pytest.mark.parametrize("deliver", [True, False])
def test_a_message_that_waits_holds_the_log(
    tmp_path: Path, clock: ManualClock, deliver: bool
) -> None:
    """Also one of a later level, which was put before; and where nothing delivers."""
    options: dict[str, Any] = {"clock": clock, "deliver_delayed": deliver}
    with fill(open_small(tmp_path, **options)) as store:
        waits = store.writer("late").put(b"late", delay_level=5)
        fill(store)
        store.writer("soon").put(b"soon", delay_level=1)
        fill(store)
        store.flush()
        assert f"needed by delayed messages (from {waits.physical_offset})" in reasons(store)
        store.retention.run(ALL)
        assert store.begin_offset == waits.physical_offset // SEGMENT * SEGMENT
        assert len(store.delayed) == 2
    with open_small(tmp_path, "r+", clock=clock) as store:  # before the thread has looked
        store.retention.run(ALL)
        assert store.begin_offset == waits.physical_offset // SEGMENT * SEGMENT
        clock.advance(60)
        wait_until(lambda: bodies(store, "late") == [b"late"])
        wait_until(lambda: bodies(store, "soon") == [b"soon"])
        idle(store)
        fill(store)
        store.flush()
        store.retention.run(ALL)
        assert store.begin_offset == store.end_offset // SEGMENT * SEGMENT


def test_what_was_delivered_holds_nothing(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders")
        first = writer.put(b"first", delay_level=1)
        fill(store)
        second = writer.put(b"second", delay_level=2)
        fill(store)
        store.flush()
        for seconds, waits in ((0, first), (1, second)):
            clock.advance(seconds)
            idle(store)
            at = f"needed by delayed messages (from {waits.physical_offset})"
            assert [reason for reason in reasons(store) if "delayed" in reason] == [at]
        clock.advance(4)
        idle(store)
        assert not any("delayed" in reason for reason in reasons(store))


def test_what_was_left_over_holds_the_log(tmp_path: Path, clock: ManualClock) -> None:
    """It is tried again, so it must be there."""
    with open_small(tmp_path, clock=clock) as store:
        place = {"DELAY": "1", "REAL_TOPIC": "a b", "REAL_QID": "0"}  # no topic has such a name
        wrong = store.put_message("SCHEDULE_TOPIC_XXXX", b"x", properties=place)
        fill(store)
        store.writer("right").put(b"right", delay_level=1)
        fill(store)
        store.flush()
        clock.advance(1)
        wait_until(lambda: bodies(store, "right") == [b"right"])
        assert [(level, at) for level, at, _ in store.delayed.undelivered] == [(1, 0)]
        assert f"needed by delayed messages (from {wrong.physical_offset})" in reasons(store)
