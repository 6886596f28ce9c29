"""What unit tests of the native part share."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format import codec
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.mapping import mapped_bytes, mapped_files
from tests.support.forking import fork
from tests.unit.unit_queue import Queue

#: Bytes of the mapped file.
SIZE = 5 * 4096 + 100
Child = Callable[[Callable[[], object]], None]


def record(physical_offset: int, **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": "orders",
        "body": b"body",
        "properties": b"",
        "queue_id": 3,
        "queue_offset": 7,
        "physical_offset": physical_offset,
        "born_timestamp_ms": 1_600_000_000_000,
        "born_host": "10.1.2.3:54321",
        "store_timestamp_ms": 1_700_000_000_001,
        "store_host": "192.168.0.9:10911",
        "record_crc": True,
        **fields,
    }
    return codec.encode_record(**values)


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
def queue() -> Queue:
    """Sixty units over a log of a few segments."""
    return Queue()


@pytest.fixture
def mapped() -> Callable[[], tuple[int, int]]:
    """How many files and bytes are mapped more than before the test."""
    gc.collect()
    files, size = mapped_files(), mapped_bytes()
    return lambda: (mapped_files() - files, mapped_bytes() - size)


@pytest.fixture
def probe() -> Iterator[Any]:
    """Native code that makes system calls fail; everything is as before after the test."""
    from tests.support import native_probe

    loaded = native_probe.load()
    yield loaded
    loaded.restore()


@pytest.fixture
def in_child() -> Callable[[Callable[[], object]], None]:
    """Runs a function in a forked child and fails with what it raised there."""

    def run(function: Callable[[], object]) -> None:
        reader, writer = os.pipe()
        pid = fork()
        if pid == 0:
            code = 1
            try:
                function()
                code = 0
            except BaseException:
                os.write(writer, traceback.format_exc().encode())
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            told = stream.read().decode()
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, told

    return run
