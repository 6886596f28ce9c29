"""`_native.os.mapped_file`: a view keeps the memory mapped, whatever happens to its file (D-36)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import StoreClosedError
from tests.unit.conftest import SIZE, Child

pytestmark = pytest.mark.quick


# ---- views ----


def test_views_are_read_only(file: MappedFile) -> None:
    view = file.view(0, 10)
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(TypeError):
        memoryview(file)[0] = 1


def test_the_whole_file_is_a_buffer(file: MappedFile) -> None:
    file.write(3, b"x")
    view = memoryview(file)
    assert (view.nbytes, view.format, view.ndim, view.c_contiguous) == (SIZE, "B", 1, True)
    assert bytes(file) == file.read(0, SIZE)


def test_a_view_pins_the_memory(path: Path, mapped: Callable[[], tuple[int, int]]) -> None:
    """S004-08 S004-09: mapped files and bytes are counted until the last view goes (D-36, K-41)."""
    file = MappedFile.open(path, 0, SIZE, "write")
    file.write(10, b"kept")
    first, second = file.view(10, 4), memoryview(file)
    assert mapped() == (1, SIZE)
    file.close()
    del file
    assert mapped() == (1, SIZE)
    assert bytes(first) == b"kept"
    first.release()
    assert mapped() == (1, SIZE)
    assert second[10:14].tobytes() == b"kept"
    second.release()
    assert mapped() == (0, 0)


def test_a_part_of_a_view_pins_too(path: Path, mapped: Callable[[], tuple[int, int]]) -> None:
    file = MappedFile.open(path, 0, SIZE, "write")
    part = file.view(0, 100)[50:60][2:4]
    file.close()
    del file
    assert mapped() == (1, SIZE)
    assert bytes(part) == b"\0\0"
    del part
    assert mapped() == (0, 0)


def test_an_array_pins_too(path: Path, mapped: Callable[[], tuple[int, int]]) -> None:
    numpy = pytest.importorskip("numpy")
    file = MappedFile.open(path, 0, SIZE, "write")
    file.write(0, b"\x07")
    array = numpy.frombuffer(file.view(0, 8), dtype="u1")
    file.close()
    del file
    assert array[0] == 7
    assert mapped() == (1, SIZE)
    del array
    assert mapped() == (0, 0)


def test_a_view_of_a_removed_file_stays_readable(path: Path) -> None:
    file = MappedFile.open(path, 0, SIZE, "write")
    file.write(0, b"gone")
    view = file.view(0, 4)
    path.unlink()
    file.close()
    assert bytes(view) == b"gone"


def test_after_close_there_are_no_new_views(file: MappedFile) -> None:
    file.write(0, b"still here")
    old = file.view(0, 10)
    file.close()
    file.close()
    assert file.closed
    for reach in (
        lambda: file.view(0, 1),
        lambda: memoryview(file),
        lambda: file.read(0, 1),
        lambda: file.write(0, b"x"),
        lambda: file.zero(0, 1),
        lambda: file.find_data(0, 1),
        lambda: file.sync(0, 1),
        lambda: file.populate(0, 1),
        lambda: file.advise("normal"),
        lambda: file.lock_memory(),
    ):
        with pytest.raises(StoreClosedError):
            reach()
    assert bytes(old) == b"still here"


def test_close_gives_the_descriptor_back_at_once(path: Path) -> None:
    file = MappedFile.open(path, 0, SIZE, "write")
    fd, view = file.fd, file.view(0, 1)
    file.close()
    assert file.fd == -1
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    assert bytes(view) == b"\0"


def test_without_its_descriptor_a_file_still_reads_and_syncs(path: Path) -> None:
    file = MappedFile.open(path, 0, SIZE, "write")
    fd = file.fd
    file.close_descriptor()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    file.write(4096, b"x")
    assert file.find_data(0, SIZE) == 4096
    file.sync(0, SIZE)
    file.close()


def test_a_forgotten_file_gives_everything_back(
    path: Path, mapped: Callable[[], tuple[int, int]]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = MappedFile.open(path, 0, SIZE, "write")
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del file
    assert len(os.listdir("/proc/self/fd")) == before
    assert mapped() == (0, 0)


def test_views_live_through_a_fork(file: MappedFile, in_child: Child) -> None:
    """D-35, D-36: a child reads what it has, stores nothing, and its end takes nothing from us."""
    file.write(0, b"before")
    view = file.view(0, 6)

    def child() -> None:
        assert bytes(view) == b"before"
        assert file.read(0, 6) == b"before"
        for change in (
            lambda: file.write(0, b"x"),
            lambda: file.zero(0, 1),
            lambda: file.sync(0, 1),
        ):
            with pytest.raises(StoreClosedError, match="forked child"):
                change()
        view.release()
        file.close()

    in_child(child)
    assert bytes(view) == b"before"
    file.write(0, b"after!")
    assert bytes(view) == b"after!"


def test_a_child_may_map_for_itself(path: Path, in_child: Child) -> None:
    def child() -> None:
        own = MappedFile.open(path, 0, SIZE, "write")
        own.write(0, b"child")
        own.sync(0, 5)
        own.close()

    in_child(child)
    assert path.read_bytes()[:5] == b"child"
