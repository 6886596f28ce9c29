"""A log that is scanned in advance, on several threads: the walk finds what one thread finds."""

from __future__ import annotations

import dataclasses
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format import codec
from rocketstore._native.format.scanner import SearchBudget
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReadFailedError
from rocketstore.log.recovery import parallel_scan as scan_ahead
from rocketstore.log.recovery.parallel_scan import ParallelScan
from rocketstore.log.recovery.walk import LogWalk, Rules
from tests.support.log_store import SEGMENT, LogBuilder
from tests.support.made_store import BODY_AT

PARTS = (100, 300, 900, 2000)


def files_of(builder: LogBuilder) -> list[MappedFile]:
    files = []
    for start in sorted(builder.segments):
        file = MappedFile.anonymous(start, builder.segment_size)
        file.write(0, bytes(builder.segments[start]))
        files.append(file)
    return files


def walked(files: list[MappedFile], rules: Rules, ahead: ParallelScan) -> dict[str, Any]:
    """All that a walk over the files tells, and where it said that all was well so far."""
    valid: list[int] = []
    walk = LogWalk(files, rules, lambda _, offset: valid.append(offset), ahead=ahead)
    walk.run(files[0].start_offset)
    assert valid == sorted(valid)
    passed = ("files", "rules", "on_valid", "ahead", "budgets")
    names = (field.name for field in dataclasses.fields(walk) if field.name not in passed)
    return {**{name: getattr(walk, name) for name in names}, "valid": valid[-1:]}


def alone() -> ParallelScan:
    return ParallelScan(1 << 20, threads=1)


@pytest.fixture(autouse=True)
def threads_end() -> Any:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("rocketstore-scan")]


def test_a_sound_log(monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of(LogBuilder(segment_size=1 << 16).fill(400))
    rules = Rules(durable=0, window=1 << 20, clean=False)
    expected = walked(files, rules, alone())
    assert expected["records"] == 400
    scanned: list[str] = []
    scan = scan_ahead.scan_segment

    def counted(*given: Any, **more: Any) -> Any:
        scanned.append(threading.current_thread().name)
        return scan(*given, **more)

    monkeypatch.setattr(scan_ahead, "scan_segment", counted)
    for part_bytes in PARTS:
        assert walked(files, rules, ParallelScan(part_bytes, threads=2)) == expected
    assert sum(name.startswith("rocketstore-scan") for name in scanned) > len(scanned) // 2


def test_damaged_logs(rng: random.Random) -> None:
    """Flipped bytes, zeroed stretches, whatever is durable: the same records, damage, valid_runs and end."""
    builder = LogBuilder().fill(100)
    ends = set()
    for _ in range(150):
        damaged = builder.clone()
        for _ in range(rng.randrange(4)):
            segment = damaged.segments[rng.choice(list(damaged.segments))]
            at, size = rng.randrange(SEGMENT), rng.choice([1, 1, 30, 700])
            segment[at : at + size] = (
                bytes(len(segment[at : at + size])) if size > 1 else rng.randbytes(1)
            )
        rules = Rules(
            durable=rng.choice([-1, 0, builder.end, rng.randrange(builder.end)]),
            window=rng.choice([500, 5000]),
            clean=False,
            foreign=rng.choice([(), ((2000, 6000),)]),
            limit=rng.choice([None, builder.records[rng.randrange(100)][1]]),
        )
        files = files_of(damaged)
        expected = walked(files, rules, alone())
        ends.add(expected["end"])
        for part_bytes in PARTS:
            ahead = ParallelScan(part_bytes, threads=rng.choice([2, 3]))
            assert walked(files, rules, ahead) == expected, (rules, part_bytes)
    assert len(ends) > 20


def test_times_that_fall_between_two_parts() -> None:
    """Wherever a part begins, the first record that is older than the one before it is named."""
    for fallen in range(1, 40):
        builder = LogBuilder(segment_size=1 << 16)
        for number in range(40):
            if number == fallen:
                builder.now_ms -= 1000
            builder.add(b"x" * 50)
        files = files_of(builder)
        rules = Rules(durable=-1, window=1 << 20, clean=False)
        for ahead in (alone(), ParallelScan(400, threads=2)):
            assert walked(files, rules, ahead)["first_time_fall"] == builder.records[fallen][0]


def test_a_body_that_looks_like_a_record_of_its_place() -> None:
    """What is found in advance counts only where the log leads to it."""
    builder = LogBuilder(segment_size=1 << 16, record_crc=False)
    for number in range(30):
        builder.add(b"x" * (20 + number * 13 % 90))
        inside = builder.end + BODY_AT
        nested = codec.encode_record(
            topic="orders",
            body=b"y" * 100,
            properties=codec.encode_properties({"KEYS": f"key-{2 * number + 1}"}),
            physical_offset=inside,
        )
        # Its topic and properties are those of the message around it, so that it ends where that ends.
        builder.add(nested[: BODY_AT + 100])
    files = files_of(builder)
    rules = Rules(durable=0, window=1 << 20, clean=False)
    expected = walked(files, rules, alone())
    assert expected["records"] == 60
    begins = set()
    for part_bytes in range(100, 900, 20):
        assert walked(files, rules, ParallelScan(part_bytes, threads=2)) == expected
        begins.add(scan_ahead.part_begin(files[0], part_bytes, 1 << 16, 3, SearchBudget()))
    assert begins - {start for start, _ in builder.records}, "no part began in a body"


def test_without_threads_one_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThreads:
        def __init__(self, *given: object) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(scan_ahead, "Pool", NoThreads)
    files = files_of(LogBuilder().fill(100))
    rules = Rules(durable=0, window=1 << 20, clean=False)
    assert walked(files, rules, ParallelScan(300, threads=2)) == walked(files, rules, alone())


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """The fault of another thread comes where the walk would have met it."""
    builder = LogBuilder(segment_size=1 << 16).fill(200)
    path = tmp_path / "segment"
    path.write_bytes(builder.segments[0])
    file = MappedFile.open(path, 0, 1 << 16, "private")
    with path.open("r+b") as cut:
        cut.truncate(4 * 4096)
    ahead = ParallelScan(1000, threads=2)
    with pytest.raises(ReadFailedError):
        walked([file], Rules(durable=0, window=1 << 20, clean=False), ahead)
    file.close()
