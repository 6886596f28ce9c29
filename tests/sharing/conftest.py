"""A host in another process, and guests of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from tests.process.other_process import HOLD, SMALL, OtherProcess, other_process
from tests.sharing.served import calls, link, served

__all__ = ["calls", "link", "served"]

#: Opens a guest of the store of the fixture `host`.
Guests = Callable[..., Store]


@pytest.fixture
def host(root: Path) -> Iterator[OtherProcess]:
    """A process that holds the store in `root`; it closes when it hears a line."""
    with other_process(HOLD, root, shared="host") as process:
        assert process.line() == "open"
        yield process


@pytest.fixture
def guests(root: Path) -> Iterator[Guests]:
    """Opens guests in this process, which are closed at the end."""
    opened: list[Store] = []

    def open_guest(shared: Any = "guest", **options: Any) -> Store:
        store = rocketstore.open(root, shared=shared, **{**SMALL, **options})
        opened.append(store)
        return store

    yield open_guest
    for store in opened:
        store.close()


@pytest.fixture
def guest(host: OtherProcess, guests: Guests) -> Store:
    """A guest in this process; the host is another one."""
    return guests()
