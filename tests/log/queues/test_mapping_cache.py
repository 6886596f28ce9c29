"""Which queues give their files back, and in which order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rocketstore._native.os.mapping import MAPPED_FILES_MAX
from rocketstore.log.queues.mapping_cache import LOOKS, MANY_FILES, POINTED_MAX, MappingCache

pytestmark = pytest.mark.quick


class Queue:
    def __init__(self, *, busy: bool = False) -> None:
        self.used = False
        self.busy = busy
        self.parked = 0

    def park(self) -> bool:
        self.parked += not self.busy
        return not self.busy


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> MappingCache:
    """Too many files are mapped, whatever is parked."""
    monkeypatch.setattr("rocketstore.log.queues.mapping_cache.MANY_FILES", -1)
    return MappingCache()


def test_others_have_room_for_their_mappings() -> None:
    """D-39: three tenths of what the kernel allows; half of them may be held for dispatch, half for readers."""
    allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert 0.29 * allowed < MAPPED_FILES_MAX <= 0.3 * allowed
    assert POINTED_MAX + MANY_FILES == MAPPED_FILES_MAX
    assert 0.5 < POINTED_MAX / MAPPED_FILES_MAX < 0.6


def test_nothing_is_parked_while_there_is_room() -> None:
    queues, some = MappingCache(), [Queue() for _ in range(100)]
    for queue in some:
        queues.mapped(queue)
    assert not any(queue.parked for queue in some)


def test_the_oldest_goes_first_and_a_used_one_has_another_turn(full: MappingCache) -> None:
    first, used, busy, last = Queue(), Queue(), Queue(busy=True), Queue()
    used.used = True
    full.mapped(first)
    assert not first.parked
    full.mapped(used)
    assert (first.parked, used.parked) == (1, 0)
    full.mapped(busy)
    assert (used.used, used.parked) == (False, 0)
    full.mapped(last)
    assert (used.parked, busy.parked, last.parked) == (1, 0, 0)
    full.mapped(first)
    assert (first.parked, used.parked, last.parked) == (1, 1, 1)


def test_a_queue_is_known_once(full: MappingCache) -> None:
    """One that is busy and maps again and again is looked at once each time."""
    busy, others = Queue(busy=True), [Queue(busy=True) for _ in range(LOOKS - 1)]
    for queue in (*others, *[busy] * 50):
        full.mapped(queue)
    parkable = Queue()
    full.mapped(parkable)
    full.mapped(busy)
    full.mapped(busy)
    assert parkable.parked == 1


def test_closed_queues_are_forgotten(full: MappingCache) -> None:
    old = Queue()
    full.mapped(old)
    full.clear()
    full.mapped(Queue())
    assert not old.parked


def test_threads(full: MappingCache) -> None:
    """Each maps its own queue, and finds those of the others come and go."""
    wrong: list[BaseException] = []

    def work() -> None:
        queue = Queue()
        try:
            for _ in range(5_000):
                full.mapped(queue)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
