"""Many faults in one log: what a recovery reads, writes and syncs grows with the log alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery import progress, quarantine, walk
from rocketstore.log.recovery.quarantine import keep_state_file

FAULTS = 300


class Counter:
    """Counts the calls of a function of a module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> None:
        self.calls = 0
        call: Callable[..., object] = getattr(module, name)

        def counting(*arguments: object, **named: object) -> object:
            self.calls += 1
            return call(*arguments, **named)

        monkeypatch.setattr(module, name, counting)


def with_faults(root: Path, faults: int) -> None:
    """A store of another program: every second record has a changed byte."""
    with rocketstore.open(root, "rw", commit_log_file_size_bytes=1 << 20) as store:
        writer = store.writer("orders", durability="os")
        places = [writer.put(b"0123456789").physical_offset for _ in range(2 * faults)]
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        for place in places[:-1:2]:
            file.seek(place + 88)
            file.write(b"\xff\xff")
    shutil.rmtree(root / "rocketstore")


@pytest.mark.parametrize("untrusted", [False, True])
def test_a_walk_reads_each_record_once_however_many_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untrusted: bool
) -> None:
    with_faults(tmp_path / "s", FAULTS)
    reads = Counter(monkeypatch, walk, "_read")
    with rocketstore.open(tmp_path / "s", "r", untrusted=untrusted) as store:
        assert len(store.recovery.damage) == FAULTS
    assert reads.calls < 6 * FAULTS


def test_damage_is_copied_to_one_place_with_few_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-21: each range is named in the manifest, and the copy has its bytes."""
    root = tmp_path / "s"
    with_faults(root, FAULTS)
    log = (root / "commitlog" / ("0" * 20)).read_bytes()
    syncs = Counter(monkeypatch, syscalls, "fsync")
    with rocketstore.open(root, "rw") as store:
        damage, kept = store.recovery.damage, store.recovery.quarantine
    assert len(damage) == FAULTS
    assert len(kept) == 1
    assert syncs.calls < 50
    (path,) = kept
    manifest = json.loads((Path(path) / "manifest.json").read_text())
    assert [(p["offset"], p["reason"], p["topics"]) for p in manifest["pieces"]] == [
        (one.start, one.reason, list(one.topics)) for one in damage
    ]
    copy = (Path(path) / ("0" * 20)).read_bytes()
    for one in damage:
        assert copy[one.start : one.end].rstrip(b"\0") == log[one.start : one.end].rstrip(b"\0")


def test_a_repeated_recovery_reads_manifests_once_and_copies_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    with_faults(root, FAULTS)
    with rocketstore.open(root, "rw") as store:
        kept = store.recovery.quarantine
    before = sorted((root / "rocketstore/quarantine").rglob("*"))
    (root / "rocketstore/checkpoint").unlink()
    reads = Counter(monkeypatch, quarantine, "read_json")
    with rocketstore.open(root, "rw") as store:
        assert len(store.recovery.damage) == FAULTS
        assert store.recovery.quarantine == kept
    assert reads.calls < 10
    assert sorted((root / "rocketstore/quarantine").rglob("*")) == before


@pytest.mark.parametrize("what", ["fifo", "link", "sparse", "directory"])
def test_a_name_that_is_taken_by_no_copy_is_passed_over(layout: StoreLayout, what: str) -> None:
    """Its place is never read: a pipe does not hold recovery up, a length does not fill memory."""
    taken = layout.quarantine / "consumerOffset.json-0"
    if what == "fifo":
        os.mkfifo(taken)
    elif what == "link":
        taken.symlink_to("/dev/zero")
    elif what == "sparse":
        with taken.open("wb") as file:
            file.truncate(1 << 40)
    else:
        taken.mkdir()
    path = layout.root / "consumerOffset.json"
    path.write_bytes(b"{}")
    kept = keep_state_file(layout, path)
    assert kept == os.fspath(layout.quarantine / "consumerOffset.json-1")
    assert Path(kept).read_bytes() == b"{}"
    assert keep_state_file(layout, path) == kept


@pytest.mark.parametrize("name", ["store.json", "recovery.json"])
def test_a_pipe_in_place_of_a_state_file_holds_nobody_up(tmp_path: Path, name: str) -> None:
    root = tmp_path / "s"
    with rocketstore.open(root, "rw") as store:
        store.writer("orders").put(b"x")
    (root / "rocketstore" / name).unlink(missing_ok=True)
    os.mkfifo(root / "rocketstore" / name)
    with rocketstore.open(root, "r") as store:
        assert [message.body for message in store.consumer("orders")] == [b"x"]


def with_progress(root: Path, damage: object, **other: object) -> None:
    """50 sound records, a crash, and the progress of a recovery that tells of damage."""
    with rocketstore.open(root, "rw") as store:
        writer = store.writer("orders", durability="disk")
        end = [writer.put(b"m").end_offset for _ in range(50)][-1]
    document = {
        "version": 1, "mode": "unclean", "clean": True, "start": 0, "end": end,
        "dispatch_start": 0, "damage": damage, "first_time_fall": -1, **other,
    }  # fmt: skip
    text = json.dumps(document).replace('"END"', str(end)).replace('"HUGE"', "1e400")
    (root / "rocketstore/recovery.json").write_text(text)
    (root / "abort").touch()


def damaged(start: object, end: object) -> dict[str, object]:
    return {"start": start, "end": end, "reason": "x", "topics": []}


FALSE_PROGRESS = {
    "all": ([damaged(0, "END")], {}),
    "within a record": ([damaged(1, "END")], {}),
    "rising": ([damaged(0, end) for end in range(100, 5000, 100)], {}),
    "falling": ([damaged(200, 300), damaged(100, 150)], {}),
    "beyond": ([damaged(0, 2**62)], {}),
    "empty": ([damaged(5, 5)], {}),
    "a number": (5, {}),
    "infinite fall": ([], {"first_time_fall": "HUGE"}),
    "infinite end": ([], {"end": "HUGE"}),
    "infinite damage": ([damaged("HUGE", "END")], {}),
}


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("what", FALSE_PROGRESS)
def test_a_false_progress_is_not_believed(
    tmp_path: Path, what: str, mode: rocketstore.store.Mode
) -> None:
    """recovery.json alone makes no sound record damaged or lost, and copies nothing."""
    damage, other = FALSE_PROGRESS[what]
    with_progress(tmp_path / "s", damage, **other)
    with rocketstore.open(tmp_path / "s", mode) as store:
        assert store.recovery.damage == ()
        assert not store.recovery.lost
        assert len(list(store.consumer("orders"))) == 50
    assert not [*(tmp_path / "s/rocketstore/quarantine").iterdir()]


@pytest.mark.parametrize("most", [0, 1])
def test_a_true_progress_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Its damage is not looked for again, unless there is more than any recovery notes."""
    monkeypatch.setattr(progress, "DAMAGE_MAX", most)
    root = tmp_path / "s"
    with_progress(root, [])
    text = (root / "rocketstore/recovery.json").read_text()
    found = json.loads(text)
    size = found["end"] // 50
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(3 * size + 88)
        file.write(b"\xff")
    found["damage"] = [damaged(3 * size, 4 * size)]
    (root / "rocketstore/recovery.json").write_text(json.dumps(found))
    with rocketstore.open(root, "r") as store:
        named = [(one.start, one.end) for one in store.recovery.damage]
        assert named == ([(3 * size, 4 * size)] if most else [])
