"""Commits that the process appends which has the store open: exactly once, whoever dies."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import StoreClosedError, StoreReadOnlyError
from rocketstore.sharing import host
from rocketstore.spark import serve
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink import cleanup, store_access
from rocketstore.spark.sink import commit as commit_module
from rocketstore.spark.sink import serve as serving
from rocketstore.spark.sink.cleanup import abandon
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Journal, sink_directory
from rocketstore.spark.sink.store_access import journal_lock
from rocketstore.tools import verify
from tests.process.other_process import other_process
from tests.sharing.links import GUEST
from tests.spark.asking import PATIENCE_S, Gate, asked, at_steps
from tests.spark.owner import owner
from tests.spark.sink.test_committer import log_of, some_bodies
from tests.spark.staged import stage_bodies
from tests.support.forking import fork
from tests.support.verifying import faults
from tests.support.waiting import wait_until

STEPS = ("taken", "checked", "begun", "appended 0", "appended 3", "flushed", "noted", "discarded")
STEPS += ("done",)


@pytest.fixture
def quick_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store does not wait long for the calls of those whose threads a test holds."""
    monkeypatch.setattr(host, "STOP_S", 0.2)
    monkeypatch.setattr(host, "LATE_S", 0.1)


def own_of(root: Path) -> list[int]:
    with rocketstore.open(root, "r") as store:
        return [int(message.body) for message in store.consumer("own")]


def check(root: Path, bodies: list[bytes], version: int) -> None:
    """Once each, in order; the journal is at rest, the store is sound."""
    assert log_of(root) == [b"first", *bodies]
    journal = Journal(root)
    assert journal.pending() is None
    assert [entry["version"] for entry in journal.commits("query")] == list(range(version + 1))
    assert not (sink_directory(root) / "inbox").exists()
    assert faults(verify(root)) == []


