"""Copies of what recovery takes out: whole, sparse, told in a manifest, never twice."""

from __future__ import annotations

import contextlib
import errno
import json
import random
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.recovery.quarantine import keep_copy, keep_end_of_file, pieces_of

SIZE = 1 << 16


def segment(
    layout: StoreLayout, start: int, parts: dict[int, bytes], size: int = SIZE
) -> MappedFile:
    path = layout.commit_log / segment_name(start)
    with path.open("wb") as file:
        file.truncate(size)
        for position, data in parts.items():
            file.seek(position)
            file.write(data)
    return MappedFile.open(str(path), start, size, "write")


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    """Of a store whose log is empty."""
    layout = StoreLayout(tmp_path / "store")
    make_directories(layout)
    return layout


@pytest.fixture
def file(layout: StoreLayout) -> MappedFile:
    """The first segment."""
    return segment(layout, 0, {100: b"abc"})


def test_pieces_are_what_is_not_zero(layout: StoreLayout) -> None:
    files = [
        segment(layout, 0, {100: b"abc"}),
        segment(layout, SIZE, {}),
        segment(layout, 2 * SIZE, {0: b"x", 5000: b"yz"}),
    ]
    found = pieces_of(files, 50, 3 * SIZE)
    assert [(p.file, p.start, p.end) for p in found] == [
        (files[0], 50, 103),
        (files[2], 2 * SIZE, 2 * SIZE + 5002),
    ]
    assert pieces_of(files, 103, 2 * SIZE) == []
    assert [(p.start, p.end) for p in pieces_of(files, 0, 102)] == [(0, 102)]


def test_copy_holds_every_byte(layout: StoreLayout, rng: random.Random) -> None:
    """D-21"""
    parts = {rng.randrange(SIZE - 300): rng.randbytes(rng.randrange(1, 300)) for _ in range(10)}
    file = segment(layout, SIZE, parts)
    start = SIZE + rng.randrange(2000)
    pieces = pieces_of([file], start, 2 * SIZE)
    kept = keep_copy(layout, pieces, "a test", {"topics": ["orders"]})
    assert kept is not None
    copy = (Path(kept) / segment_name(start)).read_bytes()
    assert copy.ljust(2 * SIZE - start, b"\0") == file.read(start - SIZE, 2 * SIZE - start)


def test_copy_of_zeros_is_none(layout: StoreLayout) -> None:
    file = segment(layout, 0, {})
    assert keep_copy(layout, pieces_of([file], 0, SIZE), "a test", {}) is None
    assert list(layout.quarantine.iterdir()) == []


def test_copy_keeps_holes(layout: StoreLayout) -> None:
    size = 1 << 26
    file = segment(layout, 0, {0: b"begin", size - 10: b"end"}, size)
    kept = keep_copy(layout, pieces_of([file], 0, size), "a test", {})
    assert kept is not None
    copy = Path(kept) / segment_name(0)
    assert copy.stat().st_size == size - 7
    assert copy.stat().st_blocks * 512 < size // 8


def test_manifest_tells_what_and_why(layout: StoreLayout) -> None:
    files = [segment(layout, 0, {10: b"a"}), segment(layout, SIZE, {20: b"bc"})]
    kept = keep_copy(layout, pieces_of(files, 10, 2 * SIZE), "a test", {"topics": ["orders"]})
    assert kept is not None
    manifest = json.loads((Path(kept) / "manifest.json").read_text())
    assert Path(kept).name == f"{segment_name(10)}-0"
    assert (manifest["reason"], manifest["offset"], manifest["length"], manifest["topics"]) == (
        "a test",
        10,
        SIZE + 12,
        ["orders"],
    )
    assert [(p["file"], p["offset"], p["length"]) for p in manifest["pieces"]] == [
        (segment_name(10), 10, 1),
        (segment_name(SIZE), SIZE, 22),
    ]


def test_same_bytes_are_kept_once(layout: StoreLayout) -> None:
    file = segment(layout, 0, {100: b"abc", 9000: b"def"})
    first = keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    assert keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {}) == first
    file.write(9000, bytes(3))  # part of them, as a cut that was begun leaves it
    assert keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {}) == first
    assert len(list(layout.quarantine.iterdir())) == 1


