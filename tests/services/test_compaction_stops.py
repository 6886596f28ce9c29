"""A compaction that is refused, stopped or meets a failing disk: the source is as it was, and nothing is left."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store, tools
from rocketstore._native.format.codec import crc31, encode_record
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.services.compaction import compaction, new_store
from rocketstore.services.compaction.new_store import NewLog
from rocketstore.values.system_flags import INNER_BATCH
from tests.services.compacting import SHAPE, fill_at_random, messages, put
from tests.support.small_store import SEGMENT, dispatched, open_small, segments, watched
from tests.unit.conftest import probe


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_small(tmp_path / "s") as opened:
        put(opened, b"1", "a")
        dispatched(opened)
        yield opened


@pytest.mark.parametrize(
    ("into", "said"),
    [
        ("s", "outside of the store"),
        ("s/inner", "outside of the store"),
        (".", "outside of the store"),
        ("full", "not empty"),
        ("file", "no directory"),
        ("", "the path of a directory"),
        ("s3://bucket/x", "not a URI"),
    ],
)
def test_where_the_new_store_may_not_be(tmp_path: Path, store: Store, into: str, said: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    path = into if into in ("", "s3://bucket/x") else tmp_path / into
    with pytest.raises(rocketstore.ConfigError, match=said) as refused:
        store.compact("users", into=path)
    assert refused.value.field == "into"


def test_an_empty_directory_is_taken(tmp_path: Path, store: Store) -> None:
    (tmp_path / "t").mkdir()
    store.compact("users", into=str(tmp_path / "t"))
    assert [one.body for one in messages(tmp_path / "t")] == [b"1"]
    with pytest.raises(rocketstore.ConfigError, match="not empty"):
        store.compact("users", into=tmp_path / "t")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topics": "nobody"}, rocketstore.QueueNotFoundError),
        ({"topics": "a/b"}, rocketstore.InvalidTopicError),
        ({"topics": []}, ValueError),
        ({"topics": 7}, TypeError),
        ({"topics": "SCHEDULE_TOPIC_XXXX"}, rocketstore.ConfigError),
        ({"topics": "RMQ_SYS_TRANS_HALF_TOPIC"}, rocketstore.ConfigError),
        ({"grace": -timedelta(1)}, ValueError),
        ({"grace": "5"}, TypeError),
        ({"without_key": "some"}, ValueError),
        ({"on_damage": "no"}, ValueError),
        ({"into": b"bytes"}, TypeError),
        ({"into": None}, TypeError),
    ],
)
def test_arguments_that_mean_nothing(
    tmp_path: Path, store: Store, arguments: dict[str, Any], error: type[Exception]
) -> None:
    given = {"into": tmp_path / "t", **arguments}
    with pytest.raises(error):
        store.compact(given.pop("topics", "users"), **given)
    assert os.listdir(tmp_path) == ["s"]


def test_light_queues_are_refused(tmp_path: Path, store: Store) -> None:
    listed = {"KEYS": "b", "INNER_MULTI_DISPATCH": "%LMQ%x"}
    store.put_message("users", b"2", properties=listed)
    store.put_message("users", b"says INNER_MULTI_DISPATCH", properties={"KEYS": "c"})
    dispatched(store)
    with pytest.raises(rocketstore.MessageRejectedError, match="light queues"):
        store.compact("users", into=tmp_path / "t")
    assert os.listdir(tmp_path) == ["s"]


def test_inner_batches_are_refused(tmp_path: Path) -> None:
    """Such as a broker of RocketMQ 5 writes; it has one next to ordinary messages."""
    plain = encode_record(topic="users", body=b"1", properties=b"KEYS\1a", store_timestamp_ms=1)
    batch = encode_record(
        topic="users",
        body=b"2 and 3",
        properties=b"KEYS\1b\2INNER_NUM\x012\2INNER_BASE\x011",
        sys_flag=INNER_BATCH,
        queue_offset=1,
        physical_offset=len(plain),
        store_timestamp_ms=2,
    )
    log = tmp_path / "s" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{0:020d}").write_bytes((plain + batch).ljust(SEGMENT, b"\0"))
    refused = pytest.raises(rocketstore.MessageRejectedError, match="is an inner batch")
    with open_small(tmp_path / "s", "r") as store, refused:
        store.compact("users", into=tmp_path / "t")
    assert os.listdir(tmp_path) == ["s"]


def test_missing_segments_are_refused(tmp_path: Path) -> None:
    """Without the last segments older messages would pass for the latest ones."""
    fill_at_random(tmp_path / "s", 6)
    segments(tmp_path / "s")[-1].unlink()
    with open_small(tmp_path / "s", "r", force=True) as store:
        assert store.recovery.missing
        with pytest.raises(rocketstore.MissingSegmentsError):
            store.compact("users", into=tmp_path / "t")
        assert not (tmp_path / "t").exists()
        assert store.compact("users", into=tmp_path / "t", on_damage="skip").kept


def test_a_queue_whose_numbers_began_again(tmp_path: Path) -> None:
    """The topic was deleted and made again: one queue cannot have both, but with new numbers."""
    with open_small(tmp_path / "s") as store:
        for n in range(5):
            put(store, b"%d" % n, f"k{n}")
        dispatched(store)
    data = bytearray(segments(tmp_path / "s")[0].read_bytes())
    with open_small(tmp_path / "s", "r") as store:
        last = list(store.consumer("users"))[-1]
    data[last.physical_offset + 20 : last.physical_offset + 28] = bytes(8)
    at = last.physical_offset + last.size
    if data[at - 20 : at - 11] == b"__CRC32#\x01":
        crc = str(crc31(bytes(data[last.physical_offset : at - 20])))
        data[at - 11 : at - 1] = crc[::-1].ljust(10, "0").encode()
    segments(tmp_path / "s")[0].write_bytes(data)
    with open_small(tmp_path / "s", "r") as store:
        with pytest.raises(rocketstore.CorruptRecordError, match="began again"):
            store.compact("users", into=tmp_path / "t")
        assert not (tmp_path / "t").exists()
        store.compact("users", into=tmp_path / "t", keep_offsets=False)
    assert [one.body for one in messages(tmp_path / "t")] == [b"0", b"1", b"2", b"3", b"4"]


def test_damage_is_named_or_refused(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put(store, b"1", "a")
        hit = put(store, b"2", "a")
        put(store, b"3", "b")
        dispatched(store)
    path = segments(tmp_path / "s")[0]
    with path.open("r+b") as file:
        file.seek(hit.physical_offset + 90)
        file.write(b"\xff")
    with open_small(tmp_path / "s", "r") as store:
        with pytest.raises(rocketstore.CorruptRecordError):
            store.compact("users", into=tmp_path / "t")
        assert os.listdir(tmp_path) == ["s"]
        report = store.compact("users", into=tmp_path / "t", on_damage="skip")
    assert [one.body for one in messages(tmp_path / "t")] == [b"1", b"3"]
    assert report.damage_count == 1
    assert report.damage[0].start == hit.physical_offset
    assert "damage in the source: [" in str(report)


@pytest.mark.parametrize(
    ("how", "error"),
    [("raise", rocketstore.OffsetOutOfRangeError), ("skip", rocketstore.ReadFailedError)],
)
def test_a_trim_between_the_two_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any, error: type[Exception]
) -> None:
    fill_at_random(tmp_path / "s", 1)
    copied = compaction._Run.copy
    with open_small(tmp_path / "s") as store:

        def trim_first(*arguments: Any) -> None:
            store.trim(before_offset=store.end_offset - 1)
            copied(*arguments)

        monkeypatch.setattr(compaction._Run, "copy", trim_first)
        with pytest.raises(error):
            store.compact("users", into=tmp_path / "t", on_damage=how)
    assert os.listdir(tmp_path) == ["s"]


# ---- a stop ----


@pytest.mark.parametrize(
    ("target", "name"),
    [(NewLog, "append"), (NewLog, "finish"), (WritingEngine, "close")],
)
def test_an_error_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: type, name: str
) -> None:
    fill_at_random(tmp_path / "s", 3)
    plain = getattr(target, name)

    def stop(*arguments: Any) -> None:
        if name == "close":
            plain(*arguments)
        raise KeyboardInterrupt

    with open_small(tmp_path / "s", "r") as store, monkeypatch.context() as patched:
        patched.setattr(target, name, stop)
        with pytest.raises(KeyboardInterrupt):
            store.compact("users", into=tmp_path / "t")
    assert os.listdir(tmp_path) == ["s"]


KILLED = """
import os, sys
from pathlib import Path
from rocketstore.services.compaction.new_store import NewLog
from tests.support.small_store import open_small
source, into, at = sys.argv[1:]
def wait(*_):
    print("there", flush=True)
    sys.stdin.read()
