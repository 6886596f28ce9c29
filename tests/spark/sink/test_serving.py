"""Commits that the process appends which has the store open: exactly once, whoever dies."""

from __future__ import annotations

import dataclasses
import os
import random
import threading
import time
from pathlib import Path

import pytest

import rocketstore
from rocketstore import StoreReadOnlyError
from rocketstore.spark import serve
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink import store_access
from rocketstore.spark.sink.cleanup import abandon, remove_orphans
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.handover import (
    AskedCommit,
    Request,
    inbox_directory,
    take,
    waiting,
)
from rocketstore.spark.sink.journal import Journal, sink_directory
from rocketstore.spark.sink.serve import StoreServer
from rocketstore.spark.sink.store_access import is_served, journal_lock
from rocketstore.tools import verify
from tests.spark.asking import PATIENCE_S, Asker, Gate
from tests.spark.owner import owner
from tests.spark.sink.test_committer import log_of, some_bodies
from tests.spark.staged import killed_at, stage_bodies
from tests.support.forking import fork
from tests.support.verifying import faults
from tests.support.waiting import wait_until

STEPS = ("taken", "checked", "begun", "appended 0", "appended 3", "flushed", "noted", "discarded")
STEPS += ("answered",)


def own_of(root: Path) -> list[int]:
    with rocketstore.open(root, "r") as store:
        return [int(message.body) for message in store.consumer("own")]


def left_in(directory: Path) -> list[str]:
    return sorted(os.listdir(directory)) if directory.exists() else []


def check(root: Path, bodies: list[bytes], version: int) -> None:
    """Once each, in order; the journal is at rest, nothing is left behind, the store is sound."""
    assert log_of(root) == [b"first", *bodies]
    journal = Journal(root)
    assert journal.pending() is None
    assert [entry["version"] for entry in journal.commits("query")] == list(range(version + 1))
    assert left_in(inbox_directory(str(root))) == []
    assert faults(verify(root)) == []


@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
def test_a_commit_is_appended_by_who_has_the_store(
    root: Path, rng: random.Random, durability: str
) -> None:
    """Several commits, with messages of the owner between them and between their frames."""
    bodies = some_bodies(rng, "a", 300)
    with owner(root, durability=durability) as running:
        for version in range(3):
            part = bodies[100 * version : 100 * version + 100]
            assert commit(str(root), "query", version, [stage_bodies(root, "1", part)])
            assert not commit(str(root), "query", version, [stage_bodies(root, "2", part)])
        own = running.end()
    assert own_of(root)[: len(own)] == own
    check(root, bodies, 2)
    assert list((sink_directory(root) / "staging").rglob("*.frames")) == []


def test_many_sinks_at_once_and_an_owner_that_dies(root: Path, rng: random.Random) -> None:
    """Each writer's versions once and in order, though one owner dies over them and another comes."""
    wanted = {f"w{n}": [some_bodies(rng, f"w{n}-{v}", 30) for v in range(3)] for n in range(4)}
    staged = {
        writer: [stage_bodies(root, f"{writer}-{n}", bodies) for n, bodies in enumerate(versions)]
        for writer, versions in wanted.items()
    }
    faults_seen: list[BaseException] = []

    def write(writer: str) -> None:
        try:
            for version, file in enumerate(staged[writer]):
                commit(str(root), writer, version, [file], lock_timeout_s=PATIENCE_S)
        except BaseException as error:
            faults_seen.append(error)

    sinks = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in wanted]
    with owner(root, "appended 2") as first:
        for sink in sinks:
            sink.start()
        assert first.killed
        own = first.end()
    for sink in sinks:
        sink.join(PATIENCE_S)
    assert faults_seen == [] and not any(sink.is_alive() for sink in sinks)
    assert own_of(root)[: len(own)] == own
    found = log_of(root)
    for writer, versions in wanted.items():
        mine = [body for body in found if body.startswith(writer.encode())]
        assert mine == [body for bodies in versions for body in bodies]
    assert len(found) == 1 + 4 * 3 * 30
    assert left_in(inbox_directory(str(root))) == [] and Journal(root).pending() is None
    assert faults(verify(root)) == []


