"""Messages of several queues and offsets of groups, all or none of them (decision 0038)."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import (
    BackpressureError,
    ConfigError,
    DurabilityTimeoutError,
    GroupClaimedError,
    MessageRejectedError,
    MessageTooLargeError,
    NoGroupError,
    OffsetOutOfRangeError,
    Retention,
    Store,
    StoreClosedError,
    StoreReadOnlyError,
    TransactionBusyError,
    TransactionSettledError,
)
from tests.power_loss.oracle import leave
from tests.support.copies import copy_if_there
from tests.support.paths import ROOT
from tests.support.small_store import everything, open_still, parts

commits: Any = importlib.import_module("rocketstore.services.transactions.commits")
RECORDS = "rmq_sys_rocketstore_transactions"
GROUP = "CID_RMQ_SYS_rocketstore_transactions"
#: Room for a transaction in one segment.
BIG: dict[str, Any] = {"commit_log_file_size_bytes": 1 << 16}


def open_small(path: Path, mode: Any = "rw", **options: Any) -> Store:
    return rocketstore.open(path, mode, **{**BIG, **options})


def filled(path: Path, **options: Any) -> Store:
    """Five messages in "in", and a group that has consumed one."""
    store = open_small(path, **options)
    for n in range(5):
        store.writer("in").put(b"%d" % n)
    store.flush()
    with store.consumer("in", group="work") as consumer:
        consumer.poll(1)
        consumer.commit()
    return store


def work(store: Store, count: int = 3) -> rocketstore.StoreTransaction:
    """Reads some, puts what came of each into one of three queues, and says how far it is."""
    with store.consumer("in", group="work") as consumer, store.transaction() as tx:
        for message in consumer.poll(count):
            body = b"from " + bytes(message.body)
            tx.put("out", body, queue_id=message.queue_offset % 2, tags="t", keys=["a", "b"])
            tx.put("log", body, properties={"p": "q"}, shard_key="s", flag=3)
        tx.commit_offsets(consumer)
    return tx


def state(store: Store) -> tuple[list[bytes], list[bytes], int | None]:
    """What came of messages, in both topics, and where the group is."""
    out, log = (sorted(bytes(m.body) for m in everything(store, t)) for t in ("out", "log"))
    return out, log, store._engine.offsets.get("in", "work").get(0)


NOTHING: tuple[list[bytes], list[bytes], int] = ([], [], 1)
THREE = [b"from 1", b"from 2", b"from 3"]
ALL = (THREE, THREE, 4)


def test_messages_and_offsets_are_there_after_the_end_and_never_before(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        consumer = store.consumer("in", group="work")
        end = store.end_offset
        with store.transaction() as tx:
            for message in consumer.poll(3):
                tx.put("out", b"from " + bytes(message.body), queue_id=message.queue_offset % 2)
                tx.put("log", memoryview(b"from " + bytes(message.body)), tags="t", keys="k")
            assert tx.commit_offsets(consumer) == {0: 4}
            assert (state(store), store.end_offset, tx.outcome) == (NOTHING, end, None)
        assert (state(store), tx.outcome) == (ALL, "commit")
        message = store.query("log", "k", order="oldest")[0]
        assert (message.tags, message.properties["RS_TRANSACTION"]) == ("t", f"{tx.id}.1")
        assert (message.sys_flag & 0xC, message.body) == (0, b"from 1")
        consumer.close()
    with open_small(tmp_path) as store:
        assert state(store) == ALL
        assert [m.body for m in store.consumer("in", group="work")] == [b"4"]
        assert len(everything(store, RECORDS)) == 1


def test_an_exception_leaves_no_trace(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        end = store.end_offset
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            tx.put("out", b"no")
            tx.commit_offsets(consumer, {0: 3})
            raise ZeroDivisionError
        with store.transaction() as other:
            other.put("out", b"no")
            other.rollback()
            other.rollback()
        with store.transaction() as empty:
            pass
        assert (tx.outcome, other.outcome, empty.outcome) == ("rollback", "rollback", "commit")
        assert (state(store), store.end_offset) == (NOTHING, end)
        assert RECORDS not in store.topics()


def test_offsets_alone_and_messages_alone(tmp_path: Path) -> None:
    with filled(tmp_path) as store, store.consumer("in", group="work") as consumer:
        with store.transaction() as tx:
            tx.put("out", b"1")
        with store.transaction() as tx:
            message = consumer.poll(3)[1]
            assert tx.commit_offsets(consumer, message) == {0: 3}
            assert tx.commit_offsets(consumer, {0: 2}) == {0: 2}
        assert state(store) == ([b"1"], [], 2)
        consumer.seek(1, queue_id=0)
        consumer.commit()
        assert state(store) == ([b"1"], [], 1)


def test_an_end_is_one(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        with store.transaction() as tx:
            tx.put("out", b"1")
            tx.commit()
            tx.commit()
            with pytest.raises(TransactionSettledError, match="was committed: put cannot follow"):
                tx.put("out", b"2")
        with pytest.raises(TransactionSettledError, match="was committed: rollback cannot"):
            tx.rollback()
        with pytest.raises(TransactionSettledError, match="was committed: with cannot"), tx:
            pass
        back = store.transaction()
        back.rollback()
        with pytest.raises(TransactionSettledError, match="rolled back: commit cannot follow"):
            back.commit()
        assert len(everything(store, "out")) == 1


def test_one_with_and_one_thread_at_a_time(tmp_path: Path) -> None:
    with open_small(tmp_path) as store, store.transaction() as tx:
        with pytest.raises(TransactionBusyError, match=rf"{tx.id}.*store\.transaction\(\)"), tx:
            pass
        with store.transaction() as inner:
            inner.put("out", b"inner")
        assert len(everything(store, "out")) == 1
        met: list[BaseException] = []

        class Slow(dict[str, str]):
            def __iter__(self) -> Any:
                thread = threading.Thread(target=other)
                thread.start()
                thread.join()
                return super().__iter__()

        def other() -> None:
            try:
                tx.put("out", b"x")
            except TransactionBusyError as error:
                met.append(error)

        tx.put("out", b"outer", properties=Slow({"a": "b"}))
        assert "give each thread its own" in str(met[0])
        tx.commit()
        assert [m.body for m in everything(store, "out")] == [b"inner", b"outer"]


@pytest.mark.parametrize(
    ("topic", "body", "named", "error", "text"),
    [
        ("out", b"x", {"properties": {"DELAY": "3"}}, MessageRejectedError, "'DELAY'.*put_message"),
        ("out", b"x", {"properties": {"TRAN_MSG": "true"}}, MessageRejectedError, "'TRAN_MSG'"),
        ("out", b"x", {"properties": {"TAGS": "t"}}, MessageRejectedError, "tags="),
        ("out", b"x", {"properties": {"RS_TRANSACTION": "1.0"}}, MessageRejectedError, "itself"),
        ("out", b"x", {"delay_level": 3}, TypeError, "delay_level"),
        ("SCHEDULE_TOPIC_XXXX", b"x", {}, MessageRejectedError, "SCHEDULE_TOPIC_XXXX.*delayed"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", b"x", {}, MessageRejectedError, "prepared"),
        (RECORDS, b"x", {}, MessageRejectedError, RECORDS),
        ("a/b", b"x", {}, MessageRejectedError, "a/b"),
        ("out", "text", {}, TypeError, "body"),
        ("out", b"x", {"queue_id": -1}, ConfigError, "queue_id = -1"),
        ("out", b"x", {"keys": "a b"}, MessageRejectedError, "blank"),
        ("out", bytes(3000), {}, MessageTooLargeError, "max_message_size_bytes = 3000"),
    ],
)
def test_what_cannot_be_part_of_one_is_refused_and_the_rest_goes_on(
    tmp_path: Path, topic: str, body: Any, named: Any, error: type[Exception], text: str
) -> None:
    with open_small(tmp_path, max_message_size_bytes=3000) as store:
        with store.transaction() as tx:
            with pytest.raises(error, match=text):
                tx.put(topic, body, **named)
            tx.put("out", b"kept")
        assert [m.body for m in everything(store, "out")] == [b"kept"]


def test_one_that_grows_too_large_says_so_and_can_still_be_committed(tmp_path: Path) -> None:
    with open_small(tmp_path, commit_log_file_size_bytes=8192) as store:
        with store.transaction() as tx:
            count = 0
            with pytest.raises(MessageTooLargeError, match="commit_log_file_size_bytes = 8192"):
                while True:
                    tx.put("out", bytes(200))
                    count += 1
        assert len(everything(store, "out")) == count > 5


def test_consumers_that_cannot_take_part(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as store, filled(tmp_path / "b") as other:
        strange = other.consumer("in", group="work")
        with store.transaction() as tx:
            with pytest.raises(ConfigError, match=r"consumer = .*of another store"):
                tx.commit_offsets(strange)
            with pytest.raises(NoGroupError, match="group="):
                tx.commit_offsets(store.consumer("in"))
            with pytest.raises(TypeError, match="expected a Consumer, not str"):
                tx.commit_offsets("work")  # type: ignore[arg-type]
            with store.consumer("in", group="work") as consumer:
                with pytest.raises(OffsetOutOfRangeError):
                    tx.commit_offsets(consumer, {0: 6})
                tx.put("out", b"1")
                tx.commit_offsets(consumer, {0: 5})
            with pytest.raises(StoreClosedError, match=r"consumer of in@work was closed"):
                tx.commit()
            assert tx.outcome is None
            tx.rollback()
        strange.close()
        assert state(store) == NOTHING


def test_a_store_that_only_reads_and_a_closed_one(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        with (
            open_small(tmp_path, "r") as reader,
            pytest.raises(StoreReadOnlyError, match="transaction: the store was opened with"),
        ):
            reader.transaction()
        with pytest.raises(ConfigError, match="durability"):
            store.transaction(durability="never")  # type: ignore[arg-type]
        tx = store.transaction()
        tx.put("out", b"1")
    for act in (tx.commit, lambda: tx.put("out", b"2"), store.transaction):
        with pytest.raises(StoreClosedError):
            act()
    with open_small(tmp_path) as store:
        assert state(store) == NOTHING


# ---- crashes ----


class Died(BaseException):
    """Stands for the end of the process."""


def died(*_: object, **__: object) -> None:
    raise Died


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
            patch.setattr(store._engine.offsets, "commit_moves", died)
        elif step:
            patch.setattr(commits.Commits, step, died)
        try:
            work(store)
        except Died:
            assert step
        store._engine.guests._made.clear()  # its stop would do the rest
        leave(store)
    for _ in range(2):
        with open_small(tmp_path) as store:
            assert state(store) == want


KILLED = """
import os, signal, sys
from pathlib import Path
from rocketstore.services.transactions import commits
from rocketstore.consuming import group_offsets
from tests.services.test_store_transactions import open_small, work

