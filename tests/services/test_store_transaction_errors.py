"""A commit of a transaction that meets an error, a signal or another thread (decision 0038)."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketstore import (
    BackpressureError,
    DurabilityTimeoutError,
    GroupClaimedError,
    TransactionSettledError,
)
from rocketstore.log.read.unique_ids import UniqueIds
from tests.support.small_store import engine_of, everything
from tests.support.transactions import (
    ALL,
    GROUP,
    RECORDS,
    THREE,
    Died,
    died,
    filled,
    open_small,
    state,
    work,
)

commits: Any = importlib.import_module("rocketstore.services.transactions.commits")


def test_a_disk_that_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the log, no other consumer of the group begins meanwhile, and commit() goes on."""
    with filled(tmp_path) as store:
        consumer = store.consumer("in", group="work")
        tx = store.transaction()
        tx.put("out", b"1")
        tx.commit_offsets(consumer, {0: 4}, allow_gap=True)
        with monkeypatch.context() as patch:
            late = lambda *_: (_ for _ in ()).throw(DurabilityTimeoutError("late"))  # noqa: E731
            patch.setattr(commits.Commits, "_wait", late)
            with pytest.raises(DurabilityTimeoutError):
                tx.commit()
        assert tx.outcome == "commit"
        consumer.close()
        with pytest.raises(GroupClaimedError, match="a transaction that is not on disk yet"):
            store.consumer("in", group="work")
        tx.commit()
        assert state(store) == ([b"1"], [], 4)
        store.consumer("in", group="work").close()


def test_offsets_that_cannot_be_stored_are_stored_by_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(engine_of(store).offsets, "commit_moves", died)
            with pytest.raises(Died):
                work(store)
        assert state(store) == (THREE, THREE, 1)
        with store.transaction() as tx:
            tx.put("else", b"")
        assert state(store) == ALL


def test_a_signal_amid_an_append_leaves_nobody_unsure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do further ones, while the second commit looks for what the first one left."""
    with filled(tmp_path) as store:
        tx = store.transaction()
        tx.put("out", b"1")
        for place, name in ((commits.Commits, "_append"), (commits, "commit_record_of")):
            kept = getattr(place, name)

            def interrupted(*arguments: Any, real: Any = kept) -> Any:
                real(*arguments)
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(place, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    tx.commit()
        assert tx.outcome is None
        tx.commit()
        assert state(store) == ([b"1"], [], 1)
        assert len(everything(store, RECORDS)) == 1


def test_a_signal_behind_an_append_does_not_append_twice_and_cannot_be_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path) as store:
        real = commits.Commits.append

        def interrupted(self: Any, *arguments: Any) -> Any:
            real(self, *arguments)
            raise KeyboardInterrupt

        again, back = store.transaction(), store.transaction()
        with monkeypatch.context() as patch:
            patch.setattr(commits.Commits, "append", interrupted)
            again.put("out", b"1")
            with pytest.raises(KeyboardInterrupt):
                again.commit()
            with pytest.raises(KeyboardInterrupt), back:
                back.put("out", b"2")
                back.commit()
        again.commit()
        assert (again.outcome, back.outcome) == ("commit", "commit")
        with pytest.raises(TransactionSettledError, match="was committed: rollback"):
            back.rollback()
        back.commit()
        assert state(store)[0] == [b"1", b"2"]
        assert not commits.commits_of(engine_of(store))._unheard


def test_a_signal_behind_an_append_hides_no_unique_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index may lack what the log has, so the next look is for all that is in it."""
    ids = ("a", "b")
    with filled(tmp_path) as store:
        with store.transaction() as tx:
            for unique_id in ids:
                tx.put("out", b"1", unique_id=unique_id)
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(
                    UniqueIds, "note", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
                )
                tx.commit()
        assert engine_of(store).unique_ids.unsure == {("out", unique_id) for unique_id in ids}
        assert all(store.writer("out").put(b"2", unique_id=one).duplicate for one in ids)


def test_offsets_that_are_stored_already_write_nothing(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        end = store.end_offset
        with store.transaction() as tx:
            assert tx.commit_offsets(consumer) == {0: 1}
        assert (tx.outcome, store.end_offset) == ("commit", end)


def test_a_commit_inside_a_commit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path) as store:
        one, other = store.transaction(), store.transaction()
        one.put("out", b"1")
        other.put("out", b"2")
        real = commits.Commits._append

        def handler(self: Any, *arguments: Any) -> Any:
            with pytest.raises(BackpressureError, match="outside the signal handler"):
                other.commit()
            return real(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(commits.Commits, "_append", handler)
            one.commit()
        other.commit()
        assert state(store)[0] == [b"1", b"2"]


def test_threads_commit_at_the_same_time(tmp_path: Path) -> None:
    """Each reads a queue of its own, and works each message once."""
    with open_small(tmp_path) as store:
        for n in range(4):
            store.writer("in", queue_id=n).put_batch([b"%d" % i for i in range(20)])

        def loop(n: int) -> None:
            with store.consumer("in", queue_id=n, group="work") as consumer:
                while messages := consumer.poll(3):
                    with store.transaction() as tx:
                        for message in messages:
                            tx.put("out", message.body, queue_id=n)
                        tx.commit_offsets(consumer)

        threads = [threading.Thread(target=loop, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with open_small(tmp_path) as store:
        for n in range(4):
            found = [m.body for m in store.consumer("out", queue_id=n)]
            assert found == [b"%d" % i for i in range(20)]
        assert engine_of(store).offsets.get("in", "work") == dict.fromkeys(range(4), 20)
        assert engine_of(store).offsets.get(RECORDS, GROUP) == {0: len(everything(store, RECORDS))}
