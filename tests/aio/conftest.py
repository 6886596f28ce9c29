"""Fixtures of the tests of `rocketstore.aio`; a test that is a coroutine runs in a loop of its own."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore.aio import Opening
from tests.aio import loops
from tests.aio.loops import Disk
from tests.support.disk_calls import disk_calls
from tests.unit.conftest import probe

__all__ = ["disk", "probe"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Says whether it ran the test; the others have no loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in names}

    async def main() -> None:
        async with given.get("store", contextlib.nullcontext()) as store:
            await pyfuncitem.obj(**{**given, **({"store": store} if "store" in given else {})})

    loops.run(main)
    return True


@pytest.fixture
def store(tmp_path: Path, store_options: dict[str, Any]) -> Opening:
    """A small store that is open while the test's coroutine runs."""
    return loops.open_small(tmp_path, **store_options)


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
