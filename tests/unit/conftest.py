"""What unit tests of the native part share."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.forking import fork


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
