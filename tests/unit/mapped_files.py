"""A mapped file for tests, and what they hold mapped; fixtures to import."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.mapping import mapped_bytes, mapped_files

SIZE = 5 * 4096 + 100
Child = Callable[[Callable[[], object]], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000081920"
    path.write_bytes(bytes(SIZE))
    return path


@pytest.fixture
def file(path: Path) -> Iterator[MappedFile]:
    file = MappedFile.open(path, 81920, SIZE, "write")
    yield file
    file.close()


@pytest.fixture
def mapped() -> Callable[[], tuple[int, int]]:
    """How many files and bytes are mapped more than before the test."""
    gc.collect()
    files, size = mapped_files(), mapped_bytes()
    return lambda: (mapped_files() - files, mapped_bytes() - size)
