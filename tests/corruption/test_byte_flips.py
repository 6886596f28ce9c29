"""Every byte of a reference store of 1 MiB changed, and every file cut at every byte.

With record checksums on nothing may pass unnoticed. Without them a body is protected, and the table says
which other fields are not. By default a sample is tried, in a whole run as many samples as there is time for;
`make flips EVERY=1` tries all and prints the tables.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corruption.judging import FullJudge, LogJudge, Tally
from tests.corruption.reference import SEGMENT, Placed, Reference, make_reference
from tests.support import campaign
from tests.support.made_store import write_at

#: Every so many bytes are tried; 1 is all of them.
STRIDE = int(os.environ.get("ROCKETSTORE_FLIP_STRIDE", "") or "197")
#: Parts of the time of a whole run: of each test here for each of its parameters.
SHARES = {"flips": 0.2, "cuts": 0.05, "flips of all files": 0.25, "cuts of all files": 0.25}
#: A whole open, verify and read takes a thousand times as long as a judgement in memory.
FULL_STRIDE = 1 if STRIDE == 1 else 4 * STRIDE
#: One byte in so many is also shown to `verify`.
NAMED = 5
#: Nothing but the body, its frame and its place is protected in a record without a checksum; what the
#: queue unit repeats is noticed when the record has one. A body of no bytes has no checksum that anybody
#: compares (Q-13): a length made 0 passes where the first byte of the body fits as length of the topic.
UNPROTECTED = {
    "body length made 0",
    "queue id", "flag", "queue offset", "sys flag", "born timestamp", "born host", "store host",
    "store timestamp", "reconsume times", "prepared offset", "topic", "properties",
}  # fmt: skip
#: Files whose bytes have no checksum in RocketMQ's format: a changed digit is another number.
PLAIN_NUMBERS = {"config/consumerOffset.json"}


def samples(test: str) -> Iterator[campaign.Running]:
    """The campaign of a test, once for each sample: one outside of a whole run, there until the time is used."""
    running = campaign.begin("changed bytes", share=SHARES[test], alone=1, least=1)
    while running.goes_on():
        yield running
    if running.seconds is not None:
        running.end()


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Each damage is logged, and there are thousands."""
    logging.getLogger("rocketstore").setLevel(logging.CRITICAL)


@pytest.fixture(scope="module", autouse=True)
def _loud_again() -> object:
    yield
    logging.getLogger("rocketstore").setLevel(logging.NOTSET)


@pytest.fixture(scope="module", params=[True, False], ids=["record_crc", "no_record_crc"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return make_reference(tmp_path_factory.mktemp("large") / "store", record_crc=request.param)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The same kinds of records and files, of which all can be read again for each byte."""
    return make_reference(tmp_path_factory.mktemp("small") / "s", record_crc=True, size=2 * SEGMENT)


def test_a_changed_byte_of_the_log(large: Reference, random_seed: int) -> None:
    """Noticed at the record it hit, and every other record is read as before."""
    rng = random.Random(random_seed)
    tally = Tally()
    judges = [LogJudge(large, number) for number in range(len(large.segments))]
    for running in samples("flips"):
        for judge in judges:
            for position in range(rng.randrange(STRIDE), SEGMENT, STRIDE):
                for mask in (0xFF, 1 << rng.randrange(8)):
                    tally.add(judge.flip(position, mask, name=rng.randrange(NAMED) == 0))
        running.did = tally.total()
    print(tally)
    if large.record_crc:
        assert not tally.undetected()
    else:
        assert set(tally.undetected()) <= UNPROTECTED
    assert tally.total() >= 2 * len(large.segments) * (SEGMENT // STRIDE)


def test_a_body_length_made_0(large: Reference) -> None:
    """Body 07 in front of topic 06 "orders": without it the topic is one byte longer, and all else fits. The
    record's checksum notices that, or the unit of its queue, whose topic is another."""
    seen = 0
    for number in range(len(large.segments)):
        judge = LogJudge(large, number)
        for one in judge.placed:
            at = one.data.find(b"\0\0\0\x01\x07\x06orders")
            if at < 0:
                continue
            found = judge.flip(one.start - judge.start + at + 3, 1, name=large.record_crc)
            queued = int.from_bytes(one.data[36:40], "big") & 0xC in (0, 8)
            detected = large.record_crc or queued
            assert found.outcome == ("detected" if detected else "undetected")
            assert large.record_crc or found.where == "body length made 0"
            seen += 1
    assert seen


def test_a_log_file_cut_at_any_byte(large: Reference, random_seed: int) -> None:
    """Exactly the records in front of the cut are left."""
    rng = random.Random(random_seed)
    cuts = 0
    judges = [LogJudge(large, number) for number in range(len(large.segments))]
    for running in samples("cuts"):
        first = rng.randrange(STRIDE)
        for judge in judges:
            for size in range(first, SEGMENT, STRIDE):
                judge.cut(size)
                cuts += 1
        running.did = cuts
    print(f"{cuts} cuts")


@pytest.mark.proof
def test_a_changed_byte_of_any_file(small: Reference, random_seed: int) -> None:
    """The store as its user sees it: opened, verified, and all of it read."""
    judge = FullJudge(small)
    rng = random.Random(random_seed)
    tally = Tally()
    for running in samples("flips of all files"):
        for path in _files(small.root):
            data = path.read_bytes()
            stride = min(FULL_STRIDE, max(1, len(data) // 2))
            for position in range(rng.randrange(stride), len(data), stride):
                mask = rng.choice((0xFF, 1 << rng.randrange(8)))
                write_at(path, position, bytes((data[position] ^ mask,)))
                tally.add(judge.judge(path, _hit(small, path, position)))
                write_at(path, position, data[position : position + 1])
        running.did = tally.total()
    print(tally)
    assert set(tally.undetected()) <= PLAIN_NUMBERS


@pytest.mark.proof
def test_any_file_cut_at_any_byte(small: Reference, random_seed: int) -> None:
    """Records behind a cut of the log are gone; nothing else is, and nothing is made up."""
    judge = FullJudge(small)
    rng = random.Random(random_seed)
    tally = Tally()
    for running in samples("cuts of all files"):
        for path in _files(small.root):
            data = path.read_bytes()
            stride = min(FULL_STRIDE, max(1, len(data) // 2))
            for size in range(rng.randrange(stride), len(data), stride):
                path.write_bytes(data[:size])
                tally.add(judge.judge(path, _behind(small, path, size)))
            path.write_bytes(data)
        running.did = tally.total()
    print(tally)
    assert set(tally.undetected()) <= PLAIN_NUMBERS


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _hit(reference: Reference, path: Path, position: int) -> list[Placed]:
    if path.parent.name != "commitlog":
        return []
    at = int(path.name) + position
    return [one for one in reference.records if one.start <= at < one.end]


def _behind(reference: Reference, path: Path, size: int) -> list[Placed]:
    if path.parent.name != "commitlog":
        return []
    at, end = int(path.name) + size, int(path.name) + SEGMENT
    return [one for one in reference.records if at < one.end and one.start < end]
