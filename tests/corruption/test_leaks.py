"""What is opened and let go leaves nothing behind: no memory, no mapping, no descriptor, no thread.

A few thousand rounds by default, ten times as many of views; ROCKETSTORE_LEAK_ROUNDS=100000 makes it a
million.
"""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.os.mapping import mapped_bytes, mapped_files
from rocketstore.log.mapped_files.memory_log import MemoryLog
from rocketstore.tools import verify
from tests.corruption.reference import INDEX, SEGMENT, Reference, make_reference

pytestmark = [pytest.mark.proof, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("ROCKETSTORE_LEAK_ROUNDS", "2000"))
#: Opens of whole stores are a hundred times dearer than views.
STORE_ROUNDS = max(20, ROUNDS // 100)
#: A leak of one object a round is far more than this; a cache that fills up is less.
SLACK_BYTES = 64 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Held:
    """What the process has at one moment."""

    python_bytes: int
    resident_bytes: int
    mappings: int
    descriptors: int
    threads: int
    mapped: tuple[int, int]


def held() -> Held:
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    return Held(
        tracemalloc.get_traced_memory()[0],
        resident,
        Path("/proc/self/maps").read_text().count("\n"),
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        (mapped_files(), mapped_bytes()),
    )


def check(act: Callable[[], object], rounds: int) -> None:
    """`act` warms up first: imports, free lists and caches are no leak."""
    for _ in range(rounds // 10 + 5):
        act()
    tracemalloc.start()
    try:
        act()
        before = held()
        for _ in range(rounds):
            act()
        after = held()
    finally:
        tracemalloc.stop()
    assert after.python_bytes - before.python_bytes < SLACK_BYTES, (before, after)
    # Below one page in eight rounds; the allocator's own arenas come and go.
    assert after.resident_bytes - before.resident_bytes < rounds * PAGE // 8 + (4 << 20)
    assert after.mappings <= before.mappings + 8, (before, after)
    assert after.descriptors == before.descriptors
    assert after.threads == before.threads
    assert after.mapped == before.mapped


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    root = tmp_path_factory.mktemp("leaks") / "s"
    return make_reference(root, record_crc=True, size=2 * SEGMENT)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "rocketstore")


def test_views_and_messages(reference: Reference) -> None:
    with rocketstore.open(reference.root, "r") as store:
        place = reference.records[3].start

        def act() -> None:
            message = store.get(place)
            view = message.body_view
            assert len(view) == len(message.body)
            assert message.properties is not None

        check(act, ROUNDS * 10)


def test_consumers(reference: Reference) -> None:
    with rocketstore.open(reference.root, "r") as store:

        def act() -> None:
            with store.consumer("orders", queue_id=0) as consumer:
                assert consumer.poll(max_messages=3)

        check(act, ROUNDS)


def test_queries(reference: Reference) -> None:
    with rocketstore.open(reference.root, "r") as store:
        check(lambda: store.query("orders", "k1"), ROUNDS)


def test_errors(reference: Reference) -> None:
    with rocketstore.open(reference.root, "r") as store:

        def act() -> None:
            with pytest.raises(rocketstore.RocketStoreError):
                store.get(1)

        check(act, ROUNDS)


def test_stores_opened_for_reading(reference: Reference) -> None:
    check(lambda: rocketstore.open(reference.root, "r").close(), STORE_ROUNDS)


def test_stores_opened_untrusted(reference: Reference) -> None:
    check(lambda: rocketstore.open(reference.root, "r", untrusted=True).close(), STORE_ROUNDS)


def test_logs_copied(reference: Reference) -> None:
    def act() -> None:
        log = MemoryLog(reference.root / "commitlog")
        log.load()
        log.close()

    check(act, STORE_ROUNDS)


def test_stores_opened_for_writing(tmp_path: Path) -> None:
    def act() -> None:
        with rocketstore.open(tmp_path / "s", commit_log_file_size_bytes=SEGMENT) as store:
            store.writer("orders").put(b"x" * 100)
            list(store.consumer("orders"))

    check(act, max(20, STORE_ROUNDS // 4))


def test_stores_verified(reference: Reference) -> None:
    check(lambda: verify(reference.root, **INDEX), STORE_ROUNDS)


def test_opens_that_are_refused(reference: Reference, tmp_path: Path) -> None:
    """Half-open is where descriptors get lost."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "lock").mkdir()

    def act() -> None:
        with pytest.raises(OSError, match="lock"):
            rocketstore.open(tmp_path)

    check(act, STORE_ROUNDS)
