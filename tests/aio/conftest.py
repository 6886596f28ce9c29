"""Fixtures of the tests of `rocketstore.aio`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketstore._native import syscalls
from rocketstore.log import flusher as flusher_module
from tests.aio.loops import Disk
from tests.small_store import Calls
from tests.unit.conftest import probe

__all__ = ["disk", "probe"]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk that takes nothing until it is told to."""
    calls = Calls(syscalls)
    monkeypatch.setattr(flusher_module, "syscalls", calls)
    found = Disk(calls)
    yield found
    found.work.set()
