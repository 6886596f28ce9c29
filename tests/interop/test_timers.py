"""Messages with a time of their own that RocketMQ has stored are delivered, and it serves ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Retention
from rocketstore.testing import ManualClock
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.views import Tally, of_oracle, of_ours
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

TOPIC = "rmq_sys_wheel_timer"
NOW_MS = 1_800_000_000_000
COUNT = 60


def form_of_a_broker(n: int) -> dict[str, Any]:
    """A broker of RocketMQ 5 hands its store this form; the time is rounded down to a second."""
    due_ms = NOW_MS + 700 * n
    properties = (
        *(("KEYS", f"k{n}"), ("TAGS", f"t{n % 5}"), ("UNIQ_KEY", f"U{n:04}")),
        *(("TIMER_DELIVER_MS", f"{due_ms}"), ("TIMER_OUT_MS", f"{due_ms // 1000 * 1000}")),
        *(("REAL_TOPIC", "Orders"), ("REAL_QID", f"{n % 4}")),
    )
    return Sent(topic=TOPIC, queue_id=0, body=b"%d" % n, properties=properties).for_oracle()


def taken_back(n: int, unique_id: str) -> dict[str, Any]:
    """As a broker stores that a client takes a message back."""
    due_ms = NOW_MS + 700 * n
    properties = (
        ("TIMER_DEL_UNIQKEY", unique_id),
        *(("TIMER_DELIVER_MS", f"{due_ms}"), ("TIMER_OUT_MS", f"{due_ms // 1000 * 1000}")),
        *(("REAL_TOPIC", "Orders"), ("REAL_QID", f"{n % 4}")),
    )
    return Sent(topic=TOPIC, queue_id=0, body=b"x", properties=properties).for_oracle()


def test_we_deliver_what_they_stored(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with oracle.open(path, SMALL) as theirs:
        for n in range(COUNT):
            assert theirs.put([form_of_a_broker(n)])[0]["status"] == "PUT_OK"
        theirs.put([taken_back(7, "U0007")])
        theirs.put([taken_back(8, "Orders+U0008")])
        theirs.settle()
    clock = ManualClock(NOW_MS + 700 * (COUNT // 2))
    left = [n for n in range(COUNT) if n not in (7, 8)]
    with rocketstore.open(path, config=config_of(SMALL, deliver_delayed=True), clock=clock) as ours:
        wait_until(lambda: len(ours.delayed) < COUNT // 2)
        clock.advance(60)
        wait_until(lambda: len(ours.delayed) == 0)
        ours.flush()
        found = {int(message.body): message for message in ours.consumer("Orders")}
        assert sorted(found) == left
        for n, message in found.items():
            assert message.queue_id == n % 4
            assert message.properties == {
                "KEYS": f"k{n}",
                "TAGS": f"t{n % 5}",
                "UNIQ_KEY": f"U{n:04}",
                "__DELAYED": f"0:{n}",
            }
        view = of_ours(ours)
    with oracle.open(path, SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), view)


def test_they_serve_what_we_stored(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """Messages that wait, markers, and messages that were put again, for another time or since
    retention removes the log before them, are records like others."""
    path = tmp_path / "store"
    config = config_of(SMALL, deliver_delayed=True)
    clock = ManualClock(NOW_MS)
    with rocketstore.open(path, config=config, clock=clock) as ours:
        for n in range(COUNT):
            ours.writer("Orders", queue_id=n % 4).put(b"%d" % n, deliver_at=NOW_MS + 700 * n)
        waiting = list(ours.delayed)
        assert ours.delayed.cancel(waiting[-1])
        assert ours.delayed.reschedule(waiting[-2], NOW_MS + 1)
        clock.advance(10)
        wait_until(lambda: ours.delayed.count(end=NOW_MS + 10_000) == 0)
        for _ in range(COUNT):
            ours.writer("Fill").put(b"x" * 1000)
        ours.flush()
        if not version.startswith("4."):  # which shows units of a queue whose records were removed
            place = waiting[-3].message.physical_offset
            ours.retention.run(Retention(max_bytes=1))
            assert ours.begin_offset > place
            assert {w.message.properties["TIMER_ROLL_TIMES"] for w in ours.delayed} == {"1"}
        view = of_ours(ours)
    with oracle.open(path, SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), view)
        sent = Sent(body=b"more").for_oracle()
        assert theirs.put([sent])[0]["status"] == "PUT_OK"
