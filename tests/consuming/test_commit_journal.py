"""Commits that are in the journal only: found after a kill at any step, and never set over what
another program has stored since (decision 0032)."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.consuming import commit_journal
from rocketstore.consuming.commit_journal import BLOCK, JOURNAL_BYTES, Journal
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.consuming.followed_offsets import FollowerOffsets
from rocketstore.log.layout.paths import StoreLayout
from tests.support.small_store import SMALL

MODULES = ("consuming.commit_journal", "log.layout.state_files")


class Killed(BaseException):
    """The process is gone from here on."""


class Calls:
    """System calls that stop at one of them."""

    def __init__(self, stop: Callable[[str, int], None]) -> None:
        self._stop = stop
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(syscalls, name)

        def call(*arguments: Any) -> Any:
            self.names.append(name)
            self._stop(name, len(self.names))
            return real(*arguments)

        return call


def durable(_: int) -> None:
    """A log in which everything is flushed already."""


def loaded(layout: StoreLayout) -> ConsumerOffsets:
    offsets = ConsumerOffsets(layout)
    offsets.load()
    return offsets


def commit(offsets: ConsumerOffsets, offset: int, **how: Any) -> None:
    offsets.commit("orders", "billing", {0: offset}, 0, durable, **how)


def stored(layout: StoreLayout) -> int | None:
    return loaded(layout).get("orders", "billing").get(0)


def write(layout: StoreLayout, **groups: int) -> None:
    table = {f"orders@{group}": {"0": offset} for group, offset in groups.items()}
    layout.consumer_offsets.write_text(json.dumps({"offsetTable": table}))


@pytest.fixture
def offsets(layout: StoreLayout) -> ConsumerOffsets:
    """Those of a store that has none yet."""
    return loaded(layout)


def test_a_commit_is_one_write_and_one_sync(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, offsets: ConsumerOffsets
) -> None:
    commit(offsets, 1)
    calls = Calls(lambda name, count: None)
    for module in MODULES:
        monkeypatch.setattr(f"rocketstore.{module}.syscalls", calls)
    commit(offsets, 2)
    assert calls.names == ["pwrite", "fdatasync"]
    commit(offsets, 3, sync=False)
    assert calls.names[2:] == ["pwrite"]
    assert stored(layout) == 3


def test_commits_go_on_when_the_journal_is_full(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:
    for number in range(3 * JOURNAL_BYTES // BLOCK // 2):
        commit(offsets, number)
    assert stored(layout) == number
    assert layout.group_offsets.stat().st_size == JOURNAL_BYTES
    offsets.close()
    layout.group_offsets.unlink()
    assert stored(layout) == number


def test_the_ring_goes_round(layout: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older blocks lie after its end, and records across the end of the file."""
    blocks = 16
    monkeypatch.setattr(commit_journal, "JOURNAL_BYTES", blocks * BLOCK)
    offsets = loaded(layout)
    across = 0
    for number in range(10 * blocks):
        rows = dict.fromkeys(range((1, 30, 50)[number % 3]), number)
        before = Journal(layout.group_offsets).end
        offsets.commit("orders", "billing", rows, 0, durable)
        across += before // blocks < (Journal(layout.group_offsets).end - 1) // blocks
        killed = loaded(layout)
        assert killed.doubts == ()
        assert killed.get("orders", "billing").items() >= rows.items()
    assert across > 2
    offsets.close()
    assert loaded(layout).doubts == ()


def test_a_commit_of_ten_thousand_queues(layout: StoreLayout) -> None:
    many = {queue_id: queue_id + 1 for queue_id in range(10_000)}
    offsets = loaded(layout)
    offsets.commit("orders", "billing", many, 0, durable)
    offsets.commit("orders", "billing", dict.fromkeys(range(50), 7), 0, durable)  # several blocks
    found = loaded(layout).get("orders", "billing")
    assert found == {**many, **dict.fromkeys(range(50), 7)}


