"""A crash at any step of a transaction leaves all of it, or nothing (decision 0038)."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.log.worker import Worker
from tests.power_loss.oracle import leave
from tests.support.copies import copy_if_there
from tests.support.forking import die, in_child
from tests.support.small_store import engine_of, everything, open_still
from tests.support.transactions import (
    ALL,
    BIG,
    GROUP,
    NOTHING,
    RECORDS,
    THREE,
    Died,
    died,
    filled,
    open_small,
    record_alone,
    state,
    work,
)

commits: Any = importlib.import_module("rocketstore.services.transactions.commits")


def die_behind_the_record(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record alone reaches the disk, no copy does."""
    with monkeypatch.context() as patch:
        patch.setattr(commits, "append_batch", record_alone)
        patch.setattr(commits.Commits, "_settle", died)
        with pytest.raises(Died):
            work(store)
        engine_of(store).guests._made.clear()
        leave(store)


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.parametrize(
    ("step", "want"),
    [("_append", NOTHING), ("_wait", ALL), ("_settle", ALL), ("_hold", ALL), ("", ALL)],
)
def test_a_stop_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, want: Any, durability: str
) -> None:
    store = filled(tmp_path, durability=durability)
    with store.transaction() as tx:  # a progress
        tx.put("else", b"")
    with monkeypatch.context() as patch:
        if step == "_hold":
            patch.setattr(engine_of(store).offsets, "commit_moves", died)
        elif step:
            patch.setattr(commits.Commits, step, died)
        try:
            work(store)
        except Died:
            assert step
        engine_of(store).guests._made.clear()  # its stop would do the rest
        leave(store)
    for _ in range(2):
        with open_small(tmp_path) as store:
            assert state(store) == want


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize(
    ("step", "want"),
    [("_append", NOTHING), ("_wait", ALL), ("_settle", ALL), ("journal", ALL), ("end", ALL)],
)
def test_a_kill_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, step: str, want: Any, durability: str
) -> None:
    filled(tmp_path).close()

    def killed() -> None:
        store = open_small(tmp_path, durability=durability)
        if step == "journal":
            engine_of(store).offsets._journal.add = die  # type: ignore
        elif step != "end":
            setattr(commits.Commits, step, die)
        work(store)
        die()

    assert in_child(killed) == -9
    with open_small(tmp_path) as store:
        found = state(store)
    # The bytes of a put that waits for the disk are not in the system before its flush begins.
    assert found == want or (step, durability, found) == ("_wait", "disk", NOTHING)
    with open_small(tmp_path) as store:
        assert state(store) == found


def test_a_log_that_ends_anywhere_in_a_commit_has_all_of_it_or_nothing(tmp_path: Path) -> None:
    """The batch survives a loss of power as any prefix: its record decides."""
    store = filled(tmp_path / "store")
    store.flush()
    begin = store.end_offset
    shutil.copytree(tmp_path / "store", tmp_path / "before", copy_function=copy_if_there)
    tx = work(store)
    record, *copies = (*everything(store, RECORDS), *everything(store, "out"))
    copies = sorted([*copies, *everything(store, "log")], key=lambda m: m.physical_offset)
    assert record.physical_offset == begin
    assert [m.properties["RS_TRANSACTION"] for m in copies] == [f"{tx.id}.{n}" for n in range(6)]
    segment = tmp_path / "store" / "commitlog" / f"{0:020}"
    written = segment.read_bytes()
    ends = [m.physical_offset + m.size for m in (record, *copies)]
    leave(store)
    for end in (begin, begin + 1, ends[0] - 1, *ends, ends[1] + 40, ends[6] - 8):
        image = tmp_path / f"image{end}"
        shutil.copytree(tmp_path / "before", image, copy_function=copy_if_there)
        (image / "commitlog" / f"{0:020}").write_bytes(written[:end].ljust(len(written), b"\0"))
        want = ALL if end >= ends[0] else NOTHING
        for _ in range(2):
            with open_small(image) as store:
                assert state(store) == want
                assert engine_of(store).offsets.get(RECORDS, GROUP) == (
                    {0: 1} if want is ALL else {}
                )
        shutil.rmtree(image)


