"""A damaged log that rocketstore has mended: RocketMQ keeps all other messages, which it deletes else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import rocketstore
from rocketstore import tools
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.views import Tally

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
    if crashed:
        (path / "abort").touch()
        (path / "checkpoint").unlink()
    expected = {at: m for at, m in before.items() if at not in {start for start, _ in hit}}
    for _ in range(2):
        with oracle.open(path, SMALL) as theirs:
            dump = theirs.dump()
        assert dump["max_offset"] == records[-1][1]
        assert messages_of(dump) == expected
    tally.scenarios += 1
    tally.messages += len(expected)