def test_a_kill_at_each_step_loses_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    while True:
        layout = StoreLayout(tmp_path / f"store{steps}")
        for directory in layout.directories:
            directory.mkdir(parents=True, exist_ok=True)
        write(layout, billing=5)
        steps += 1

        def stop(name: str, count: int, at: int = steps) -> None:
            if count == at:
                raise Killed

        promised, tried, ended = 5, 5, False
        with monkeypatch.context() as patched:
            calls = Calls(stop)
            for module in MODULES:
                patched.setattr(f"rocketstore.{module}.syscalls", calls)
            try:
                for run in range(2):
                    offsets = ConsumerOffsets(layout)
                    offsets.load()
                    offsets.clamp(lambda topic, queue_id: None)
                    for tried in (6 + run, 9 + run, 5, 7):
                        commit(offsets, tried)
                        promised = tried
                        if tried == 9:
                            offsets.merge()
                    if run:
                        offsets.close()
                ended = True
            except Killed:
                pass
        found = ConsumerOffsets(layout)
        found.load(ours=True)
        assert found.get("orders", "billing").get(0) in (promised, tried), (steps, calls.names[-3:])
        assert found.doubts == (), (steps, calls.names[-3:])
        if ended:
            break
    assert steps > 40


def test_torn_and_flipped_records_harm_none_before_them(layout: StoreLayout) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    offsets = loaded(layout)
    for number in range(1, 5):
        commit(offsets, number)
    whole = layout.group_offsets.read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        block = rng.randrange(4)
        at = block * BLOCK + rng.randrange(100)
        if rng.random() < 0.5:
            data[at] ^= 1 << rng.randrange(8)
        else:
            data[at : (block + 1) * BLOCK] = bytes((block + 1) * BLOCK - at)
        layout.group_offsets.write_bytes(data)
        assert stored(layout) in (block or None, 4), (block, at)