@pytest.mark.parametrize("step", STEPS)
def test_the_owner_dies_at_each_step(root: Path, rng: random.Random, step: str) -> None:
    """The sink that waits takes the store itself and finishes what was begun."""
    bodies = some_bodies(rng, "a", 75)
    with owner(root, step) as running:
        commit(str(root), "query", 0, [stage_bodies(root, "1", bodies)], lock_timeout_s=PATIENCE_S)
        assert running.killed
        own = running.end()
    assert own_of(root)[: len(own)] == own
    check(root, bodies, 0)


@pytest.mark.parametrize("step", STEPS)
def test_owner_and_sink_die_and_another_owner_comes(
    root: Path, rng: random.Random, step: str
) -> None:
    """What the first owner had taken is finished by the next; the same version again changes nothing."""
    bodies = some_bodies(rng, "a", 75)
    with owner(root, step) as first:
        with pytest.raises(SystemExit):
            commit(str(root), "query", 0, [stage_bodies(root, "1", bodies)], on_step=leave)
        assert first.killed
        own = first.end()
    again = [stage_bodies(root, "2", bodies)]  # now: an owner removes the run that it has finished
    with owner(root) as second:
        commit(str(root), "query", 0, again, lock_timeout_s=PATIENCE_S)
        more = second.end()
    found = own_of(root)
    assert found[: len(own)] == own and found[len(found) - len(more) :] == more
    remove_orphans(str(root), age_s=-60)  # answers that nobody reads
    check(root, bodies, 0)


def leave(step: str) -> None:
    if step == "handed in":
        raise SystemExit


def test_a_sink_that_dies_after_handing_in(root: Path, rng: random.Random) -> None:
    bodies = some_bodies(rng, "a", 40)
    first, again = [stage_bodies(root, "1", bodies)], [stage_bodies(root, "2", bodies)]
    with owner(root) as running:
        assert killed_at("handed in", root, "query", 0, first)
        commit(str(root), "query", 0, again)
        running.end()
    remove_orphans(str(root), age_s=-60)
    check(root, bodies, 0)


def test_a_request_that_is_handed_in_twice(root: Path, rng: random.Random) -> None:
    """The same files under two names, as when a directory is restored."""
    bodies = some_bodies(rng, "a", 40)
    staged = [stage_bodies(root, "1", bodies)]
    requests = [Request(str(root), AskedCommit("query", 0, staged)) for _ in range(2)]
    for request in requests:
        request.hand_in()
    with rocketstore.open(root, durability="os") as store, serve(store):
        wait_until(lambda: all(request.answered for request in requests))
    assert sorted(request.answer() for request in requests) == [False, True]
    check(root, bodies, 0)


