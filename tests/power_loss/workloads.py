"""What the recorded process does: every flush mode and every kind of file, on files of a few pages."""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rocketstore import BackpressureError, DiskFullError, Durability, Retention, StoreFailedError
from rocketstore.services.delay import offsets, timer_table
from rocketstore.services.delay.service import DelayService
from tests.power_loss.expectation import BATCH, KEYED, body_of
from tests.power_loss.oracle import leave
from tests.support.small_store import engine_of, parts

if TYPE_CHECKING:
    from tests.power_loss.writer import Run

__all__ = ["WORKLOADS", "Workload", "go_on"]

SEGMENT = 16384
#: Queues of one record of a commit that does not fit into a sector.
WIDE = 20
SMALL: dict[str, Any] = {
    "commit_log_file_size_bytes": SEGMENT,
    "consume_queue_file_size_bytes": 400,
    "index_slots": 8,
    "index_entries": 32,
    "max_message_size_bytes": 6000,
    "write_buffer_bytes": 65536,
    "max_unflushed_bytes": 65536,
}


@dataclass(frozen=True)
class Workload:
    """`run` makes a new store and leaves it in some state; `limit_bytes` of disk, -1 for enough."""

    run: Callable[[Run], None]
    options: dict[str, Any] = field(default_factory=dict)
    limit_bytes: int = -1
    slow_sync_us: int = 0


def size(run: Run) -> int:
    """Mostly small, now and then several pages."""
    return run.rng.choice((40, 200, 700, 1500, run.rng.randrange(1, 6000)))


def some(run: Run, count: int, **options: Any) -> None:
    """Single messages to three queues, with what else happens to a store now and then."""
    for _ in range(count):
        topic, queue_id = run.rng.choice((("orders", 0), ("orders", 1), ("bills", 0)))
        run.put(topic, queue_id, size(run), **options)
        if run.rng.random() < 0.08:
            run.save_checkpoint()


def single(run: Run) -> None:
    run.open()
    some(run, 40)
    run.close()
    run.open()
    some(run, 15)
    run.die()
    run.open()
    some(run, 5)
    run.close()


def batches(run: Run) -> None:
    run.open()
    _put_batches(run)


def written_batches(run: Run) -> None:
    """By calls, to the files whose pages are stored to."""
    log = parts(run.open()).commit_log.log
    assert log.through is not None
    log.through.least_bytes = 2000
    _put_batches(run)


def guests(run: Run) -> None:
    """What guests put has the promises of their host; one of them is the host once that is dead."""
    for _ in range(2):
        run.open(shared="host")
        with run.as_guest():
            _put_as_guest(run)
        run.close()
    run.open(shared="host")
    with run.as_guest(True) as host:
        _put_as_guest(run)
        leave(host)
        _put_as_guest(run)
    run.open()
    some(run, 4)
    run.close()


def _put_as_guest(run: Run) -> None:
    for _ in range(12):
        topic, queue_id = run.rng.choice((("orders", 0), ("orders", 1), ("bills", 0)))
        run.put(topic, queue_id, size(run), durability=run.rng.choice((None, "os", "disk")))
    _put_some_batches(run, 4)
    for _ in range(3):
        run.put("in", 0, 40)
        run.transact([40, 700], group="group0", durability="disk")
    run.commit("orders", "group1")


def _put_batches(run: Run) -> None:
    _put_some_batches(run, 14)
    run.close()


def _put_some_batches(run: Run, count: int) -> None:
    for n in range(count):
        queue_id = n % 2
        count = run.rng.randrange(2, 9)
        number = run.next_number("orders", queue_id, count)
        bodies = [body_of(run.life, number + i, run.rng.randrange(1, 1500)) for i in range(count)]
        writer = run.store.writer("orders", queue_id=queue_id)
        if n % 3:
            result = writer.put_batch(bodies, tags=BATCH[0], keys=BATCH[1])
        else:
            offsets = [sum(map(len, bodies[:i])) for i in range(count + 1)]
            result = writer.put_columns((offsets, b"".join(bodies)), tags=BATCH[0], keys=BATCH[1])
        run.done("orders", queue_id, result)
        if n % 5 == 0 and run.shares is None:
            run.save_checkpoint()


def threads(run: Run) -> None:
    """Group commit: each thread has a queue of its own, some messages are submitted without waiting."""
    run.open()

    def work(queue_id: int) -> None:
        for n in range(12):
            run.put("orders", queue_id, 40 + 97 * ((queue_id + 3) * n % 13))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    run.save_checkpoint()
    run.close()