def test_other_bytes_at_the_same_place_are_kept_too(layout: StoreLayout, file: MappedFile) -> None:
    first = keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    file.write(100, b"xyz")
    second = keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    assert first is not None
    assert second is not None
    assert [Path(p).name[-2:] for p in (first, second)] == ["-0", "-1"]
    assert (Path(first) / segment_name(100)).read_bytes() == b"abc"
    assert (Path(second) / segment_name(100)).read_bytes() == b"xyz"


def test_unfinished_copy_is_made_anew(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, file: MappedFile
) -> None:
    """Without a manifest it proves nothing."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(syscalls, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    assert len(list(layout.quarantine.glob("*/*"))) == 1
    kept = keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    assert [str(path) for path in layout.quarantine.iterdir()] == [kept]
    assert (layout.quarantine / str(kept) / segment_name(100)).read_bytes() == b"abc"


def test_a_kill_at_any_step_leaves_a_whole_manifest_or_none(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, file: MappedFile
) -> None:
    """One without its content counts as a copy that is finished, and nothing removes it."""
    steps = 0
    while True:
        left = steps

        def counted(name: str) -> Any:
            real = getattr(syscalls, name)

            def call(*given: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
                return real(*given)

            return call

        with monkeypatch.context() as patched:
            for name in ("open", "pwrite", "fsync", "rename", "sync_directory"):
                patched.setattr(syscalls, name, counted(name))
            with contextlib.suppress(KeyboardInterrupt):
                keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
                break
        for manifest in layout.quarantine.glob("*/manifest.json"):
            assert json.loads(manifest.read_text())["pieces"], steps
        steps += 1
    assert steps > 6
    kept = keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    assert [str(path) for path in layout.quarantine.iterdir()] == [kept]


def test_a_link_in_quarantine_is_no_unfinished_copy(layout: StoreLayout, tmp_path: Path) -> None:
    """What lies behind it is not the store's."""
    foreign = tmp_path / "elsewhere" / "precious"
    foreign.parent.mkdir()
    foreign.touch()
    (layout.quarantine / f"{segment_name(100)}-0").symlink_to(foreign.parent)
    file = segment(layout, 0, {100: b"abc"})
    kept = keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    assert Path(str(kept)).name == f"{segment_name(100)}-1"
    assert foreign.exists()


def test_full_disk_says_what_was_to_be_kept(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, file: MappedFile
) -> None:

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(syscalls, "pwrite", full)
    with pytest.raises(DiskFullError, match="no room for a copy"):
        keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})


def test_end_of_a_long_file(layout: StoreLayout) -> None:
    path = layout.commit_log / segment_name(0)
    path.write_bytes(b"0123456789")
    kept = keep_end_of_file(layout, str(path), 4, 4)
    assert (Path(kept) / segment_name(4)).read_bytes() == b"456789"
    assert json.loads((Path(kept) / "manifest.json").read_text())["length"] == 6


def test_the_end_of_a_long_file_costs_what_it_holds(layout: StoreLayout) -> None:
    """D-21: a length without bytes is no reason to fill the disk."""
    path = layout.commit_log / segment_name(0)
    path.write_bytes(b"x" * 4096)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
        file.seek((1 << 35) + 5)
        file.write(b"far away")
    kept = Path(keep_end_of_file(layout, str(path), 100, 100)) / segment_name(100)
    assert kept.stat().st_size == (1 << 40) - 100
    assert kept.stat().st_blocks * 512 < 4 << 20
    with kept.open("rb") as file:
        assert file.read(3996) == b"x" * 3996
        file.seek((1 << 35) + 5 - 100)
        assert file.read(8) == b"far away"


def test_copies_belong_to_the_owner_of_the_log(layout: StoreLayout, file: MappedFile) -> None:
    """D-09"""
    (layout.commit_log / segment_name(0)).chmod(0o640)
    kept = keep_copy(layout, pieces_of([file], 100, SIZE), "a test", {})
    assert kept is not None
    modes = {path.name: path.stat().st_mode & 0o777 for path in Path(kept).iterdir()}
    assert modes == {segment_name(100): 0o640, "manifest.json": 0o640}
