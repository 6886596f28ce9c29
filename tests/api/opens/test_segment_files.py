"""`open(segment_files=)`: the program opens the files that become segments of the log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore.errors import ConfigError
from tests.support.small_store import open_small
from tests.support.waiting import wait_until


def unnamed(directory: str, size: int, flags: int = os.O_RDWR) -> int:
    return os.open(directory, flags | os.O_TMPFILE, 0o600)


@pytest.fixture(autouse=True)
def needs_unnamed_files(tmp_path: Path) -> None:
    try:
        os.close(unnamed(str(tmp_path), 0))
    except OSError as error:
        pytest.skip(f"the file system has no unnamed files: {error}")


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_all_segments_are_files_that_the_program_opens(root: Path, durability: Any) -> None:
    """S004-29: what extends the store here is a function, and no class on the way of a put."""
    asked: list[tuple[str, int, int]] = []

    def opens(directory: str, size: int) -> int:
        fd = unnamed(directory, size)
        asked.append((directory, size, os.fstat(fd).st_ino))
        return fd

    with open_small(root, durability=durability, segment_files=opens) as store:
        writer = store.writer("t")
        for _ in range(40):
            writer.put(bytes(3_000))
        store.flush()
        wait_until(lambda: store.dispatched_offset == store.end_offset)
        assert [len(message.body) for message in store.consumer("t")] == [3_000] * 40
    segments = list((root / "commitlog").iterdir())
    assert len(segments) > 2
    assert {path.stat().st_ino for path in segments} <= {inode for *_, inode in asked}
    assert {path.stat().st_mode & 0o777 for path in segments} == {0o600}
    sizes = {path.stat().st_size for path in segments}
    assert {(directory, size) for directory, size, _ in asked} == {
        (str(root / "commitlog"), size) for size in sizes
    }
    with open_small(root, segment_files=None) as store:
        assert store.max_queue_offset("t", 0) == 40


def fails(directory: str, size: int) -> int:
    raise RuntimeError("their fault")


def full(directory: str, size: int) -> int:
    raise OSError(28, "No space left on device")


def with_a_name(directory: str, size: int) -> int:
    return os.open(os.path.join(os.path.dirname(directory), "named"), os.O_RDWR | os.O_CREAT)


def with_bytes(directory: str, size: int) -> int:
    fd = unnamed(directory, size)
    os.write(fd, b"x")
    return fd


REFUSED: dict[str, tuple[Callable[[str, int], Any], str]] = {
    "raises": (fails, "their fault"),
    "full": (full, "no room"),
    "closed": (lambda directory, size: 10_000, "no descriptor"),
    "no number": (lambda directory, size: "fd", "no descriptor"),
    "a directory": (lambda directory, size: os.open(directory, os.O_RDONLY), "regular"),
    "write only": (lambda directory, size: unnamed(directory, size, os.O_WRONLY), "for reading"),
    "in memory": (lambda directory, size: os.memfd_create("x"), "on the file system of"),
    "a name": (with_a_name, "without a name"),
    "bytes": (with_bytes, "empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_segment_is_refused(root: Path, name: str) -> None:
    """At the first segment by the open or the put, and the store works afterwards."""
    opens, text = REFUSED[name]
    before = len(os.listdir("/proc/self/fd"))
    with (
        pytest.raises(OSError, match=text),
        open_small(root, durability="os", segment_files=opens) as store,
    ):
        store.writer("t").put(b"x")
    assert len(os.listdir("/proc/self/fd")) == before
    with open_small(root) as store:
        assert store.writer("t").put(b"x").queue_offset == 0


def test_asyncio_and_what_is_no_function(root: Path) -> None:
    async def scene() -> int:
        async with rocketstore.aio.open(root, segment_files=unnamed) as store:
            return (await store.writer("t").put(b"x")).queue_offset

    assert asyncio.run(scene()) == 0
    with pytest.raises(ConfigError, match="segment_files"):
        rocketstore.open(root, segment_files=1)  # type: ignore[arg-type]