path, step = Path(sys.argv[1]), sys.argv[2]
kill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
store = open_small(path, durability=sys.argv[3])
if step == "journal":
    store._engine.offsets._journal.add = kill
elif step != "end":
    setattr(commits.Commits, step, kill)
work(store)
kill()
"""


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize(
    ("step", "want"),
    [("_append", NOTHING), ("_wait", ALL), ("_settle", ALL), ("journal", ALL), ("end", ALL)],
)
def test_a_kill_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, step: str, want: Any, durability: str
) -> None:
    filled(tmp_path).close()
    command = [sys.executable, "-c", KILLED, str(tmp_path), step, durability]
    killed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
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
                assert store._engine.offsets.get(RECORDS, GROUP) == ({0: 1} if want is ALL else {})
        shutil.rmtree(image)


def test_a_crash_while_the_open_finishes_one_puts_no_copy_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(commits, "add_copy", lambda *_: None)  # the record alone reaches the disk
        patch.setattr(commits.Commits, "_settle", died)
        with pytest.raises(Died):
            work(store)
        store._engine.guests._made.clear()
        leave(store)
    for step in ("_settle", "_copies_there"):
        with monkeypatch.context() as patch:
            patch.setattr(commits.Commits, step, died)
            with pytest.raises(Died):
                open_small(tmp_path)
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
    store._engine.offsets.moving = {}
    with store.consumer("in", group="work") as consumer:
        consumer.commit({0: 2})
    store._engine.guests._made.clear()
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
        store._engine.guests._made.clear()
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
        store._engine.guests._made.clear()
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
        store._engine.guests._made.clear()
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


# ---- errors of a commit ----


def test_a_disk_that_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the log, no other consumer of the group begins meanwhile, and commit() goes on."""
    with filled(tmp_path) as store:
        consumer = store.consumer("in", group="work")
        tx = store.transaction()
        tx.put("out", b"1")
        tx.commit_offsets(consumer, {0: 4})
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
            patch.setattr(store._engine.offsets, "commit_moves", died)
            with pytest.raises(Died):
                work(store)
        assert state(store) == (THREE, THREE, 1)
        with store.transaction() as tx:
            tx.put("else", b"")
        assert state(store) == ALL