def test_what_a_killed_process_did_not_sync_is_on_the_disk_before_a_merge(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power leaves a JSON that is ahead of the journal, which says that this is an older
    copy."""
    first = loaded(layout)
    commit(first, 5)
    commit(first, 6, sync=False)  # and the process is killed
    calls = Calls(lambda name, count: None)
    for module in MODULES:
        monkeypatch.setattr(f"rocketstore.{module}.syscalls", calls)
    second = loaded(layout)
    assert second.unsynced
    second.merge()
    assert calls.names.index("fdatasync") < calls.names.index("rename")
    second.close()


@pytest.mark.parametrize("synced", [False, True])
def test_power_may_take_any_block_that_no_sync_had_covered(
    layout: StoreLayout, synced: bool, offsets: ConsumerOffsets
) -> None:
    """`synced`: a record after them says that all before it were on the disk."""
    commit(offsets, 5)
    begin = Journal(layout.group_offsets).end
    for offset in (6, 7, 8):
        commit(offsets, offset, sync=False)
    if synced:
        offsets.sync()
        commit(offsets, 9, sync=False)
    with layout.group_offsets.open("r+b") as file:
        file.seek((begin + 1) * BLOCK)
        file.write(bytes(BLOCK))
    found = ConsumerOffsets(layout)
    found.load(ours=True)
    assert found.get("orders", "billing") == {0: 9 if synced else 8}
    named = f"damaged at block {begin + 1}" in "".join(found.doubts)
    assert (named, bool(found.doubts)) == (synced, synced)


@pytest.mark.parametrize(
    "text",
    [
        *(b"5", b"[[1]]", b'[["a@b", -1, null, 3]]', b'[["a@b", 0, null, 1e3]]', b"[" * 5000),
        *(b"\1", b"\1short", b"\1" + bytes(21), b"\1\xff\xff" + bytes(40)),
        b"\1" + commit_journal.MOVED.pack(3, 0, -1, 1 << 62) + b"a@",
        b"\1" + commit_journal.MOVED.pack(3, 0, -1, -5) + b"a@b",
        b"\1" + commit_journal.MOVED.pack(3, 0, -1, 5) + b"a\xffb",
    ],
)
def test_a_journal_of_another_hand_is_no_fault(
    layout: StoreLayout, text: bytes, monkeypatch: pytest.MonkeyPatch, offsets: ConsumerOffsets
) -> None:
    commit(offsets, 1)
    monkeypatch.setattr(commit_journal, "TEXT_MAGIC", b"")
    monkeypatch.setattr(commit_journal, "moves_text", lambda _: text)
    commit(offsets, 3)
    monkeypatch.undo()
    assert stored(layout) == 1


def test_what_release_0_2_wrote_counts(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records were lists of JSON."""
    offsets = loaded(layout)
    commit(offsets, 1)
    text = b'[["orders@billing", 0, 1, 7]]'
    monkeypatch.setattr(commit_journal, "TEXT_MAGIC", b"")
    monkeypatch.setattr(commit_journal, "moves_text", lambda _: text)
    commit(offsets, 3)
    monkeypatch.undo()
    assert stored(layout) == 7


def test_what_rocketmq_stored_in_between_counts(layout: StoreLayout) -> None:
    """It read its file without our last commit, and wrote it again with later offsets."""
    write(layout, billing=5, audit=5)
    offsets = loaded(layout)
    commit(offsets, 9)
    offsets.commit("orders", "audit", {0: 8}, 0, durable)
    write(layout, billing=7, audit=5)
    found = loaded(layout)
    assert found.get("orders", "billing") == {0: 7}
    assert found.get("orders", "audit") == {0: 8}


def test_a_merged_commit_never_comes_back(layout: StoreLayout, offsets: ConsumerOffsets) -> None:
    commit(offsets, 1)
    commit(offsets, 9)
    offsets.close()
    layout.consumer_offsets.unlink()
    assert stored(layout) is None
    commit(loaded(layout), 3)  # the journal begins anew: behind it lies a record of before
    assert stored(layout) == 3


def test_a_full_disk_leaves_the_commits_in_the_journal(
    layout: StoreLayout,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    offsets: ConsumerOffsets,
) -> None:
    commit(offsets, 3)
    commit(offsets, 4)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("rocketstore.consuming.consumer_offsets.write_state_file", full)
        patched.setattr("rocketstore.consuming.consumer_offsets.MERGE_EVERY_S", 0.0)
        offsets.merge_now_and_then()
        assert "lacks commits" in caplog.text
        commit(offsets, 5)
        offsets.close()
    assert json.loads(layout.consumer_offsets.read_text())["offsetTable"] == {
        "orders@billing": {"0": 3}
    }
    assert stored(layout) == 5


def test_a_write_that_fails_ends_the_journal_and_not_the_commits(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, offsets: ConsumerOffsets
) -> None:
    commit(offsets, 1)

    def fail(name: str, count: int) -> None:
        if name == "fdatasync":
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("rocketstore.consuming.commit_journal.syscalls", Calls(fail))
        with pytest.raises(OSError, match="Input/output"):
            commit(offsets, 2)
    assert offsets.get("orders", "billing") == {0: 1}
    commit(offsets, 3)
    assert json.loads(layout.consumer_offsets.read_text())["offsetTable"] == {
        "orders@billing": {"0": 3}
    }


def test_a_reader_beside_a_writer_sees_each_commit(layout: StoreLayout) -> None:
    writer, reader = loaded(layout), FollowerOffsets(layout)
    for number in range(1, 20):
        commit(writer, number)
        if number % 5 == 0:
            writer.merge()
        assert reader.get("orders", "billing") == {0: number}


def test_rocketmq_finds_the_commits_after_a_clean_stop(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, **SMALL) as store:
        store.writer("orders").put_batch([b"x"] * 5)
        with store.consumer("orders", group="billing") as consumer:
            consumer.poll(3)
            consumer.commit()
            assert store.committed("orders", "billing") == {0: 3}
    text = (tmp_path / "config" / "consumerOffset.json").read_text()
    assert json.loads(text)["offsetTable"] == {"orders@billing": {"0": 3}}


def test_a_durable_commit_of_what_is_stored_without_a_sync_syncs_it(
    monkeypatch: pytest.MonkeyPatch, store: rocketstore.Store
) -> None:
    """It was passed over as unchanged, and a loss of power took what was promised."""
    store.writer("t", queue_id=0).put(b"x")
    with store.consumer("t", group="first") as consumer:
        consumer.commit({0: 0})  # makes the files
    with store.consumer("t", group="g") as consumer:
        assert consumer.poll()
        consumer.commit(durability="os")
        calls = Calls(lambda name, count: None)
        monkeypatch.setattr("rocketstore.consuming.commit_journal.syscalls", calls)
        consumer.commit()
        assert calls.names == ["pwrite", "fdatasync"]
        consumer.commit()
        consumer.commit(durability="os")
        assert calls.names == ["pwrite", "fdatasync"]  # nothing is left to do
        consumer.seek(0, queue_id=0)
        consumer.commit(durability="os")
    with store.consumer("t", group="g") as other:
        other.commit({0: 0})
    assert calls.names[2:] == ["pwrite", "pwrite", "fdatasync"]