@pytest.mark.parametrize(
    ("durability", "shared"), [("os", ""), ("disk", ""), ("memory", ""), ("os", "host")]
)
def test_a_commit_is_appended_by_who_has_the_store(
    root: Path, rng: random.Random, durability: str, shared: str
) -> None:
    """Several commits, with messages of the owner between them and between their frames. A store that is shared needs
    no `serve`."""
    bodies = some_bodies(rng, "a", 300)
    with owner(root, durability=durability, shared=shared) as running:
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

    def write(writer: str) -> None:
        for version, file in enumerate(staged[writer]):
            commit(str(root), writer, version, [file], lock_timeout_s=PATIENCE_S)

    with owner(root, "appended 2") as first, ThreadPoolExecutor(len(wanted)) as pool:
        sinks = [pool.submit(write, writer) for writer in wanted]
        assert first.killed
        own = first.end()
        for sink in sinks:
            sink.result(PATIENCE_S)
    assert own_of(root)[: len(own)] == own
    found = log_of(root)
    for writer, versions in wanted.items():
        mine = [body for body in found if body.startswith(writer.encode())]
        assert mine == [body for bodies in versions for body in bodies]
    assert len(found) == 1 + 4 * 3 * 30
    assert Journal(root).pending() is None
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
    root: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What the first owner had begun is finished by the next; the same version again changes nothing."""

    def die(*_: object) -> None:
        raise SystemExit

    bodies = some_bodies(rng, "a", 75)
    with owner(root, step) as first, monkeypatch.context() as patched:
        patched.setattr(store_access, "open_for", die)  # once the owner is gone
        with pytest.raises(SystemExit):
            commit(str(root), "query", 0, [stage_bodies(root, "1", bodies)])
        assert first.killed
        own = first.end()
    again = [stage_bodies(root, "2", bodies)]
    with owner(root) as second:
        commit(str(root), "query", 0, again, lock_timeout_s=PATIENCE_S)
        more = second.end()
    found = own_of(root)
    assert found[: len(own)] == own and found[len(found) - len(more) :] == more
    check(root, bodies, 0)


@pytest.mark.parametrize("step", ["taken", "begun", "noted"])
def test_a_sink_that_dies_after_handing_in(root: Path, rng: random.Random, step: str) -> None:
    """The commit is made all the same; the same version is not written again."""
    bodies = some_bodies(rng, "a", 40)
    first, again = [stage_bodies(root, "1", bodies)], [stage_bodies(root, "2", bodies)]
    gate = Gate(step)
    with rocketstore.open(root, durability="os") as store, serve(store), at_steps(gate):
        child = fork()
        if child == 0:
            commit(str(root), "query", 0, first)
            os._exit(0)
        assert gate.reached.wait(PATIENCE_S)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        gate.open.set()
        assert not commit(str(root), "query", 0, again)
    check(root, bodies, 0)


@pytest.mark.parametrize("step", ["taken", "begun"])
def test_what_was_taken_is_not_given_up(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """An owner that does not answer is given up, the frames are not. What it has not begun in time is: a new try
    appends it."""
    staged, late = [stage_bodies(root, "1", [b"a"])], [stage_bodies(root, "2", [b"b"])]
    gate = Gate(step)
    with rocketstore.open(root, durability="os") as store, serve(store), at_steps(gate):
        with monkeypatch.context() as patched:
            patched.setattr(commit_module, "ANSWER_S", 0.2)
            patched.setattr(cleanup, "ABANDON_S", 0.1)
            with pytest.raises(SparkFaceError, match=rf"RS_HANDED_OVER.*{os.getpid()}.*in time"):
                commit(str(root), "query", 0, staged, lock_timeout_s=0.1)
            assert not abandon(str(root), staged)
        with pytest.raises(SparkFaceError, match=rf"RS_JOURNAL_BUSY.*lockTimeoutS.*{os.getpid()}"):
            commit(str(root), "query", 1, late, lock_timeout_s=0.1)
        gate.open.set()
        assert abandon(str(root), late) and not Path(late[0].path).exists()
        assert not commit(str(root), "query", 0, [stage_bodies(root, "3", [b"a"])])
        assert commit(str(root), "query", 1, [stage_bodies(root, "4", [b"c"])])
    check(root, [b"a", b"c"], 1)


def test_what_is_given_up_before_it_begins_is_not_appended(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner finds no files any more, whenever it goes on."""
    monkeypatch.setattr(commit_module, "ANSWER_S", 0.2)
    staged, gate = [stage_bodies(root, "1", [b"a"])], Gate("")

    def held(path: str, timeout_s: float, *more: Any) -> AbstractContextManager[None]:
        gate("")
        return journal_lock(path, timeout_s)

    with rocketstore.open(root, durability="os") as store, serve(store):
        with monkeypatch.context() as patched:
            patched.setattr(serving, "journal_lock", held)
            with pytest.raises(SparkFaceError, match="RS_HANDED_OVER"):
                commit(str(root), "query", 0, staged, lock_timeout_s=0.1)
        assert abandon(str(root), staged)
        gate.open.set()
        wait_until(lambda: not sum(one.in_flight for one in store.stats().guests))
        assert Journal(root).pending() is None
        assert commit(str(root), "query", 0, [stage_bodies(root, "2", [b"b"])])
    check(root, [b"b"], 0)


