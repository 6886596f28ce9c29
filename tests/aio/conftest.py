"""Fixtures of the tests of `rocketstore.aio`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.aio import loops
from tests.aio.loops import Disk
from tests.support.disk_calls import disk_calls
from tests.unit.conftest import probe

__all__ = ["disk", "probe"]


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def event_loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run in the loops of both."""
    if request.param == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        monkeypatch.setattr(loops, "make_loop", uvloop.new_event_loop)


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A disk that takes nothing until it is told to."""
    with disk_calls() as calls:
        found = Disk(calls)
        yield found
        found.work.set()
