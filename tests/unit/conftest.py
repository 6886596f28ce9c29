"""What unit tests of the native part share."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from tests.support.forking import fork


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """The descriptor of a new file."""
    fd = syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


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
