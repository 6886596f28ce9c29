"""A damaged log that rocketstore has mended: RocketMQ keeps all other messages, which it deletes else."""

from __future__ import annotations

import base64
import random
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import tools
from tests.interop.exchange import assert_sound
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.views import Tally
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

FILE = int(SMALL["mappedFileSizeCommitLog"])
SHAPE = {"index_slots": SMALL["maxHashSlotNum"], "index_entries": SMALL["maxIndexNum"]}


def fill(path: Path, rng: random.Random) -> list[tuple[int, int]]:
    """(start, end) of each record."""
    with rocketstore.open(path, config=config_of(SMALL)) as store:
        places = []
        for number in range(260):
            properties = (("KEYS", f"k{number}"), ("TAGS", "a"))
            body = rng.randbytes(rng.randrange(40, 600))
            sent = Sent(body=body, properties=properties, queue_id=number % 3)
            places.append(sent.put(store))
    return [(place.physical_offset, place.end_offset) for place in places]


def write(path: Path, offset: int, data: bytes) -> None:
    with (path / "commitlog" / f"{offset - offset % FILE:020d}").open("r+b") as file:
        file.seek(offset % FILE)
        file.write(data)


def messages_of(dump: dict[str, object]) -> dict[int, tuple[str, int, int, str]]:
    found = {}
    for queue in dump["queues"]:  # type: ignore[attr-defined]
        for m in queue["messages"]:
            if "missing" not in m:
                place = (queue["topic"], queue["queue_id"], m["unit_queue_offset"], m["body"])
                found[m["physical_offset"]] = place
    return found


def check_twice(
    oracle: Oracle, path: Path, expected: dict[int, tuple[str, int, int, str]], end: int
) -> None:
    """What RocketMQ reads in a mended store, also behind a stop of its own."""
    for _ in range(2):
        with oracle.open(path, SMALL) as theirs:
            dump = theirs.dump()
        assert dump["max_offset"] == end
        assert messages_of(dump) == expected