def test_a_crash_while_the_open_finishes_one_puts_no_copy_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_behind_the_record(filled(tmp_path), monkeypatch)
    for step in ("_settle", "_copies_there"):
        with monkeypatch.context() as patch:
            patch.setattr(commits.Commits, step, died)
            with pytest.raises(Died):
                open_small(tmp_path)
    with open_small(tmp_path) as store:
        assert state(store) == ALL


@pytest.mark.parametrize("buffer", [{}, {"write_buffer_bytes": 1 << 16}], ids=["", "buffer"])
def test_an_open_finishes_one_in_its_own_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer: dict[str, int]
) -> None:
    """With a write buffer, too, it waits for no other."""
    die_behind_the_record(filled(tmp_path), monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "start", lambda _: None)
        store = open_small(tmp_path, max_unflushed_bytes=1 << 16, **buffer)
        assert store.flushed_offset == store.end_offset
        leave(store)
    with open_small(tmp_path) as store:
        assert state(store) == ALL


def test_what_a_group_has_stored_since_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_settle", died)
        with pytest.raises(Died):
            work(store)
    engine_of(store).offsets.moving = ()
    with store.consumer("in", group="work") as consumer:
        consumer.commit({0: 2})
    engine_of(store).guests._made.clear()
    leave(store)
    with open_small(tmp_path) as store:
        assert state(store) == (THREE, THREE, 2)


def test_several_that_are_not_done_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_settle", lambda self, **_: None)
        with store.consumer("in", group="work") as consumer:
            for n in range(3):
                with store.transaction() as tx:
                    tx.put("out", b"%d" % n)
                    consumer.poll(1)
                    tx.commit_offsets(consumer)
        engine_of(store).guests._made.clear()
        leave(store)
    with open_small(tmp_path) as store:
        assert state(store) == ([b"0", b"1", b"2"], [], 4)


def test_a_record_that_is_damaged_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path)
    store.put_message(RECORDS, b"no commit record")
    store.put_message(RECORDS, b'{"version": 1, "id": "x", "offsets": [], "messages": [[1]]}\n')
    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_settle", died)
        with pytest.raises(Died):
            work(store)
        engine_of(store).guests._made.clear()
        leave(store)
    with open_small(tmp_path) as store:
        assert state(store) == ALL
    assert "queue offset 0 of rmq_sys_rocketstore_transactions is no commit record" in caplog.text


def test_a_failed_finish_stops_the_open_unless_it_is_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_settle", died)
        with pytest.raises(Died):
            work(store)
        engine_of(store).guests._made.clear()
        leave(store)

    def full(*_: object, **__: object) -> None:
        raise rocketstore.DiskFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_finish", full)
        with pytest.raises(rocketstore.DiskFullError, match="no room") as met:
            open_small(tmp_path)
        assert "force=True" in met.value.__notes__[0]
        open_small(tmp_path, force=True).close()
        assert "a committed transaction is not finished" in caplog.text
    with open_small(tmp_path) as store:
        assert state(store) == ALL


def test_the_progress_passes_no_commit_that_is_not_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_still(tmp_path, "os", **BIG)
    store.writer("in").put(b"0")
    consumer = store.consumer("in", group="work")
    one, later = store.transaction(), store.transaction()
    later.put("out", b"1")
    one.commit_offsets(consumer, {0: 1}, allow_gap=True)
    real = commits.Commits._wait

    def wait(self: Any, end_offset: int) -> None:
        real(self, end_offset)
        if later.outcome is None:
            later._appended = self.append(later.id, later._rows, {}, {})
            later._outcome = "commit"

    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "_wait", wait)
        one.commit()
    assert store.flushed_offset < store.end_offset
    assert engine_of(store).offsets.get("in", "work") == {0: 1}
    assert engine_of(store).offsets.get(RECORDS, GROUP) == {0: 1}
    consumer.close()
    store.close()