def test_what_is_not_taken_in_time_is_withdrawn(root: Path) -> None:
    """Either appended or withdrawn: afterwards nobody appends it, and a new try does."""
    gate = Gate("begun")
    with rocketstore.open(root, durability="os") as store, StoreServer(store, on_step=gate):
        first = Asker(root, 0, [stage_bodies(root, "1", [b"a"])], lock_timeout_s=PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        late = [stage_bodies(root, "2", [b"b"])]
        with pytest.raises(SparkFaceError, match=rf"RS_STORE_LOCKED.*{os.getpid()}.*not taken"):
            commit(str(root), "other", 0, late, lock_timeout_s=0.5)
        assert len(left_in(inbox_directory(str(root)))) == 1
        gate.open.set()
        assert first.result()
        abandon(str(root), late)
        assert not Path(late[0].path).exists()
        assert commit(str(root), "query", 1, [stage_bodies(root, "3", [b"c"])])
    check(root, [b"a", b"c"], 1)


def test_what_was_taken_is_not_withdrawn(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late it is; an owner that shows no sign of life is given up, the frames are not."""
    staged = [stage_bodies(root, "1", [b"a"])]
    request = Request(str(root), AskedCommit("query", 0, staged))
    request.hand_in()
    [file] = waiting(str(root))
    assert take(file) is not None and take(file) is None
    assert not request.withdraw()
    monkeypatch.setattr(store_access, "PROGRESS_TIMEOUT_S", 0.0)
    with journal_lock(str(root)), pytest.raises(SparkFaceError, match=r"RS_HANDED_OVER.*progress"):
        store_access.wait_for_answer(str(root), request, time.monotonic() - 1)
    abandon(str(root), staged)
    with rocketstore.open(root, durability="os") as store, serve(store):
        wait_until(lambda: request.answered)
    assert request.answer()
    check(root, [b"a"], 0)


def test_the_owner_ends_while_a_request_waits(root: Path) -> None:
    """Nobody has taken it: the sink takes the store, once it is closed."""
    gate = Gate("taken")
    store = rocketstore.open(root, durability="os")
    serving = StoreServer(store, on_step=gate)
    first = Asker(root, 0, [stage_bodies(root, "1", [b"a"])])
    assert gate.reached.wait(PATIENCE_S)
    handed = Gate("handed in")
    handed.open.set()
    second = Asker(root, 1, [stage_bodies(root, "2", [b"b"])], on_step=handed)
    assert handed.reached.wait(PATIENCE_S)
    ending = threading.Thread(target=serving.close)
    ending.start()
    gate.open.set()
    ending.join(PATIENCE_S)
    assert not serving.alive and first.result()
    store.close()
    assert second.result()
    check(root, [b"a", b"b"], 1)


@pytest.mark.parametrize("step", ["taken", "begun", "appended 1", "flushed"])
def test_the_store_is_closed_in_the_middle_of_a_commit(
    root: Path, rng: random.Random, step: str
) -> None:
    """The sink waits for the thread that served before it touches the journal."""
    bodies = some_bodies(rng, "a", 75)
    gate = Gate(step)
    store = rocketstore.open(root, durability="os")
    serving = StoreServer(store, on_step=gate)
    asker = Asker(root, 0, [stage_bodies(root, "1", bodies)], lock_timeout_s=PATIENCE_S)
    assert gate.reached.wait(PATIENCE_S)
    store.close()
    assert is_served(str(root))
    gate.open.set()
    asker.result()
    serving.close()
    check(root, bodies, 0)


def test_an_owner_that_cannot_append_says_so(root: Path) -> None:
    with rocketstore.open(root, durability="os") as store, serve(store) as serving:
        lost = stage_bodies(root, "1", [b"a"])
        Path(lost.path).unlink()
        with pytest.raises(SparkFaceError, match=rf"^\[RS_STAGED_LOST\].*process {os.getpid()}"):
            commit(str(root), "query", 0, [lost])
        Journal(root)
        (sink_directory(root) / "pending.json").write_text("[]")
        with pytest.raises(SparkFaceError, match="RS_JOURNAL_DAMAGED"):
            commit(str(root), "query", 0, [stage_bodies(root, "2", [b"a"])])
        (sink_directory(root) / "pending.json").unlink()
        assert serving.alive
        assert commit(str(root), "query", 0, [stage_bodies(root, "3", [b"a"])])
    check(root, [b"a"], 0)


def test_a_body_beyond_the_limit_of_the_owner_is_refused(root: Path) -> None:
    small = {"durability": "os", "max_message_size_bytes": 1000}
    with rocketstore.open(root, **small) as store, serve(store):  # type: ignore[arg-type]
        staged = dataclasses.replace(stage_bodies(root, "1", [bytes(1001)]), largest_body=1001)
        with pytest.raises(SparkFaceError, match=r"^\[RS_REFUSED\].*1001 bytes.*said by"):
            commit(str(root), "query", 0, [staged])
        assert commit(str(root), "query", 0, [stage_bodies(root, "2", [bytes(1000)])])
    check(root, [bytes(1000)], 0)


def test_only_a_store_that_is_open_for_writing_is_served_and_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rocketstore.open(root, "r") as store, pytest.raises(StoreReadOnlyError):
        serve(store)
    with rocketstore.open(root, durability="os") as store:
        with serve(store):
            assert is_served(str(root))
            monkeypatch.setattr("rocketstore.spark.sink.store_access.JOURNAL_TIMEOUT_S", 0.1)
            with pytest.raises(SparkFaceError, match="RS_JOURNAL_BUSY"):
                serve(store)
        assert not is_served(str(root))


def test_a_forked_child_does_not_serve(root: Path) -> None:
    """Nor does it keep the lock when its parent has ended."""
    reading, writing = os.pipe()
    with rocketstore.open(root, durability="os") as store:
        with serve(store):
            child = fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)  # until the parent has seen what it wants
                os._exit(0)
            assert is_served(str(root))
        assert not is_served(str(root))
    os.close(writing)
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0


def test_a_thread_that_fails_is_heard_of(root: Path) -> None:

    def fail(step: str) -> None:
        raise ZeroDivisionError(step)

    with rocketstore.open(root, durability="os") as store:
        serving = StoreServer(store, on_step=fail)
        with pytest.raises(SparkFaceError, match=r"RS_HANDED_OVER.*does not serve"):
            commit(str(root), "query", 0, [stage_bodies(root, "1", [b"a"])], lock_timeout_s=5)
        with pytest.raises(ZeroDivisionError):
            serving.close()
        with serve(store):
            assert not commit(str(root), "query", 0, [stage_bodies(root, "2", [b"a"])])
    remove_orphans(str(root), age_s=-60)
    check(root, [b"a"], 0)


def test_a_write_that_is_given_up_keeps_what_was_begun(root: Path, rng: random.Random) -> None:
    """Spark drops the files of a commit that failed; one that was begun still needs them."""
    bodies = some_bodies(rng, "a", 75)
    staged = [stage_bodies(root, "1", bodies)]
    assert killed_at("appended 3", root, "query", 0, staged)
    abandon(str(root), staged)
    assert not commit(str(root), "query", 0, [stage_bodies(root, "2", bodies)])
    unasked = [stage_bodies(root, "3", [b"b"])]
    Request(str(root), AskedCommit("query", 1, unasked)).hand_in()
    abandon(str(root), unasked)
    assert left_in(inbox_directory(str(root))) == [] and not Path(unasked[0].path).exists()
    check(root, bodies, 0)


def test_a_message_of_the_owner_is_not_taken_for_a_frame(root: Path, rng: random.Random) -> None:
    """Bodies of the owner that stand in frames, too: other born times tell them apart."""
    bodies = some_bodies(rng, "a", 60)
    gate = Gate("appended 2")
    store = rocketstore.open(root, durability="os")
    serving = StoreServer(store, on_step=gate)
    asker = Asker(root, 0, [stage_bodies(root, "1", bodies)], lock_timeout_s=PATIENCE_S)
    assert gate.reached.wait(PATIENCE_S)
    for body in bodies[30:]:
        store.writer("t", queue_id=3).put(body)
    store.close()
    gate.open.set()
    asker.result()
    serving.close()
    with rocketstore.open(root, "r") as store:
        found = [m for q in range(3) for m in store.consumer("t", queue_id=q)]
        assert [m.body for m in store.consumer("t", queue_id=3)] == bodies[30:]
    found.sort(key=lambda m: m.physical_offset)
    assert [m.body for m in found] == [b"first", *bodies]
    assert faults(verify(root)) == []