if at == "append":
    NewLog.append = wait
with open_small(Path(source), "r") as store:
    if at == "rename":
        from rocketstore._native.os import syscalls
        syscalls.rename = wait
    store.compact("users", into=into)
"""


@pytest.mark.parametrize("at", ["append", "rename"])
def test_a_kill_leaves_no_store_and_the_next_run_makes_it(tmp_path: Path, at: str) -> None:
    fill_at_random(tmp_path / "s", 4)
    source, into = tmp_path / "s", tmp_path / "t"
    argv = [sys.executable, "-c", KILLED, os.fspath(source), os.fspath(into), at]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        with open_small(source, "r") as store, pytest.raises(rocketstore.StoreLockedError):
            store.compact("users", into=into)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not into.exists()
    with open_small(source, "r") as store:
        store.compact("users", into=into)
    assert sorted(os.listdir(tmp_path)) == ["s", "t"]
    assert not tools.verify(into, **SHAPE).faults


__all__ = ["probe"]

WORK = ".t.compacting"


def files(path: Path) -> dict[str, bytes]:
    return {
        os.fspath(one.relative_to(path)): one.read_bytes()
        for one in sorted(path.rglob("*"))
        if one.is_file()
    }


def fails(store: Any, into: Path, number: int) -> None:
    with pytest.raises(OSError, match=os.strerror(number)) as failed:
        store.compact("users", into=into)
    assert failed.value.errno == number
    assert not into.exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize(
    ("call", "module"),
    [
        ("mkdir", new_store),
        ("open", new_store),
        ("ftruncate", new_store),
        ("pwrite", new_store),
        ("fsync", new_store),
        ("rename", new_store),
        ("sync_directory", new_store),
    ],
)
def test_a_call_that_fails_in_the_new_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, module: Any, number: int
) -> None:
    """The same call works once the disk does."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 5)
    before = files(source)
    with open_small(source, "r") as store:
        with monkeypatch.context() as patched:
            calls = watched(patched, module)
            calls.errors[call] = OSError(number, os.strerror(number), os.fspath(into))
            if call == "sync_directory":  # the name may be there, or not: after a crash as well
                with pytest.raises(OSError, match=os.strerror(number)):
                    store.compact("users", into=into)
                assert not tools.verify(into, **SHAPE).faults
                into.rename(tmp_path / "kept")
            else:
                fails(store, into, number)
            assert call in calls.made
        assert files(source) == before
        assert set(os.listdir(tmp_path)) <= {"s", "kept"}
        report = store.compact("users", into=into)
    assert files(source) == before
    assert len(messages(into)) == report.kept > 0