@pytest.mark.parametrize("step", ["taken", "begun", "appended 1", "flushed"])
def test_the_store_is_closed_in_the_middle_of_a_commit(
    root: Path, rng: random.Random, quick_end: None, step: str
) -> None:
    """The sink waits for the thread that served before it touches the journal."""
    bodies = some_bodies(rng, "a", 75)
    gate = Gate(step)
    store = rocketstore.open(root, durability="os")
    with at_steps(gate):
        serve(store)
        asker = asked(root, 0, [stage_bodies(root, "1", bodies)], lock_timeout_s=PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        store.close()
        with pytest.raises(SparkFaceError, match="JOURNAL_BUSY"), journal_lock(str(root), 0.1):
            pass
        gate.open.set()
        asker.result(PATIENCE_S)
    check(root, bodies, 0)


def test_an_owner_that_cannot_append_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(step: str) -> None:
        raise ZeroDivisionError(step)

    said = rf".*\(said by process {os.getpid()}\)"
    with rocketstore.open(root, durability="os") as store, serve(store) as server:
        lost = stage_bodies(root, "1", [b"a"])
        Path(lost.path).unlink()
        with pytest.raises(SparkFaceError, match=rf"^\[RS_STAGED_LOST\]{said}"):
            commit(str(root), "query", 0, [lost])
        Journal(root)
        (sink_directory(root) / "pending.json").write_text("[]")
        with pytest.raises(SparkFaceError, match="RS_JOURNAL_DAMAGED"):
            commit(str(root), "query", 0, [stage_bodies(root, "2", [b"a"])])
        (sink_directory(root) / "pending.json").unlink()
        staged = [stage_bodies(root, "3", [b"a"])]
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "begin", full)
            with pytest.raises(SparkFaceError, match=rf"RS_OWNER_FAILED\] OSError: .*space{said}"):
                commit(str(root), "query", 0, staged)
        with at_steps(fail), pytest.raises(SparkFaceError, match="RS_WRITE_FAILED.*ZeroDivision"):
            commit(str(root), "query", 0, staged)
        assert server.alive
        assert commit(str(root), "query", 0, staged)
    check(root, [b"a"], 0)


def test_what_is_too_large_for_the_owner_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body, or a commit of more files than a call takes."""
    monkeypatch.setattr(host, "REQUEST_BYTES", 0)
    staged = dataclasses.replace(stage_bodies(root, "1", [bytes(1001)]), largest_body=1001)
    with rocketstore.open(root, max_message_size_bytes=1000) as store, serve(store):
        with pytest.raises(SparkFaceError, match=r"^\[RS_REFUSED\].*1001 bytes.*said by"):
            commit(str(root), "query", 0, [staged])
        fits = [stage_bodies(root, "2", [bytes(1000)])]
        with pytest.raises(SparkFaceError, match=r"RS_WRITE_FAILED.*takes 1000 at once"):
            commit(str(root), "query", 0, 9 * fits)
        assert commit(str(root), "query", 0, fits)
    check(root, [bytes(1000)], 0)


def test_which_stores_are_served(root: Path) -> None:
    """A store is served until it is closed, however often one asks; a guest's host serves already."""
    with rocketstore.open(root, "r") as store, pytest.raises(StoreReadOnlyError):
        serve(store)
    with rocketstore.open(root, durability="os") as store:
        with serve(store):
            with serve(store) as second:
                assert second.alive
            assert commit(str(root), "query", 0, [stage_bodies(root, "1", [b"a"])])
            with rocketstore.open(root, shared="guest") as guest, serve(guest):
                pass
        staged = [stage_bodies(root, "2", [b"b"])]
        with serve(store) as third:
            assert commit(str(root), "query", 1, staged)
    assert not third.alive
    with pytest.raises(StoreClosedError):
        serve(store)
    check(root, [b"a", b"b"], 1)


def test_a_guest_that_holds_the_store_itself(root: Path) -> None:
    """The host dies, and a guest of this process takes its place: it is asked as any host is."""
    with other_process(
        *(GUEST, root), shared=True, durability="os", max_message_size_bytes=8 << 10,
        commit_log_file_size_bytes=16 << 10, consume_queue_file_size_bytes=200,
    ) as first:  # fmt: skip
        assert first.line() == "open"
        with rocketstore.open(root, shared=True, durability="os") as guest:
            assert commit(str(root), "query", 0, [stage_bodies(root, "1", [b"a"])])
            lost = stage_bodies(root, "2", [b"a"])
            Path(lost.path).unlink()
            with pytest.raises(SparkFaceError, match=rf"STAGED_LOST.*process {first.pid}\)"):
                commit(str(root), "query", 1, [lost])
            first.kill()
            wait_until(lambda: guest.stats().host_pid == os.getpid())
            with pytest.raises(SparkFaceError, match=rf"STAGED_LOST.*process {os.getpid()}\)"):
                commit(str(root), "query", 1, [lost])
            assert commit(str(root), "query", 1, [stage_bodies(root, "3", [b"b"])])
    check(root, [b"a", b"b"], 1)