@pytest.mark.parametrize("crashed", [False, True])
def test_rocketmq_keeps_what_stands_behind_mended_damage(
    oracle: Oracle, tally: Tally, tmp_path: Path, rng: random.Random, crashed: bool
) -> None:
    """D-26: with a look at the whole log, as after a crash, and at its end."""
    path = tmp_path / "store"
    records = fill(path, rng)
    with oracle.open(path, SMALL) as theirs:
        before = messages_of(theirs.dump())
    assert len(before) == len(records)

    files = sorted({start // FILE for start, _ in records})
    middle, whole = files[2], files[3]
    hit = [rng.choice([r for r in records if r[0] // FILE == middle][1:-1])]  # one body
    write(path, hit[0][1] - 30, b"\xff" * 7)
    write(path, whole * FILE, bytes(FILE))  # a file of zeros, blank included
    hit += [r for r in records if r[0] // FILE == whole]
    first = next(r for r in records if r[0] // FILE == files[4])  # the first record of a file
    write(path, first[0], rng.randbytes(50))
    hit.append(first)
    last = [r for r in records if r[0] // FILE == files[4]][-1]  # and up to its end
    write(path, last[0], rng.randbytes(FILE - last[0] % FILE))
    hit.append(last)

    with rocketstore.open(path, config=config_of(SMALL)):
        pass
    report = tools.repair(path, **SHAPE)
    assert report.ok and report.units == len(hit), str(report)
    expected = {at: m for at, m in before.items() if at not in {start for start, _ in hit}}
    if crashed:
        (path / "abort").touch()
        (path / "checkpoint").unlink()
    check_twice(oracle, path, expected, records[-1][1])
    tally.scenarios += 1
    tally.messages += len(expected)


@pytest.mark.parametrize("crashed", [False, True])
def test_rocketmq_keeps_what_stands_around_a_lost_segment(
    oracle: Oracle, tally: Tally, tmp_path: Path, rng: random.Random, crashed: bool
) -> None:
    """D-26: a file in the middle is gone for good, and one of its size was put in its place."""
    path = tmp_path / "store"
    records = fill(path, rng)
    with oracle.open(path, SMALL) as theirs:
        before = messages_of(theirs.dump())
    # In front of the last message of each queue: what stands for that is read (test below).
    gone = rng.sample(range(1, records[-3][0] // FILE), 2)
    for number in gone:
        (path / "commitlog" / f"{number * FILE:020d}").unlink()
    report = tools.repair(path, fill_missing=True, **SHAPE)
    assert report.ok, str(report)
    expected = {at: m for at, m in before.items() if at // FILE not in gone}
    if crashed:
        (path / "abort").touch()
        (path / "checkpoint").unlink()
    check_twice(oracle, path, expected, records[-1][1])
    tally.scenarios += 1
    tally.messages += len(expected)


@pytest.mark.parametrize("files", [1, 5])
@pytest.mark.parametrize("crashed", [False, True])
def test_rocketmq_goes_on_where_the_end_of_a_queue_was_lost(
    oracle: Oracle,
    tally: Tally,
    tmp_path: Path,
    rng: random.Random,
    crashed: bool,
    files: int,
) -> None:
    """format 6.3: a pre-blank as the last unit keeps it from dispatching; 4.9 dispatches to no queue then."""
    path = tmp_path / "store"
    places = []
    with rocketstore.open(path, config=config_of(SMALL)) as store:
        while not places or places[-1].end_offset < (files - 1) * FILE + FILE // 2:
            body = rng.randbytes(rng.randrange(40, 600))
            sent = Sent(body=body, properties=(("TAGS", "a"),), queue_id=len(places) % 2)
            places.append(sent.put(store))
        behind = Sent(body=b"behind", queue_id=2).put(store)
    lost = places[-3:]  # of one queue the last two, of the other the last one
    for place in lost:
        write(path, place.end_offset - 30, b"\xff" * 7)
    with rocketstore.open(path, config=config_of(SMALL)):
        pass
    report = tools.repair(path, **SHAPE)
    assert report.ok and report.units == 3, str(report)
    if crashed:
        (path / "abort").touch()
        (path / "checkpoint").unlink()
    ends = {place.queue_id: place.queue_offset + 1 for place in (*places, behind)}
    for round_number in range(2):  # the second one finds what the first one wrote
        with oracle.open(path, SMALL) as theirs:
            sent = [
                Sent(body=b"%d of %d" % (round_number, queue_id), queue_id=queue_id).for_oracle()
                for queue_id in ends
            ]
            for queue_id, put in zip(ends, theirs.put(sent), strict=True):
                assert (put["status"], put["queue_offset"]) == ("PUT_OK", ends[queue_id])
            theirs.settle()
            for queue_id, end in ends.items():
                got = theirs.get("Orders", queue_id, end)
                assert (got["status"], got["next"], got["max"]) == ("FOUND", end + 1, end + 1)
                [message] = got["messages"]
                assert (message["queue_offset"], message["queue_id"]) == (end, queue_id)
                # What stands for the lost one has its place.
                at = end - round_number - 1
                got = theirs.get("Orders", queue_id, at)
                assert (got["status"], got["messages"][0]["queue_offset"]) == ("FOUND", at)
        ends = {queue_id: end + 1 for queue_id, end in ends.items()}
    assert_sound(path)
    with rocketstore.open(path, "r") as store:
        for queue_id, end in ends.items():
            with store.consumer("Orders", queue_id=queue_id) as consumer:
                found = {m.queue_offset for m in consumer}
            gone = {place.queue_offset for place in lost if place.queue_id == queue_id}
            assert found == set(range(end)) - gone
    tally.scenarios += 1
    tally.messages += 2 * len(ends)


@pytest.mark.parametrize(
    ("crashed", "remade"), [(False, ""), (True, ""), (False, "rebuild"), (True, "open")]
)
def test_consumers_of_rocketmq_get_what_stands_behind_lost_messages(
    oracle: Oracle,
    tally: Tally,
    tmp_path: Path,
    rng: random.Random,
    crashed: bool,
    remade: str,
) -> None:
    """format 6.3: behind a pre-blank RocketMQ passes over all that is left of the log's first file. Queues that were
    lost since are made anew with some, which the next repair mends."""
    path = tmp_path / "store"
    places = []
    with rocketstore.open(path, config=config_of(SMALL)) as store:
        while not places or places[-1].end_offset < 2 * FILE + FILE // 2:
            body = b"%d:" % len(places) + rng.randbytes(rng.randrange(40, 600))
            sent = Sent(body=body, properties=(("TAGS", "a"),), queue_id=len(places) % 2)
            places.append(sent.put(store))
    lost = set()
    for file in range(2):
        here = [n for n, place in enumerate(places) if place.physical_offset // FILE == file]
        first = rng.choice(here[3 : len(here) // 2])
        lost |= {first, first + 1, first + 2, here[-3], here[-1]}
    for number in lost:
        write(path, places[number].end_offset - 30, b"\xff" * 7)
    with rocketstore.open(path, config=config_of(SMALL)):
        pass
    report = tools.repair(path, **SHAPE)
    assert report.ok and report.units == len(lost), str(report)
    if remade == "rebuild":
        tools.rebuild(path, **SHAPE)
    elif remade == "open":
        shutil.rmtree(path / "consumequeue")
        with rocketstore.open(path, config=config_of(SMALL)):
            pass
        assert tools.repair(path, **SHAPE).units
    if crashed:
        (path / "abort").touch()
        (path / "checkpoint").unlink()
    expected = [
        {n for n in range(len(places)) if n % 2 == queue_id and n not in lost}
        for queue_id in (0, 1)
    ]
    with oracle.open(path, SMALL) as theirs:
        for queue_id in (0, 1):
            found, at = set(), 0
            while (got := theirs.get("Orders", queue_id, at))["next"] > at:
                at = got["next"]
                bodies = [base64.b64decode(m["body"]) for m in got["messages"]]
                found |= {int(body.partition(b":")[0]) for body in bodies if b":" in body}
            assert found == expected[queue_id]
    assert_sound(path)
    with rocketstore.open(path, "r") as store:
        for queue_id in (0, 1):
            with store.consumer("Orders", queue_id=queue_id) as consumer:
                found = {int(m.body.partition(b":")[0]) for m in consumer}
            assert found == expected[queue_id]
    tally.scenarios += 1
    tally.messages += len(places) - len(lost)


def test_delayed_messages_are_delivered_behind_a_lost_one(
    version: str, oracle: Oracle, tally: Tally, tmp_path: Path
) -> None:
    """RocketMQ 4 tries a message without a topic for its own again and again, and none behind it."""
    if not version.startswith("4"):
        pytest.skip("of RocketMQ 5 the broker delivers, not the store")
    path = tmp_path / "store"

    def delayed(body: bytes) -> dict[str, object]:
        return Sent(body=body, properties=(("DELAY", "1"),)).for_oracle()

    with oracle.open(path, SMALL) as theirs:  # where a level lasts hours
        behind = Sent(body=b"behind", queue_id=1).for_oracle()
        [_, lost, _] = theirs.put([delayed(b"first"), delayed(b"lost" * 10), behind])
        theirs.settle()
    write(path, lost["physical_offset"] + 100, b"\xff" * 7)
    with rocketstore.open(path, config=config_of(SMALL)):
        pass
    report = tools.repair(path, **SHAPE)
    assert report.ok and report.units == 1
    with oracle.open(path, {**SMALL, "messageDelayLevel": "1s"}) as theirs:
        theirs.put([delayed(b"new")])
        delivered = [base64.b64encode(body).decode() for body in (b"first", b"new")]

        def bodies() -> list[str]:
            queues = theirs.dump()["queues"]
            found = [q for q in queues if (q["topic"], q["queue_id"]) == ("Orders", 0)]
            return [m["body"] for q in found for m in q["messages"]]

        wait_until(lambda: len(bodies()) >= 2)
        assert bodies() == delivered
    assert_sound(path)
    tally.scenarios += 1
    tally.messages += 2
