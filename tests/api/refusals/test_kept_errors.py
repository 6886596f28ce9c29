"""Errors that are kept, by the store or by the application, keep no file of the log mapped."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import DiskFullError, Store
from rocketstore.values.kept_errors import without_frames
from tests.support.small_store import SEGMENT, dispatched, engine_of, open_small, parts

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """The collector would free what an exception in a circle holds, at some time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def mapped() -> set[int]:
    """Inodes of the files that this process has mapped."""
    return {int(line.split()[4]) for line in Path("/proc/self/maps").read_text().splitlines()}


def filled(root: Path) -> Store:
    store = open_small(root, durability="os")
    for _ in range(60):
        store.writer("T").put(b"x" * 500)
    return dispatched(store)


def refuse(*_: object) -> None:
    raise FULL


def full_disk(store: Store) -> None:
    """Puts until one needs a segment that there is no room for."""
    parts(store).preallocator._create = refuse
    for _ in range(200):
        store.writer("T").put(b"x" * 500)


def wrong_place(store: Store) -> None:
    store.get(store.begin_offset + 1)


def beyond(store: Store) -> None:
    store.get(store.end_offset + SEGMENT)


def damaged(store: Store) -> None:
    with (Path(engine_of(store).path) / "commitlog" / f"{0:020d}").open("r+b") as file:
        os.pwrite(file.fileno(), b"!!!!", 100)
    store.consumer("T").poll(1)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
@pytest.mark.parametrize("fail", [full_disk, wrong_place, beyond, damaged])
def test_a_trim_frees_what_it_removes(
    fail: Callable[[Store], None], kept: bool, root: Path
) -> None:
    """An operator's loop "while less than n is free: trim" would throw the whole log away."""
    with filled(root) as store:
        errors = []
        with pytest.raises((rocketstore.RocketStoreError, LookupError, OSError)) as caught:
            fail(store)
        store.flush()
        errors.append(caught.value)
        frames = len(caught.traceback)
        assert frames >= 2
        del caught
        if not kept:
            errors.clear()
        first = sorted((root / "commitlog").iterdir())[:5]
        inodes = {path.stat().st_ino for path in first}
        store.trim(before_offset=store.begin_offset + 5 * SEGMENT)
        assert not any(path.exists() for path in first)
        assert mapped() & inodes == set()


def test_a_close_that_fails_keeps_no_file(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Though the program keeps the error, and with it the store, which keeps the file of its end."""
    with filled(root) as store:
        held = list(store.consumer("T"))
        index = engine_of(store).index
        assert index is not None

        def fail() -> None:
            messages = [held.pop() for _ in range(len(held))]  # as a frame of a part may have
            raise OSError(errno.EIO, f"no {len(messages)}")

        monkeypatch.setattr(index, "close", fail)
        inodes = {path.stat().st_ino for path in (root / "commitlog").iterdir()}
        with pytest.raises(OSError, match="Errno 5") as caught:
            store.close()
        kept = caught.value
        del caught
        monkeypatch.undo()
        assert kept.errno == errno.EIO and store.closed
        assert len(inodes) > 5 and len(mapped() & inodes) <= 1


def test_a_copy_says_the_same(tmp_path: Path) -> None:
    class Odd(Exception):
        def __init__(self, one: int, *, two: int) -> None:
            super().__init__(one)
            self.two = two

        def __reduce__(self) -> Any:
            raise TypeError("not to be copied")

    def raised(error: BaseException, cause: BaseException) -> BaseException:
        try:
            try:
                raise cause
            except BaseException as inner:
                raise error from inner
        except BaseException as outer:
            return outer

    for error in (
        OSError(errno.EIO, "no", "/a/file"),
        DiskFullError(errno.ENOSPC, "no", "/a/file"),
        rocketstore.StoreBehindError("/s", "key index", "full"),
        rocketstore.CorruptRecordError(5, "magic"),
        Odd(1, two=2),
    ):
        error.add_note("a note")
        kept = without_frames(raised(error, FULL))
        assert (type(kept), str(kept), kept.__notes__) == (type(error), str(error), ["a note"])
        assert kept.__traceback__ is None is kept.__context__
        assert isinstance(kept.__cause__, OSError) and kept.__cause__.__traceback__ is None
        assert kept.__cause__.errno == errno.ENOSPC
    assert FULL.__traceback__ is not None
