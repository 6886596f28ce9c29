"""What lies beside a log that lost its end, or that is another log: every state by every cause.

A cell of the table is a state after a cause: nothing that the log still has is passed over, and
nothing is said to be done whose trace the log lost.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.errors import TransactionSettledError
from rocketstore.log.commitlog.checkpoint import CheckpointFile, lost_its_end
from rocketstore.log.layout.log_place import place_in, stands
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json
from rocketstore.services.delay import timer_file
from rocketstore.services.delay.timer_table import TimerTable
from rocketstore.services.transactions.half_messages import OP_TOPIC
from rocketstore.testing import ManualClock
from rocketstore.tools import verify
from tests.services.delay_tools import TOPIC, bodies, crash, read
from tests.services.lost_logs import (
    CAUSES,
    LATER_MS,
    SECOND,
    SEGMENT,
    Made,
    number_of,
    opened,
    roll,
)
from tests.services.timer_tools import TOPIC as TIMERS
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until


@dataclass
class Case:
    """A store after a cause, open again; all that waited is due."""

    cause: str
    made: Made
    path: Path
    store: Store
    clock: ManualClock

    @property
    def layout(self) -> StoreLayout:
        return StoreLayout(self.path)

    def delivered(self, begin: bytes) -> list[bytes]:
        return sorted(body for body in bodies(self.store) if begin in body)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.fixture(params=list(CAUSES))
def case(request: pytest.FixtureRequest, made: Made) -> Iterator[Case]:
    path = made.root / f"case {list(CAUSES).index(request.param)}"
    made.copy_to(path)
    options = CAUSES[request.param](made, path)
    clock = ManualClock(LATER_MS)
    with opened(path, clock, **options) as store:
        clock.advance(2)
        yield Case(request.param, made, path, store, clock)


# ---- states ----


def levels(case: Case) -> None:
    """Each message of a level comes once."""
    waited = Counter(bytes(one.body) for one in read(case.store, TOPIC))
    wait_until(lambda: number_of(case.store, b"level", b"late level") >= waited.total())
    assert Counter(case.delivered(b"level")) == waited
    assert case.store.delayed.error is None


def timers(case: Case) -> None:
    """Each message with a time of its own comes once."""
    waited = {bytes(one.body) for one in read(case.store, TIMERS) if b"timer" in one.body}
    wait_until(lambda: number_of(case.store, b"timer", b"late timer") >= len(waited))
    assert case.delivered(b"timer") == sorted(waited)
    assert len(waited) >= 3


def cancelled(case: Case) -> None:
    """What was cancelled waits again: the record that cancels it is lost."""
    assert "never" in [one.unique_id for one in case.store.delayed]


def beats(case: Case) -> None:
    before = number_of(case.store, b"beat")
    case.clock.advance(1)
    wait_until(lambda: number_of(case.store, b"beat") > before)


def half_messages(case: Case) -> None:
    """All are open again, and none of what was rolled back in this log."""
    assert [one.id for one in case.store.transactions.open()] == case.made.halves


def ends_of_transactions(case: Case) -> None:
    """Each can be ended, and otherwise than in the log that is lost."""
    was_committed, was_rolled_back, was_open = case.made.halves
    transactions = case.store.transactions
    transactions.rollback(was_committed)
    transactions.commit(was_rolled_back)
    assert bodies(case.store, "paid") == [b"half"]
    assert [one.id for one in transactions.open()] == [was_open]


def commits_of_transactions(case: Case) -> None:
    """Each that the log has is whole, once; progress is not beyond them."""
    found = Counter(bodies(case.store, "moved"))
    assert found[b"one"] == 1
    assert max(found.values()) <= 3
    topic, group = "rmq_sys_rocketstore_transactions", "CID_RMQ_SYS_rocketstore_transactions"
    stored = engine_of(case.store).offsets.get(topic, group).get(0, 0)
    assert stored <= case.store.max_queue_offset(topic, 0) == found.total()


def offsets_of_groups(case: Case) -> None:
    for group in case.store.groups(system=True):
        for topic in case.store.topics(system=True):
            for queue_id, offset in case.store.committed(topic, group).items():
                assert offset <= case.store.max_queue_offset(topic, queue_id), (topic, group)


def commit_journal(case: Case) -> None:
    """A commit from now on survives a kill."""
    with case.store.consumer("orders", group="g") as consumer:
        list(consumer)
        consumer.commit()
    killed = crash(case.path, case.path.with_name(f"{case.path.name} killed"))
    with opened(killed, deliver_delayed=False) as store:
        assert store.committed("orders", "g") == case.store.committed("orders", "g")


def unique_ids(case: Case) -> None:
    """The id of a message that is lost is free, and is taken then."""
    writer = case.store.writer("orders")
    assert not writer.put(b"id", unique_id="id").duplicate
    assert writer.put(b"id", unique_id="id").duplicate


def index(case: Case) -> None:
    """Keys lead to messages of this log only."""
    case.store.flush()
    found = [*case.store.query("orders", "never"), *case.store.query("orders", "id")]
    assert all(one.topic == "orders" and one.body in (b"never", b"id") for one in found)
    assert all(one.physical_offset < case.store.end_offset for one in found)


def queues(case: Case) -> None:
    """They have what the log has, in its order."""
    scanned = Counter[tuple[str, int]]()
    case.store.flush()
    for columns in rocketstore.scan(case.path, system_topics=True):
        scanned.update(zip(columns["topic"], columns["queue_offset"].tolist(), strict=True))
    assert set(scanned.values()) == {1}
    for topic in case.store.topics(system=True):
        offsets = [one.queue_offset for one in read(case.store, topic)]
        assert all(after == before + 1 for before, after in pairwise(offsets))
        assert all((topic, offset) in scanned for offset in offsets)


def checkpoint(case: Case) -> None:
    with contextlib.closing(CheckpointFile(case.layout.own_checkpoint)) as file:
        own = file.load()
    assert own is not None
    assert own.flushed <= case.store.end_offset
    assert not lost_its_end(own, engine_of(case.store)._segments)


def positions(case: Case) -> None:
    at = engine_of(case.store).positions
    assert at.dispatched <= at.visible <= at.committed <= at.wrote
    assert at.flushed <= at.wrote == case.store.end_offset


def orders_of_recovery(case: Case) -> None:
    """Nothing is left to be done at the next open."""
    assert not case.layout.cut.exists()
    assert not case.layout.recovery.exists()
    assert not case.layout.removal.exists()


def blocked_queues(case: Case) -> None:
    assert not case.store.flags.behind
    assert case.store.recovery.unplaced_messages == ()


def identity(case: Case) -> None:
    """`store.json`: the store is the same one, whose log is shorter."""
    for name in ("uuid", "record_crc", "log_file_bytes"):
        found = [
            read_json(StoreLayout(path).store_json)[name]  # type: ignore[index]
            for path in (case.path, case.made.newer)
        ]
        assert found[0] == found[1]


def told(case: Case) -> None:
    """Recovery says so where it sees it; else a line in the log does."""
    if case.cause != "older store, grown, below newer states":
        if case.cause == "files lost, recover --force" or "grown before" in case.cause:
            return  # an open before this one said it
        text = str(case.store.recovery)
        assert "delay levels taken back" in text
        assert "timers taken back" in text
    groups = {(one.group, one.topic) for one in case.store.recovery.offsets_set_back}
    assert ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC") in groups


def places(case: Case) -> None:
    """What is stored from now on names this log."""
    case.store.close()
    with opened(case.path, case.clock, deliver_delayed=False) as store:
        segments = engine_of(store).reader.source.segments()
        levels_file: Any = read_json(case.layout.delay_offsets)
        groups_file: Any = read_json(case.layout.consumer_offsets)
        for document in (levels_file, groups_file):
            place = place_in(document["rocketstore"]["log"])
            assert place is not None
            assert stands(segments, place)
        place = timer_file.load(case.layout, TimerTable(), lambda: 1 << 40)
        assert place is not None
        assert stands(segments, place)
        assert store.recovery.offsets_set_back == ()


def no_faults(case: Case) -> None:
    case.store.close()
    assert verify(case.path).faults == ()


#: In this order: the last ones close the store.
STATES: Final[dict[str, Callable[[Case], None]]] = {
    "delay levels": levels,
    "timers": timers,
    "cancelled timers": cancelled,
    "beats": beats,
    "told": told,
    "half messages": half_messages,
    "ends of transactions": ends_of_transactions,
    "commits of transactions": commits_of_transactions,
    "offsets of groups": offsets_of_groups,
    "commit journal": commit_journal,
    "unique ids": unique_ids,
    "index": index,
    "queues": queues,
    "checkpoint": checkpoint,
    "positions": positions,
    "orders of recovery": orders_of_recovery,
    "blocked queues": blocked_queues,
    "identity": identity,
    "holds": lambda case: case.made.check_holds(case.store, case.cause),
    "places": places,
    "no faults": no_faults,
}

#: Which row of the table, or which other test, looks at a file; by its property of `StoreLayout`.
FILES: Final = {
    "consumer_offsets": "offsets of groups",
    "delay_offsets": "delay levels",
    "own_checkpoint": "checkpoint",
    "positions": "positions",
    "store_json": "identity",
    "recovery": "orders of recovery",
    "cut": "orders of recovery",
    "removal": "orders of recovery",
    "blocked_queues": "blocked queues",
    "queue_ends": "queues",
    "queue_files": "reserved",
    "group_offsets": "commit journal",
    "timers": "timers",
    "timer_state": "timers",
    "shipped": "tests/archive/test_changed_logs.py",
    "holds": "holds",
    "compacted": "tests/services/test_compaction_base.py",
    "retention": "a history: no offset of it is believed",
    "replication": "tests/replication/protocol/test_epochs.py",
    "live": "files of the log",
    "host_socket": "reserved",
    "quarantine": "copies of what was cut",
    "tmp": "emptied at each open",
    "journal": "reserved",
}


def test_every_state_by_a_cause(case: Case) -> None:
    for name, state in STATES.items():
        try:
            state(case)
        except BaseException as error:
            error.add_note(f"state: {name}")
            raise


def test_every_file_has_a_row(made: Made) -> None:
    """A new file beside the log says here what becomes of it where the log is another one."""
    layout = StoreLayout(made.newer)
    values = {
        name: getattr(layout, name)
        for name, value in vars(StoreLayout).items()
        if isinstance(value, cached_property)
    }
    inside = (layout.config, layout.own)
    named = {
        name: path
        for name, path in values.items()
        if isinstance(path, Path) and any(above in path.parents for above in inside)
    }
    assert set(named) == set(FILES)
    assert {row for row in FILES.values() if "/" not in row and ":" not in row} - {
        *STATES, "files of the log", "copies of what was cut", "emptied at each open", "reserved",
    } == set()  # fmt: skip
    there = {path for above in inside for path in above.iterdir()}
    assert there <= set(named.values())


# ---- what the table cannot show ----


def test_timers_whose_copies_alone_are_lost(tmp_path: Path) -> None:
    """The timer topic is as it was: only the bytes after it tell that the log is another one."""
    path, clock = tmp_path / "store", ManualClock(LATER_MS)
    with opened(path, clock) as store:
        for number in range(3):
            store.writer("orders").put(b"timer %d" % number, deliver_after=SECOND)
        border = roll(store)
        clock.advance(1)
        wait_until(lambda: number_of(store, b"timer") == 3)
    with (path / "commitlog" / f"{border:020d}").open("r+b") as file:
        file.write(bytes(SEGMENT))
    with opened(path, clock) as store:
        wait_until(lambda: number_of(store, b"timer") == 3)


def test_levels_of_a_broker_beyond_their_queue(tmp_path: Path) -> None:
    """What waits is delivered, and what was delivered is not again."""
    path, clock = tmp_path / "store", ManualClock(LATER_MS)
    with opened(path, clock) as store:
        for number in range(8):
            store.writer("orders").put(b"level %d" % number, delay_level=1 + number // 5)
        clock.advance(1)
        wait_until(lambda: number_of(store, b"level") == 5)
    StoreLayout(path).delay_offsets.write_text('{"offsetTable":{1:5,2:11}}')
    with opened(path, clock) as store:
        clock.advance(5)
        wait_until(lambda: len(store.delayed) == 0)
        assert Counter(bodies(store)) == {b"level %d" % number: 1 for number in range(8)}


@pytest.mark.parametrize("with_end", [False, True])
def test_a_copy_in_a_file_that_is_missing(tmp_path: Path, with_end: bool) -> None:
    """Where the end of the transaction is there, nobody says that it was rolled back, as no copy is
    found; where it is lost too, the transaction is open."""
    path = tmp_path / "store"
    with opened(path) as store:
        halves = [store.transactions.prepare("paid", b"half", group="g").id for _ in range(2)]
        store.transactions.commit(halves[0])
        (copy,) = read(store, "paid")
        border, empty = roll(store), store.writer("fill").put(b"")
        if not with_end:  # there is room for the copy, and not for the end
            left = SEGMENT - store.end_offset % SEGMENT
            store.writer("fill").put(bytes(left - empty.size - copy.size - 20))
        place = store.transactions.commit(halves[1])
        (_, end) = read(store, OP_TOPIC)
        assert place // SEGMENT == border // SEGMENT
        assert (end.physical_offset // SEGMENT == border // SEGMENT) == with_end
        roll(store)
    (path / "commitlog" / f"{border:020d}").unlink()
    shutil.rmtree(path / "consumequeue")
    with opened(path, force=True) as store:
        transactions = store.transactions
        assert [one.id for one in transactions.open()] == halves[1:] * with_end
        if with_end:
            assert transactions.commit(halves[1]) > border
        else:
            for asked in (transactions.commit, transactions.rollback):
                with pytest.raises(TransactionSettledError, match="lost its end") as raised:
                    asked(halves[1])
                assert raised.value.outcome == "unknown"
        assert transactions.commit(halves[0]) == copy.physical_offset
