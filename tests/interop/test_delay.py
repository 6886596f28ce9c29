"""Delayed messages and timers of both: each delivers what the other has stored, once."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Retention
from rocketstore.log.layout.state_files import read_json
from rocketstore.testing import ManualClock
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, OracleStore
from tests.interop.test_kinds import units
from tests.interop.views import Tally, View, of_oracle, of_ours
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java


TOPIC = "SCHEDULE_TOPIC_XXXX"
#: Levels of which RocketMQ delivers none while it runs here, and some that it does.
LATE: dict[str, Any] = {**SMALL, "messageDelayLevel": "1h 2h 3h"}
SOON: dict[str, Any] = {**SMALL, "messageDelayLevel": "1s 2s 3s"}
COUNT = 90


def offsets_of(path: Path) -> dict[str, int]:
    document: Any = read_json(path / "config" / "delayOffset.json")
    table: dict[str, int] = document["offsetTable"]
    return table


def put_theirs(store: OracleStore, version: str) -> None:
    """4.9 delays in the store itself, 5.x in a broker, which hands the store this form."""
    for n in range(COUNT):
        level, queue_id = n % 3 + 1, n % 4
        own = (("KEYS", f"k{n}"), ("TAGS", f"t{n % 5}"), ("UNIQ_KEY", f"U{n:04}"))
        delay = (("DELAY", f"{level}"),)
        if version == "4.9.8":
            sent = Sent(queue_id=queue_id, body=b"%d" % n, properties=(*own, *delay))
        else:
            real = (("REAL_TOPIC", "Orders"), ("REAL_QID", f"{queue_id}"))
            sent = Sent(
                topic=TOPIC, queue_id=level - 1, body=b"%d" % n, properties=(*own, *delay, *real)
            )
        (result,) = store.put([sent.for_oracle()])
        assert result["status"] == "PUT_OK"
    store.settle()


def put_ours(path: Path, settings: dict[str, Any]) -> None:
    with rocketstore.open(path, config=config_of(settings)) as ours:
        for n in range(COUNT):
            writer = ours.writer("Orders", queue_id=n % 4)
            properties = {"UNIQ_KEY": f"U{n:04}"}
            writer.put(
                b"%d" % n,
                keys=f"k{n}",
                tags=f"t{n % 5}",
                properties=properties,
                delay_level=n % 3 + 1,
            )


def delivered(store: OracleStore) -> list[int]:
    return sorted(
        int(base64.b64decode(message["body"]))
        for queue in store.dump()["queues"]
        if queue["topic"] == "Orders"
        for message in queue["messages"]
    )


def served(store: OracleStore) -> View:
    """What RocketMQ serves. The tag code of a unit that waits is a time, and no hash of its message:
    `units` compares it."""
    view = of_oracle(store.dump())
    for (topic, _), queue in view.queues.items():
        for message in queue.values() if topic == TOPIC else ():
            del message["tags_code"]
    return view


def deliver_by_us(path: Path, settings: dict[str, Any]) -> rocketstore.Store:
    """As if four hours had gone by."""
    with rocketstore.open(path, "r", config=config_of(settings)) as reader:
        newest = max(waiting.message.store_timestamp_ms for waiting in reader.delayed)
    clock = ManualClock(newest + 4 * 3_600_000)
    config = config_of(settings, deliver_delayed=True)
    store = rocketstore.open(path, config=config, clock=clock)
    wait_until(lambda: len(store.delayed) == 0)
    return store


def test_we_deliver_what_they_delayed(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """The copies have what was sent, and RocketMQ goes on behind our offsets."""
    path = tmp_path / "store"
    with oracle.open(path, LATE) as theirs:
        put_theirs(theirs, version)
        assert delivered(theirs) == []
    waiting = units(path)
    assert len(waiting) == COUNT
    with deliver_by_us(path, LATE) as ours:
        found = list(ours.consumer("Orders"))
        assert sorted(int(message.body) for message in found) == list(range(COUNT))
        for message in found:
            n = int(message.body)
            level, queue_offset = n % 3 + 1, n // 3
            assert message.queue_id == n % 4
            assert message.properties == {
                "KEYS": f"k{n}",
                "TAGS": f"t{n % 5}",
                "UNIQ_KEY": f"U{n:04}",
                "__DELAYED": f"{level}:{queue_offset}",
            }
            assert (message.born_host, message.born_timestamp_ms) == (
                *(Sent().born_host, Sent().born_timestamp_ms),
            )
        assert ours.delayed.undelivered == []
        view = of_ours(ours)
    assert offsets_of(path) == {"1": 30, "2": 30, "3": 30}
    after = units(path)
    assert waiting.items() <= after.items(), "units of what waited have changed"
    with oracle.open(path, {**LATE, "messageDelayLevel": "1s 1s 1s"}) as theirs:
        tally.same(served(theirs), view)
        if version == "4.9.8":  # its tasks begin after a second
            sent = Sent(body=b"999", properties=(("DELAY", "1"),))
            assert theirs.put([sent.for_oracle()])[0]["status"] == "PUT_OK"
            wait_until(lambda: 999 in delivered(theirs))
            assert delivered(theirs) == [*range(COUNT), 999]
    if version == "4.9.8":
        assert offsets_of(path) == {"1": 31, "2": 30, "3": 30}


def test_they_deliver_what_we_delayed(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """4.9 has the service in its store; that of 5.x belongs to a broker."""
    if version != "4.9.8":
        pytest.skip("the store of RocketMQ 5 delivers nothing: its broker does")
    path = tmp_path / "store"
    put_ours(path, SOON)
    with oracle.open(path, SOON) as theirs:
        wait_until(lambda: len(delivered(theirs)) == COUNT)
        assert delivered(theirs) == list(range(COUNT))
        view = served(theirs)
    assert offsets_of(path) == {"1": 30, "2": 30, "3": 30}
    config = config_of(SOON, deliver_delayed=True)
    with rocketstore.open(path, config=config) as ours:
        tally.same(view, of_ours(ours))
        assert len(ours.delayed) == 0
        writer = ours.writer("Orders")
        writer.put(b"999", delay_level=1)
        wait_until(lambda: any(message.body == b"999" for message in ours.consumer("Orders")))
        found = sorted(int(message.body) for message in ours.consumer("Orders"))
        assert found == [*range(COUNT), 999]


def test_their_crash_between_copies_and_offsets(version: str, tmp_path: Path) -> None:
    """4.9 stores its offsets every ten seconds. We know its copies by the unique id."""
    if version != "4.9.8":
        pytest.skip("the store of RocketMQ 5 delivers nothing: its broker does")
    path = tmp_path / "store"
    put_ours(path, SOON)
    with Oracle(version) as oracle:
        theirs = oracle.start(path, SOON)
        wait_until(lambda: len(delivered(theirs)) >= 40)
        oracle.halt()
    config = config_of(SOON, deliver_delayed=True)
    with rocketstore.open(path, config=config) as ours:
        wait_until(lambda: len(ours.delayed) == 0)
        found = sorted(int(message.body) for message in ours.consumer("Orders"))
    assert found == list(range(COUNT))


def test_units_and_records_that_we_write_are_theirs(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """Same queue, properties and place; the tag code is the store time and the delay of the level."""
    ours_path, their_path = tmp_path / "ours", tmp_path / "theirs"
    put_ours(ours_path, LATE)
    with oracle.open(their_path, LATE) as theirs:
        put_theirs(theirs, version)
    with rocketstore.open(ours_path, "r", config=config_of(LATE)) as ours:
        own = {waiting.message.body: waiting for waiting in ours.delayed}
    with rocketstore.open(their_path, "r", config=config_of(LATE)) as reader:
        other = {waiting.message.body: waiting for waiting in reader.delayed}
    assert len(own) == COUNT
    assert own.keys() == other.keys()
    for body, mine in own.items():
        yours = other[body]
        for one in (mine, yours):
            delay_ms = int(one.due_time.timestamp() * 1000) - one.message.store_timestamp_ms
            assert abs(delay_ms - 3_600_000 * one.level) <= 1
        assert (mine.level, mine.topic, mine.queue_id) == (yours.level, yours.topic, yours.queue_id)
        assert mine.message.queue_offset == yours.message.queue_offset
        assert mine.message.properties == yours.message.properties
    tally.messages += 2 * COUNT


TIMERS = "rmq_sys_wheel_timer"
NOW_MS = 1_800_000_000_000
TIMED = 60


def form_of_a_broker(n: int) -> dict[str, Any]:
    """A broker of RocketMQ 5 hands its store this form; the time is rounded down to a second."""
    due_ms = NOW_MS + 700 * n
    properties = (
        *(("KEYS", f"k{n}"), ("TAGS", f"t{n % 5}"), ("UNIQ_KEY", f"U{n:04}")),
        *(("TIMER_DELIVER_MS", f"{due_ms}"), ("TIMER_OUT_MS", f"{due_ms // 1000 * 1000}")),
        *(("REAL_TOPIC", "Orders"), ("REAL_QID", f"{n % 4}")),
    )
    return Sent(topic=TIMERS, queue_id=0, body=b"%d" % n, properties=properties).for_oracle()


def taken_back(n: int, unique_id: str) -> dict[str, Any]:
    """As a broker stores that a client takes a message back."""
    due_ms = NOW_MS + 700 * n
    properties = (
        ("TIMER_DEL_UNIQKEY", unique_id),
        *(("TIMER_DELIVER_MS", f"{due_ms}"), ("TIMER_OUT_MS", f"{due_ms // 1000 * 1000}")),
        *(("REAL_TOPIC", "Orders"), ("REAL_QID", f"{n % 4}")),
    )
    return Sent(topic=TIMERS, queue_id=0, body=b"x", properties=properties).for_oracle()


def test_we_deliver_what_they_stored(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with oracle.open(path, SMALL) as theirs:
        for n in range(TIMED):
            assert theirs.put([form_of_a_broker(n)])[0]["status"] == "PUT_OK"
        theirs.put([taken_back(7, "U0007")])
        theirs.put([taken_back(8, "Orders+U0008")])
        theirs.settle()
    clock = ManualClock(NOW_MS + 700 * (TIMED // 2))
    left = [n for n in range(TIMED) if n not in (7, 8)]
    with rocketstore.open(path, config=config_of(SMALL, deliver_delayed=True), clock=clock) as ours:
        wait_until(lambda: len(ours.delayed) < TIMED // 2)
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
    retention removes the log before them, are records like others, also those of a transaction. What
    it cancels and moves is so after RocketMQ has recovered, too: each comes once."""
    path = tmp_path / "store"
    config = config_of(SMALL, deliver_delayed=True)
    clock = ManualClock(NOW_MS)
    with rocketstore.open(path, config=config, clock=clock) as ours:
        ours.writer("Work").put(b"")
        for n in range(TIMED):
            ours.writer("Orders", queue_id=n % 4).put(b"%d" % n, deliver_at=NOW_MS + 700 * n)
        waiting = list(ours.delayed)
        assert ours.delayed.cancel(waiting[-1])
        assert ours.delayed.reschedule(waiting[-2], NOW_MS + 1)
        with ours.consumer("Work", group="g") as work, ours.transaction() as tx:
            assert len(tx.consume(work)) == 1
            tx.put("Orders", b"100", unique_id="soon", deliver_at=NOW_MS + 2, queue_id=1)
            tx.put("Orders", b"101", unique_id="late", deliver_at=NOW_MS + 90_000)
            tx.put("Orders", b"102", keys="k102")
            assert tx.cancel(str(waiting[-4].unique_id))
            assert tx.reschedule(str(waiting[-5].unique_id), NOW_MS + 3)
        clock.advance(10)
        wait_until(lambda: ours.delayed.count(end=NOW_MS + 10_000) == 0)
        for _ in range(TIMED):
            ours.writer("Fill").put(b"x" * 1000)
        ours.flush()
        if not version.startswith("4."):  # which shows units of a queue whose records were removed
            place = waiting[-3].message.physical_offset
            ours.retention.run(Retention(max_bytes=1))
            assert ours.begin_offset > place
            assert {w.message.properties["TIMER_ROLL_TIMES"] for w in ours.delayed} == {"1"}
        view = of_ours(ours)
        waits = {int(one.message.body) for one in ours.delayed}
    for _ in range(2):  # after our close, and after a crash of RocketMQ
        with oracle.open(path, SMALL) as theirs:
            tally.same(of_oracle(theirs.dump()), view)
        (path / "abort").touch()
    with rocketstore.open(path, config=config, clock=clock) as ours:
        clock.advance(100)
        wait_until(lambda: len(ours.delayed) == 0)
        ours.flush()
        found = sorted(int(message.body) for message in ours.consumer("Orders"))
    assert found == sorted({*found})
    assert waits <= {*found} <= {*range(TIMED - 4), *range(TIMED - 3, TIMED - 1), 100, 101, 102}
    with oracle.open(path, SMALL) as theirs:
        sent = Sent(body=b"more").for_oracle()
        assert theirs.put([sent])[0]["status"] == "PUT_OK"
