"""A log is cut at a sound record by an order: all of it or nothing, whatever stops it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery.progress import order_cut, ordered_cut
from rocketstore.tools import verify
from tests.support.small_store import SMALL, everything, log_bytes, open_small

SHAPE = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}
COUNT = 60


def _filled(root: Path) -> list[int]:
    """A store of some segments, stopped cleanly; where its records begin."""
    starts = []
    with open_small(root) as store:
        for number in range(COUNT):
            writer = store.writer("orders", queue_id=number % 2)
            body = b"%04d" % number + b"x" * (number * 7 % 200)
            starts.append(writer.put(body, keys=f"key{number}").physical_offset)
    return starts


def _numbers(store: rocketstore.Store) -> list[int]:
    return sorted(int(bytes(message.body)[:4]) for message in everything(store))


def _check(root: Path, starts: list[int], kept: int) -> None:
    """Messages 0 … kept − 1 are there in every way, and no other ever comes back."""
    with open_small(root) as store:
        assert _numbers(store) == list(range(kept))
        assert [len(store.query("orders", f"key{n}")) for n in (kept - 1, kept) if n >= 0] == (
            [1, 0] if kept else [0]
        )
        # A record of the same size ends where the old one did: stale bytes would follow it.
        again = store.writer("orders", queue_id=kept % 2).put(
            b"%04d" % (9000 + kept) + b"x" * (kept * 7 % 200), keys=f"key{kept}"
        )
        assert again.physical_offset == starts[kept]
    with open_small(root) as store:
        assert _numbers(store) == [*range(kept), 9000 + kept]
    assert verify(root, **SHAPE).faults == ()


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    """Nothing is there yet."""
    return StoreLayout(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 17, 33, COUNT - 1])
def test_cut_at_a_record(tmp_path: Path, kept: int, layout: StoreLayout) -> None:
    starts = _filled(tmp_path)
    lost = log_bytes(tmp_path)[starts[kept] :]
    order_cut(layout, starts[kept])
    with open_small(tmp_path) as store:
        assert store.recovery.end == starts[kept]
        assert store.recovery.cut is not None
        [copy] = store.recovery.quarantine
    assert ordered_cut(layout) is None
    kept_bytes = bytearray(len(lost))
    for path in sorted(Path(copy).glob("0*")):
        data = path.read_bytes()
        at = int(path.name) - starts[kept]
        kept_bytes[at : at + len(data)] = data
    assert kept_bytes == lost
    _check(tmp_path, starts, kept)


def test_cut_at_the_begin_of_a_segment(tmp_path: Path, layout: StoreLayout) -> None:
    starts = _filled(tmp_path)
    [first] = [n for n in range(COUNT) if starts[n] == SMALL["commit_log_file_size_bytes"] * 2]
    order_cut(layout, starts[first])
    _check(tmp_path, starts, first)


@pytest.mark.parametrize("off", [-1, 1, 95])
def test_no_cut_within_a_record(tmp_path: Path, off: int, layout: StoreLayout) -> None:
    starts = _filled(tmp_path)
    order_cut(layout, starts[20] + off)
    with open_small(tmp_path) as store:
        assert any("is not cut at" in note for note in store.recovery.notes)
        assert _numbers(store) == list(range(COUNT))
    assert ordered_cut(layout) is None


def test_no_cut_beyond_the_log(tmp_path: Path, layout: StoreLayout) -> None:
    _filled(tmp_path)
    order_cut(layout, 1 << 40)
    with open_small(tmp_path) as store:
        assert _numbers(store) == list(range(COUNT))


def test_reader_of_a_store_that_is_to_be_cut_sees_it_cut(
    tmp_path: Path, layout: StoreLayout
) -> None:
    starts = _filled(tmp_path)
    order_cut(layout, starts[20])
    before = log_bytes(tmp_path)
    with open_small(tmp_path, "r") as store:
        assert _numbers(store) == list(range(20))
    assert log_bytes(tmp_path) == before
    assert ordered_cut(layout) == starts[20]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2, "at": 0}', b'{"version": 1, "at": -1}']
)
def test_unreadable_order_cuts_nothing(tmp_path: Path, content: bytes, layout: StoreLayout) -> None:
    _filled(tmp_path)
    layout.cut.write_bytes(content)
    with open_small(tmp_path) as store:
        assert _numbers(store) == list(range(COUNT))


# ---- stops on the way ----

CALLS = ("open", "pwrite", "fdatasync", "fsync", "unlink", "rename", "sync_directory", "mkdir",
         "ftruncate")  # fmt: skip


class Trace:
    """What an open changes on the disk, in order: (call, path, more)."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root) + "/"
        self.steps: list[tuple[str, str, Any]] = []

    def record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in CALLS:
            monkeypatch.setattr(syscalls, name, self._noting(name, getattr(syscalls, name)))

    def _noting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *more: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
            if path.startswith(self._root) and (name != "open" or more[0] & os.O_CREAT):
                data = tuple(bytes(one) if isinstance(one, memoryview) else one for one in more)
                self.steps.append((name, path.removeprefix(self._root), data))
            return real(target, *more)

        return call

    def image(self, root: Path, count: int, rng: random.Random) -> None:
        """Makes of `root`, as it was before, what a loss of power after `count` steps leaves: what
        was synced, and any of the rest."""
        done = self.steps[:count]
        for number, (name, path, more) in enumerate(done):
            there = root / path
            to = more[0].removeprefix(self._root) if name == "rename" else path
            synced = any(self._keeps(step, name, to) for step in done[number + 1 :])
            if not synced and name != "open" and rng.random() < 0.5:
                continue
            if name == "rename":
                with contextlib.suppress(FileNotFoundError):
                    there.rename(root / to)
            elif name == "unlink":
                there.unlink(missing_ok=True)
            elif name == "mkdir":
                there.mkdir(exist_ok=True)
            elif name == "open" and there.parent.is_dir():
                there.touch()
            elif name == "pwrite" and there.exists():
                with there.open("r+b") as file:
                    os.pwrite(file.fileno(), more[0], more[1])
            elif name == "ftruncate" and there.exists():
                os.truncate(there, more[0])

    def _keeps(self, step: tuple[str, str, Any], name: str, path: str) -> bool:
        if name in ("rename", "unlink", "mkdir"):
            return step[0] == "sync_directory" and step[1] == os.path.dirname(path)
        return step[0] in ("fdatasync", "fsync") and step[1] == path


def test_power_lost_at_any_step_leaves_the_old_log_or_the_cut_one(
    tmp_path: Path, rng: random.Random
) -> None:
    """And stale bytes never come back, whichever writes the disk had taken."""
    before = tmp_path / "before"
    starts = _filled(before)
    kept = rng.randrange(5, COUNT - 5)
    shutil.copytree(before, tmp_path / "run")
    trace = Trace(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patched:
        trace.record(patched)
        order_cut(StoreLayout(tmp_path / "run"), starts[kept])
        open_small(tmp_path / "run").close()
    ordered = next(n for n, step in enumerate(trace.steps) if step[0] == "sync_directory") + 1
    assert len(trace.steps) > ordered + 15
    for count in range(len(trace.steps) + 1):
        image = tmp_path / str(count)
        shutil.copytree(before, image)
        trace.image(image, count, rng)
        with open_small(image) as store:
            found = _numbers(store)
            quarantine = store.recovery.quarantine
        assert found in ([*range(kept)], [*range(COUNT)]), count
        if count >= ordered:
            assert found == [*range(kept)], count
            assert quarantine or any((image / "rocketstore" / "quarantine").iterdir()), count
            if rng.random() < 0.1:
                _check(image, starts, kept)
        shutil.rmtree(image)
