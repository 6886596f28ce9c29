"""The death of a process tears what it was writing and nothing else (D-20): one damaged record takes itself alone.

Each writer here is killed before its checkpoint says anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptRecordError, tools
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage
from tests.cli.conftest import Invoke, invoke
from tests.corruption.advice import follow_the_advice
from tests.process.other_process import SMALL, TOPIC, open_small, other_process
from tests.support.made_store import BODY_AT, write_at

__all__ = ["invoke"]

COUNT = 200
#: One segment, so that a place in its file is a physical offset.
OPTIONS: dict[str, Any] = {"commit_log_file_size_bytes": 1 << 20, "write_buffer_bytes": 1 << 20}
SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}
#: Says where its messages are; the last put waits until all of them are in the file.
WRITER = f"""
from rocketstore.log.commitlog.checkpointer import Checkpointer
Checkpointer.step = lambda self: 1.0
store = rocketstore.open(path, **options)
writer = store.writer(TOPIC)
places = [
    writer.put(b"%d:" % n + b"x" * (40 + n * 37 % 300), durability=given if n == {COUNT - 1} else None)
    for n in range({COUNT})
]
say(" ".join(str(place.physical_offset) for place in (*places,)) + " %d" % places[-1].end_offset)
told()
"""


@dataclass(frozen=True)
class Killed:
    """A store whose writer was killed: where its records begin, and the end of the last one."""

    root: Path
    starts: list[int]
    end: int

    @property
    def log(self) -> Path:
        return self.root / "commitlog" / f"{0:020d}"

    def flip(self, number: int, inside: int = BODY_AT) -> None:
        at = self.starts[number] + inside
        write_at(self.log, at, bytes([self.log.read_bytes()[at] ^ 4]))

    def forget_positions(self) -> None:
        """As if it had died before it said anything to readers."""
        page = PositionsPage.create(StoreLayout(self.root).positions)
        page.positions.visible = 0
        page.close()

    def copied(self, to: Path) -> Killed:
        shutil.copytree(self.root, to)
        return Killed(to, self.starts, self.end)


Kill = Callable[[str], Killed]


@pytest.fixture
def killed(tmp_path: Path) -> Kill:
    def kill(durability: str) -> Killed:
        root = tmp_path / "store"
        last = "disk" if durability == "disk" else "os"
        with other_process(WRITER, root, given=last, durability=durability, **OPTIONS) as writer:
            *starts, end = map(int, writer.line().split())
            writer.kill()
        assert len(starts) == COUNT
        return Killed(root, starts, end)

    return kill


def readable(root: Path, mode: Any) -> tuple[list[int], Any]:
    """The numbers that a consumer gets, which steps over damage; the report of the open."""
    found = []
    with open_small(root, mode, **OPTIONS) as store:
        consumer = store.consumer(TOPIC)
        while True:
            try:
                for message in consumer:
                    found.append(int(bytes(message.body).partition(b":")[0]))
            except CorruptRecordError as error:
                consumer.seek((error.queue_offset or 0) + 1, queue_id=0)
            else:
                break
        return found, store.recovery


@pytest.mark.parametrize("last", [False, True], ids=["in the middle", "up to the end"])
def test_a_whole_record_between_two_damaged_ones_is_kept(killed: Kill, last: bool) -> None:
    """Neither its queue nor the page of positions has it yet: its own checksum proves it."""
    store = killed("os")
    harmed = [COUNT - 3, COUNT - 1] if last else [100, 102]
    for number in harmed:
        write_at(store.log, store.starts[number], b"\x3a\x91\x07\x55")
    store.forget_positions()
    shutil.rmtree(store.root / "consumequeue")
    found, _ = readable(store.root, "rw")
    assert found == [n for n in range(COUNT) if n not in harmed]


@pytest.mark.parametrize(
    ("durability", "number"),
    [("os", 1), ("os", COUNT - 2), ("memory", 100), ("disk", 100), ("disk", COUNT - 1)],
)
def test_one_damaged_record_takes_itself_alone(
    durability: str, number: int, killed: Kill, invoke: Invoke
) -> None:
    """D-20: what `verify` says is lost is what is lost, and its advice ends."""
    store = killed(durability)
    store.flip(number)
    others = [n for n in range(COUNT) if n != number]
    before = tools.verify(store.root, **SHAPE)
    assert sum(one.count for one in before.lost_messages) == 1
    assert "cut" not in {one.code for one in before.notices}
    for mode in ("r", "r+", "r"):
        found, report = readable(store.root, mode)
        assert found == others, mode
        assert report.cut is None and not report.valid_runs
    repaired = tools.repair(store.root, **SHAPE)
    assert repaired.ok and [one.start for one in repaired.ranges] == [store.starts[number]]
    assert tools.verify(store.root, **SHAPE).ok
    with open_small(store.root, **OPTIONS) as opened:
        assert opened.end_offset == store.end
        assert [int(bytes(m.body).partition(b":")[0]) for m in opened.consumer(TOPIC)] == others


def test_the_advice_for_a_last_record_without_a_size_ends(killed: Kill) -> None:
    """An open keeps it as damage; `verify` called it a lost end, which `recover` was to give up, again and again."""
    store = killed("disk")
    write_at(store.log, store.starts[-1], b"\x7a\x91\x07\x55")
    found, report = readable(store.root, "r+")
    assert found == list(range(COUNT - 1))
    assert [(one.start, one.end) for one in report.damage] == [(store.starts[-1], store.end)]
    verdict = tools.verify(store.root, **SHAPE)
    assert [(one.kind, one.position) for one in verdict.faults] == [("log", store.starts[-1])]
    followed = follow_the_advice(store.root, " ".join(shape()).replace("=", " ").split())
    assert not followed.fault
    assert followed.commands == ["repair"]
    assert tools.verify(store.root, **SHAPE).ok


def test_what_readers_were_shown_is_kept_whatever_is_left_of_it(killed: Kill) -> None:
    """D-20: a record without its magic looks as a write that was cut short does; the page of positions knows better."""
    store = killed("disk")
    write_at(store.log, store.starts[100], bytes(60))
    found, report = readable(store.root, "r")
    assert found == [n for n in range(COUNT) if n != 100]
    # A recovery that is killed leaves what the page knew to the next one.
    program = "import rocketstore.engine.phases as phases, rocketstore.engine.open as opening\n"
    program += "opening.recover = lambda *given: os._exit(7)\nrocketstore.open(path, **options)"
    with other_process(program, store.root, durability="disk", **OPTIONS) as recovery:
        assert recovery.process.wait(60) == 7
    found, report = readable(store.root, "r+")
    assert found == [n for n in range(COUNT) if n != 100]
    assert report.cut is None


@pytest.mark.parametrize("torn", ["magic", "page"])
@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_batch_that_was_being_written_goes(durability: str, torn: str, killed: Kill) -> None:
    """D-37: the magic of its first record, or all of that in its first page, comes last."""
    store = killed(durability)
    store.forget_positions()
    first = next(n for n in range(50, COUNT) if store.starts[n] % 4096 < 4000)
    start = store.starts[first]
    left = 4 if torn == "magic" else 4096 - start % 4096
    write_at(store.log, start + (4 if torn == "magic" else 0), bytes(left))
    found, report = readable(store.root, "r+")
    assert found == list(range(first))
    assert report.cut == (report.end, store.end)


def test_a_torn_write_in_front_of_a_page_is_no_damage(killed: Kill) -> None:
    """D-37: a record that begins with the last bytes of a page."""
    store = killed("os")
    store.forget_positions()
    at = [start for start in store.starts if 4096 - start % 4096 < 60]
    for start in at[:1]:
        write_at(store.log, start, bytes(4096 - start % 4096))
        found, _ = readable(store.root, "r+")
        assert found == list(range(store.starts.index(start)))


def test_a_copy_is_not_believed_and_says_what_it_costs(
    killed: Kill, tmp_path: Path, invoke: Invoke
) -> None:
    """D-20: a copy of a live store may lack any page. `verify` and a dry run count what is about to be cut, and
    `verify` remembers it as long as there is the copy."""
    original = killed("os")
    original.flip(100)
    copy = original.copied(tmp_path / "copy")
    start, whole = copy.starts[100], COUNT - 101
    for _ in range(2):
        verified = invoke("verify", copy.root, *shape())
        assert verified.exit_code == 3
        assert f"cuts off [{start}, {copy.end}) with {whole} whole records" in verified.stderr
        dry = invoke("recover", "--dry-run", copy.root, *shape())
        assert f"cut off: [{start}, {copy.end}), with {whole} whole records" in dry.output
    found, report = readable(copy.root, "r+")
    assert found == list(range(100))
    assert report.cut == (start, copy.end)
    assert report.cut_records == whole
    after = tools.verify(copy.root, **SHAPE)
    assert after.ok
    told = [one for one in after.notices if one.code == "cut"]
    assert [one.file for one in told] == [one for one in report.quarantine if str(start) in one]
    assert f"[{start}, {copy.end})" in told[0].reason and f"{whole} whole records" in told[0].reason
    verified = invoke("verify", copy.root, *shape())
    assert verified.exit_code == 0 and told[0].file in verified.stderr
    shutil.rmtree(copy.root / "rocketstore" / "quarantine")
    assert not [one for one in tools.verify(copy.root, **SHAPE).notices if one.code == "cut"]


def shape() -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in SHAPE.items()]


def test_a_file_that_is_replaced_is_not_believed(killed: Kill) -> None:
    """D-20: the page speaks of the files that the process wrote, not of those that lie in their place."""
    store = killed("disk")
    store.flip(100)
    other = store.log.with_name("other")
    shutil.copyfile(store.log, other)
    other.replace(store.log)
    with rocketstore.open(store.root, "r", **SHAPE) as opened:
        assert opened.recovery.cut == (store.starts[100], store.end)
