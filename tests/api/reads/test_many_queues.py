"""More queues than there may be mapped files: those that rest give theirs back, and nobody notices."""

from __future__ import annotations

import gc
import random
import shutil
import threading
from pathlib import Path

import pytest

from rocketstore import Store, tools
from rocketstore._native.os.mapping import mapped_files
from tests.support.small_store import SMALL, dispatched, open_small

QUEUES = 60
#: Files that may be mapped beside those that were before.
MANY = 20
POINTED = 5
#: Files made ahead for queues, which are mapped too.
READY = 5
SHAPE = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> int:
    """What is mapped before a store is opened."""
    gc.collect()
    before = mapped_files()
    monkeypatch.setattr("rocketstore.log.queues.mapping_cache.MANY_FILES", before + MANY)
    monkeypatch.setattr("rocketstore.log.dispatch.loop_help.POINTED_MAX", POINTED)
    monkeypatch.setattr("rocketstore.log.queues.queue_preallocator.NEXT_MAX", READY)
    return before


def fill(store: Store, rng: random.Random, count: int, sent: dict[int, list[bytes]]) -> None:
    for _ in range(count):
        queue_id = rng.randrange(QUEUES)
        body = b"%d/%d" % (queue_id, len(sent.setdefault(queue_id, [])))
        store.writer("orders", queue_id=queue_id).put(body)
        sent[queue_id].append(body)


def held(store: Store) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for queue_id in store.queues("orders"):
        with store.consumer("orders", queue_id=queue_id) as consumer:
            found[queue_id] = [bytes(message.body) for message in consumer]
    return found


def segments(root: Path) -> int:
    return len(list((root / "commitlog").iterdir()))


def test_a_writer(tmp_path: Path, rng: random.Random, few_files: int) -> None:
    """Every unit comes to its queue, in files that were mapped again and again."""
    sent: dict[int, list[bytes]] = {}
    with open_small(tmp_path / "store", index_enabled=False) as store:
        for _ in range(3):
            fill(store, rng, 400, sent)
            dispatched(store)
            # Queues of several files go at once or not at all.
            assert mapped_files() - few_files < segments(tmp_path / "store") + 2 * MANY
            assert held(store) == sent
        assert len(sent) == QUEUES
    with open_small(tmp_path / "store", index_enabled=False) as store:
        assert store.recovery.mode == "clean"
        assert held(store) == sent
    assert tools.verify(tmp_path / "store", **SHAPE).ok


def test_a_crash(rng: random.Random, root: Path) -> None:
    """Opening cuts and fills queues that are not all mapped at a time."""
    sent: dict[int, list[bytes]] = {}
    with open_small(root, index_enabled=False) as store:
        fill(store, rng, 1000, sent)
    (root / "abort").touch()
    for path in sorted((root / "consumequeue" / "orders").iterdir())[::3]:
        shutil.rmtree(path)
    for mode in ("r", "rw"):  # in memory, then for good
        with open_small(root, mode, index_enabled=False) as store:
            assert store.recovery.mode == "unclean"
            assert held(store) == sent
    assert tools.verify(root, **SHAPE).ok


def test_readers_beside_a_writer(tmp_path: Path, rng: random.Random) -> None:
    """Threads that read while queues come and go see whole queues."""
    sent: dict[int, list[bytes]] = {}
    wrong: list[object] = []
    done = threading.Event()

    def read(store: Store, seed: int) -> None:
        own = random.Random(seed)
        while not done.is_set():
            queue_id = own.randrange(QUEUES)
            with store.consumer("orders", queue_id=queue_id) as consumer:
                found = [bytes(message.body) for message in consumer]
            if found != [b"%d/%d" % (queue_id, n) for n in range(len(found))]:
                wrong.append((queue_id, found))
                return

    with open_small(tmp_path / "store", index_enabled=False) as store:
        fill(store, rng, 500, sent)
        with open_small(tmp_path / "store", "r", index_enabled=False) as follower:
            threads = [
                threading.Thread(target=read, args=(place, rng.getrandbits(32)))
                for place in (store, store, follower)
            ]
            for thread in threads:
                thread.start()
            for _ in range(5):
                fill(store, rng, 150, sent)
            done.set()
            for thread in threads:
                thread.join()
            assert wrong == []
            assert held(dispatched(store)) == sent
            assert held(follower) == sent


def test_a_follower_maps_no_more(tmp_path: Path, rng: random.Random, few_files: int) -> None:
    sent: dict[int, list[bytes]] = {}
    with open_small(tmp_path / "store", index_enabled=False) as store:
        fill(store, rng, 1000, sent)
    gc.collect()
    with open_small(tmp_path / "store", "r", index_enabled=False) as store:
        assert held(store) == sent
        assert mapped_files() - few_files < segments(tmp_path / "store") + 2 * MANY
        assert held(store) == sent


def test_trim(tmp_path: Path, rng: random.Random) -> None:
    sent: dict[int, list[bytes]] = {}
    with open_small(tmp_path / "store", index_enabled=False) as store:
        fill(store, rng, 2000, sent)
        dispatched(store)
        begin = store.end_offset // 2
        kept = store.trim(before_offset=begin)
        found = held(store)
        for queue_id, bodies in found.items():
            assert bodies == sent[queue_id][len(sent[queue_id]) - len(bodies) :]
        assert kept <= begin
        assert 0 < sum(map(len, found.values())) < 2000
    assert tools.verify(tmp_path / "store", **SHAPE).ok