@pytest.mark.parametrize("call", ["fallocate", "msync", "mmap"])
def test_a_call_that_fails_while_queues_and_index_are_made(
    tmp_path: Path, probe: Any, call: str
) -> None:
    """These are made by an open of the store that has no name yet."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 6)
    before = files(source)
    number = errno.ENOMEM if call == "mmap" else errno.ENOSPC
    with open_small(source, "r") as store:
        opens = new_store.open_engine

        def failing(*arguments: Any) -> Any:
            probe.fail(call, number, times=-1)
            return opens(*arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(new_store, "open_engine", failing)
            with pytest.raises((OSError, rocketstore.RocketStoreError)) as failed:
                store.compact("users", into=into)
        probe.restore()
        assert not isinstance(failed.value, OSError) or failed.value.errno == number
        assert not into.exists() and files(source) == before
        report = store.compact("users", into=into)
    assert len(messages(into)) == report.kept
    assert sorted(os.listdir(tmp_path)) == ["s", "t"]


def test_a_work_directory_that_cannot_be_removed_has_no_name_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails for good: what is left says that it is not finished, and the next call takes it."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 7)
    with open_small(source, "r") as store:
        with monkeypatch.context() as patched:
            failed = OSError(errno.EIO, os.strerror(errno.EIO))
            calls = watched(patched, new_store)
            calls.errors["pwrite"] = failed
            patched.setattr(new_store.destroy, "remove_tree", _fail_when_full)
            fails(store, into, errno.EIO)
        assert sorted(os.listdir(tmp_path)) == [WORK, "s"]
        report = store.compact("users", into=into)
    assert len(messages(into)) == report.kept
    assert sorted(os.listdir(tmp_path)) == ["s", "t"]


def _fail_when_full(root: Path, **more: Any) -> None:
    if (root / "store").exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(root))


def test_a_file_that_cannot_be_closed_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that fails leaves the file of the new log open, and its close fails as well."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 5)

    def refused(fd: int) -> None:
        os.close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_small(source, "r") as store:
        before = len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patched:
            patched.setattr(new_store.syscalls, "pwrite", lambda *_: refused(os.dup(0)))
            patched.setattr(new_store.NewLog, "abandon", lambda log: refused(log._fd))
            fails(store, into, errno.EIO)
        assert len(os.listdir("/proc/self/fd")) == before
        store.compact("users", into=into)