def system(run: Run) -> None:
    """The mapped path: acknowledged by the page cache, flushed when somebody asks or time has come."""
    run.open()
    _save_between_steps(run)
    for _ in range(12):
        some(run, run.rng.randrange(1, 6))
        if run.rng.random() < 0.6:
            run.flush()
        if run.rng.random() < 0.3:
            run.put("orders", 0, size(run), durability="disk")
    run.die()
    run.open()
    some(run, 6)
    run.close()


def _save_between_steps(run: Run) -> None:
    """Checkpoints come when they come, so also while a long flush is at work."""
    write = parts(run.store)
    check = write.live.check

    def check_and_save() -> None:
        check()
        write.checkpointer.save(derived=True)

    write.live.check = check_and_save


def many_queues(run: Run) -> None:
    """More queues than are synced one by one."""
    run.open()
    for n in range(90):
        run.put("orders" if n % 2 else "bills", n % 72 // 2, 60 + n, durability="os")
        if n % 40 == 39:
            run.save_checkpoint()
    run.flush()
    run.close()


def groups(run: Run) -> None:
    """Consumer groups store offsets between puts."""
    run.open()
    for n in range(9):
        some(run, 4)
        if n:
            topic = "orders" if n % 3 else "bills"
            if topic in run.store.topics(system=True):
                run.commit(topic, f"group{n % 2}")
    run.close()
    run.open()
    some(run, 4)
    run.commit("orders", "group0")
    run.close()


def journal(run: Run) -> None:
    """Groups commit far more often than RocketMQ's file is written, durably or not, also backwards;
    a record of all queues has several sectors."""
    run.open()
    for queue_id in range(WIDE):
        for _ in range(4):
            run.put("wide", queue_id, 40)
    _commit_often(run)
    run.die()
    run.open()
    _commit_often(run)
    run.close()
    run.open()
    _commit_often(run)
    run.die()


def _commit_often(run: Run) -> None:
    for _ in range(30):
        group, way = f"group{run.rng.randrange(2)}", run.rng.random()
        durability: Literal["disk", "os"] = run.rng.choice(("disk", "disk", "os"))
        if way < 0.15:
            run.put("wide", run.rng.randrange(WIDE), 40)
        elif way < 0.25:
            run.merge_commits()
        elif way < 0.6:
            upto = dict.fromkeys(range(WIDE), run.rng.randrange(1, 5))
            run.commit("wide", group, upto, durability)
        else:
            queue_id = run.rng.randrange(4)
            end = run.store.max_queue_offset("wide", queue_id)
            upto = {queue_id: run.rng.randrange(end + 1)}
            run.commit("wide", group, upto, durability)


def transactions(run: Run) -> None:
    """Messages of several queues and offsets of their group, together; between them single ones."""
    run.open()
    _transact(run)
    run.die()
    run.open()
    _transact(run)
    run.close()
    run.open()
    _transact(run)
    run.die()


def _transact(run: Run) -> None:
    for n in range(9):
        run.put("in", 0, 40)
        sizes = [run.rng.choice((40, 700, 1000)) for _ in range(run.rng.randrange(2, 5))]
        durability: Durability = run.rng.choice(("disk", "os", "os", "memory"))
        run.transact(sizes, group=None if n % 3 else "group0", durability=durability)
        if run.rng.random() < 0.2:
            run.merge_commits()
        if run.rng.random() < 0.2:
            run.save_checkpoint()


def trimmed(run: Run) -> None:
    """Old segments, queue files and index files go."""
    run.open()
    for _ in range(3):
        some(run, 36)
        run.trim()
    run.die()
    run.open()
    some(run, 6)
    run.close()


def retained(run: Run) -> None:
    """A rule removes what a group has consumed, and leaves what no archive has."""
    held = Retention(max_bytes=2 * SEGMENT, keep_unconsumed_by=["group0"])
    run.open()
    for n in range(3):
        some(run, 30)
        if n:
            run.commit("orders", "group0")
        run.retain(held)
    run.die()
    run.open()
    some(run, 6)
    run.retain(Retention(max_bytes=2 * SEGMENT, keep_unshipped=True))
    run.retain(Retention(max_bytes=2 * SEGMENT))
    run.close()


def latest(run: Run) -> None:
    """The latest message of each key goes to the end before its segment goes, and into stores next to this
    one, each of which goes on from the one before."""
    held = Retention(max_bytes=SEGMENT, keep_latest_of=[KEYED])
    for leaves in (run.close, run.die, run.close):
        run.open()
        for _ in range(2):
            run.set_keys(9)
            some(run, 12)
            if run.rng.random() < 0.5:
                run.compact()
            run.retain(held)
        leaves()


def delayed(run: Run) -> None:
    """Messages wait for a level or for a time of their own, are cancelled, are put again, and are
    delivered."""
    run_sizes(run)
    for _ in range(3):
        offsets.SAVE_AFTER_S = run.rng.choice((0.0, 0.02, 1.0))
        run.open(deliver_delayed=True, clock=run.clock)
        if run.rng.random() < 0.7:
            run.repeat()
        for _ in range(3):
            for _ in range(run.rng.randrange(3, 10)):
                after = datetime.timedelta(milliseconds=run.rng.randrange(1, 4000))
                level: dict[str, Any] = {"delay_level": 1}
                run.delay(**(level if run.rng.random() < 0.3 else {"deliver_after": after}))
                some(run, run.rng.randrange(2))
            if run.rng.random() < 0.5:
                run.cancel()
            if run.rng.random() < 0.5:
                some(run, 40)
                run.roll()
            run.pass_time(run.rng.choice((0.5, 1.5, 3)))
        service = engine_of(run.store).guests.made(DelayService)
        if service is not None and run.rng.random() < 0.7:
            service._thread.finish = lambda: None  # type: ignore[method-assign]
        run.die()
    run.open(deliver_delayed=True, clock=run.clock)
    run.pass_time(2)
    run.close()


def run_sizes(run: Run) -> None:
    """Runs of a few entries."""
    timer_table.RECENT, timer_table.LIKE = 4, 3  # type: ignore[misc]


def failed_sync(run: Run) -> None:
    """The disk refuses a sync of the log once. Nothing but closing and recovering helps."""
    run.open()
    some(run, 10)
    run.flush()
    for _ in range(2):
        some(run, 4)
        segment = sorted((run.root / "commitlog").iterdir())[run.store.end_offset // SEGMENT]
        run.fail_syncs(segment, 1)
        with contextlib.suppress(StoreFailedError):
            for _ in range(2):
                run.put("orders", 1, 5000)  # pages behind the one that the last sync ended in
            run.put("orders", 0, 300, durability="disk")
            some(run, 3, durability="disk")
        run.die()
        run.open()
        some(run, 5, durability="disk")
    run.close()


def full_disk(run: Run) -> None:
    """The disk has no room for another segment."""
    run.open()
    with contextlib.suppress(DiskFullError, StoreFailedError, BackpressureError):
        for _ in range(60):
            some(run, 5)
            run.flush()
    run.die()


SYSTEM = {**SMALL, "durability": "os", "flush_interval_ms": 20}
MEMORY = {**SMALL, "durability": "memory", "commit_interval_ms": 5, "flush_interval_ms": 20}

#: Images are opened without delivery, but for the look at what is delivered.
LATER = {**SMALL, "delay_levels": "1s 2s", "deliver_delayed": False}

WORKLOADS = {
    "single": Workload(single, SMALL),
    "prewritten": Workload(single, {**SMALL, "prewrite": True}),
    "batches": Workload(batches, SMALL),
    "batches in the system": Workload(batches, SYSTEM),
    "written batches": Workload(written_batches, SYSTEM),
    "threads": Workload(threads, SMALL, slow_sync_us=200),
    "guests": Workload(guests, SMALL),
    "system": Workload(system, SYSTEM),
    "memory": Workload(system, MEMORY),
    "many queues": Workload(many_queues, SMALL),
    "groups": Workload(groups, SMALL),
    "journal of commits": Workload(journal, SYSTEM),
    "transactions": Workload(transactions, SMALL),
    "transactions in the system": Workload(transactions, SYSTEM),
    "trimmed": Workload(trimmed, SMALL),
    "trimmed in the system": Workload(trimmed, SYSTEM),
    "retained": Workload(retained, SMALL),
    "retained in the system": Workload(retained, SYSTEM),
    "latest": Workload(latest, SMALL),
    "latest in the system": Workload(latest, SYSTEM),
    "delayed": Workload(delayed, LATER),
    "delayed in the system": Workload(delayed, {**SYSTEM, **LATER, "durability": "os"}),
    "failed sync": Workload(failed_sync, SYSTEM),
    "full disk": Workload(full_disk, {**SYSTEM, "max_wait_ms": 200}, limit_bytes=240 * 1024),
}


def go_on(run: Run) -> None:
    """Recovers what a loss of power has left, and goes on: a cut of this is a cut during recovery."""
    run.open()
    some(run, 6)
    run.flush()
    run.die()
    run.open()
    some(run, 3)
    run.close()