def test_an_owner_that_is_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the lock, and takes nothing. It goes on, and takes the next one."""
    monkeypatch.setattr(store_access, "HELLO_S", 0.2)
    staged = [stage_bodies(root, "1", [b"a"])]
    with owner(root) as running:
        os.kill(running.process.pid, signal.SIGSTOP)
        with pytest.raises(SparkFaceError, match=rf"RS_STORE_LOCKED.*{running.process.pid}"):
            commit(str(root), "query", 0, staged, lock_timeout_s=0.1)
        os.kill(running.process.pid, signal.SIGCONT)
        assert commit(str(root), "query", 0, staged)
        running.end()
    check(root, [b"a"], 0)


def test_owners_that_end_over_a_commit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for ever: the outcome is open then."""

    def ends(*_: object) -> Any:
        raise ConnectionResetError("the host has ended")

    with monkeypatch.context() as patched, rocketstore.open(root, durability="os"):
        patched.setattr("rocketstore.sharing.ask_host", ends)
        patched.setattr(store_access, "RETRY_S", 0.0)
        with pytest.raises(SparkFaceError, match=r"RS_HANDED_OVER.*has ended"):
            commit(str(root), "query", 0, [stage_bodies(root, "1", [b"a"])])


def test_an_owner_of_a_release_that_takes_no_commits(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "CALLS", {})
    with (
        rocketstore.open(root, shared="host", durability="os"),
        pytest.raises(SparkFaceError, match=r"RS_WRITE_FAILED.*upgrade it there"),
    ):
        commit(str(root), "query", 0, [stage_bodies(root, "1", [b"a"])])


def test_a_message_of_the_owner_is_not_taken_for_a_frame(
    root: Path, rng: random.Random, quick_end: None
) -> None:
    """Bodies of the owner that stand in frames, too: other born times tell them apart."""
    bodies = some_bodies(rng, "a", 60)
    gate = Gate("appended 2")
    store = rocketstore.open(root, durability="os")
    with at_steps(gate):
        serve(store)
        asker = asked(root, 0, [stage_bodies(root, "1", bodies)], lock_timeout_s=PATIENCE_S)
        assert gate.reached.wait(PATIENCE_S)
        for body in bodies[30:]:
            store.writer("t", queue_id=3).put(body)
        store.close()
        gate.open.set()
        asker.result(PATIENCE_S)
    with rocketstore.open(root, "r") as store:
        found = [m for q in range(3) for m in store.consumer("t", queue_id=q)]
        assert [m.body for m in store.consumer("t", queue_id=3)] == bodies[30:]
    found.sort(key=lambda m: m.physical_offset)
    assert [m.body for m in found] == [b"first", *bodies]
    assert faults(verify(root)) == []


def test_a_store_that_closes_while_a_commit_waits(root: Path) -> None:
    """The wait ends with the store; the sink commits by itself then."""
    store = rocketstore.open(root, durability="os", shared="host")
    staged = [stage_bodies(root, "1", [b"a"])]
    with ThreadPoolExecutor(1) as pool, journal_lock(str(root)):
        asked = pool.submit(partial(commit, lock_timeout_s=3600), str(root), "query", 0, staged)
        wait_until(lambda: any(one.in_flight for one in store.stats().guests))
        store.close()
        # The journal is still held: nothing of the store waits for it any more.
        wait_until(lambda: not any("rocketstore-guest" in t.name for t in threading.enumerate()))
    assert asked.result(60)
    check(root, [b"a"], 0)