def test_a_signal_amid_an_append_leaves_nobody_unsure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path) as store:
        tx = store.transaction()
        tx.put("out", b"1")
        real = commits.Commits._append

        def interrupted(self: Any, record: Any) -> Any:
            real(self, record)
            self._next -= 1  # the line behind the put did not run
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(commits.Commits, "_append", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tx.commit()
        assert tx.outcome is None
        tx.commit()
        assert state(store) == ([b"1"], [], 1)
        assert len(everything(store, RECORDS)) == 1


def test_a_commit_inside_a_commit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path) as store:
        one, other = store.transaction(), store.transaction()
        one.put("out", b"1")
        other.put("out", b"2")
        real = commits.Commits._append

        def handler(self: Any, record: Any) -> Any:
            with pytest.raises(BackpressureError, match="outside the signal handler"):
                other.commit()
            return real(self, record)

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
        assert store._engine.offsets.get("in", "work") == dict.fromkeys(range(4), 20)
        assert store._engine.offsets.get(RECORDS, GROUP) == {0: len(everything(store, RECORDS))}


def test_without_offsets_a_commit_promises_what_the_store_does(tmp_path: Path) -> None:
    store = open_still(tmp_path, "os", **BIG)
    with store.transaction() as tx:
        tx.put("out", b"1")
    assert [m.body for m in everything(store, "out")] == [b"1"]
    assert store.flushed_offset < store.end_offset
    with store.transaction(durability="disk") as tx:
        tx.put("out", b"2")
    assert store.flushed_offset == store.end_offset
    store.close()
    with open_small(tmp_path) as store:
        assert store._engine.offsets.get(RECORDS, GROUP) == {0: 2}


def test_a_trim_makes_offsets_durable_that_the_log_still_has(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        work(store)
        assert store._engine.offsets.unsynced
        store.trim(before_offset=0)
        assert not store._engine.offsets.unsynced


def test_commit_records_do_not_hold_the_log(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        work(store)
        with store.consumer("in", group="work") as consumer:
            consumer.poll()
            consumer.commit()
        rule = Retention(max_bytes=1, keep_unconsumed_by="all")
        assert not any(GROUP in str(one) for one in store.retention.plan(rule).segments)


def test_readers_of_other_processes_see_all_of_it(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        work(store)
        with open_small(tmp_path, "r") as reader:
            assert state(reader) == ALL
