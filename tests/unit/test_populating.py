"""`_native.append.page_populator`: which pages are made ready ahead of a writer, and when; round by round."""

from __future__ import annotations

import errno
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.append.page_populator import DONE, SLEEP, PagesAhead
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore.errors import StoreClosedError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.quick

KIB = 1 << 10
MIB = 1 << 20
START = 64 * MIB
SIZE = 15 * MIB
US, MS, S = 1_000, 1_000_000, 1_000_000_000
LOOK = 100 * US
EASY_PAUSE = 100 * US
#: Numbers of linux/mman.h.
NORMAL, RANDOM, HUGEPAGE, NOHUGEPAGE, POPULATE_WRITE = 0, 1, 14, 15, 23


class Beside:
    """A writer whose progress and time the test moves, and the pages ahead of it."""

    def __init__(self, window_bytes: int = 32 * MIB, start: int = START) -> None:
        self.file = MappedFile.anonymous(START, SIZE)
        self.positions = Positions()
        self.positions.wrote = start
        self.pages = PagesAhead(self.positions, window_bytes)
        self.pages.slow_ns = S  # whatever the machine of the test takes
        self.now = time.monotonic_ns() + S

    def writes(self, size: int, took_ns: int) -> None:
        self.positions.wrote += size
        self.now += took_ns

    def round(self) -> int:
        return self.pages.round(self.file, self.now)

    def rounds(self) -> list[int]:
        """What each round asked for until the next wake-up, the time standing still."""
        asked = [self.round()]
        while asked[-1] >= 0:
            assert len(asked) < 1000
            asked.append(self.round())
        return asked

    def hurry(self, size: int = 4 * MIB) -> None:
        """So much within a millisecond."""
        self.round()
        self.now += 30 * MS
        self.writes(64 * KIB, 0)
        assert self.round() == LOOK
        self.writes(size - 64 * KIB, MS)

    @property
    def ready(self) -> int:
        """Bytes of the file in front of the border."""
        return self.pages.populated - START


@pytest.fixture
def beside() -> Beside:
    return Beside()


def test_a_store_that_is_hardly_written_dirties_no_page(beside: Beside) -> None:
    assert beside.rounds() == [SLEEP]
    beside.writes(64 * KIB - 1, S)
    assert beside.rounds() == [SLEEP]
    assert beside.ready == 64 * KIB - 1
    beside.writes(1, S)
    assert beside.rounds()[-2:] == [EASY_PAUSE, SLEEP]
    assert beside.ready == 128 * KIB


def test_a_slow_writer_gets_small_steps_as_far_as_it_has_written(
    beside: Beside, probe: Any
) -> None:
    """K-48. In between whoever was woken has the processor, and readers of the file want read-ahead."""
    probe.fail("madvise", 0, times=0)
    beside.writes(256 * KIB + 100, 10 * S)
    assert beside.rounds() == [LOOK, *[EASY_PAUSE] * 4, SLEEP]
    assert beside.ready == (256 + 64 + 256) * KIB
    assert probe.advice_given() == [RANDOM, POPULATE_WRITE, NORMAL] * 4
    assert not beside.pages.hurried


def test_a_fast_writer_gets_large_steps(beside: Beside, probe: Any) -> None:
    """From the pages behind the one that it stands in; up to four times what it has written."""
    probe.fail("madvise", 0, times=0)
    beside.hurry(MIB)
    assert beside.rounds() == [0, 0, 0, SLEEP]
    assert beside.ready == 6 * MIB
    assert probe.advice_given() == [HUGEPAGE, *[RANDOM, POPULATE_WRITE, NORMAL] * 3]
    beside.writes(MIB, MS)
    assert beside.rounds() == [0, 0, SLEEP]
    assert beside.ready == 10 * MIB


def test_a_burst_after_a_rest_is_noticed_within_half_a_mebibyte(beside: Beside) -> None:
    beside.writes(64 * KIB, 10 * S)
    assert beside.round() == LOOK
    beside.writes(512 * KIB, LOOK)
    assert beside.round() == 0
    assert beside.pages.hurried
    assert beside.ready == 2 * MIB


@pytest.mark.parametrize(("mib_a_second", "hurried"), [(210, False), (300, True)])
def test_what_is_fast(beside: Beside, mib_a_second: int, hurried: bool) -> None:
    """A million messages of 100 B a second get small steps, which reach as far."""
    beside.round()
    for _ in range(30):
        beside.writes(mib_a_second * MIB // 1000, MS)
        beside.round()
    assert beside.pages.hurried == hurried
    reached = 64 * KIB * S // (EASY_PAUSE + 100 * US)
    assert hurried or reached > mib_a_second * MIB


def test_a_batch_is_no_hurry(beside: Beside) -> None:
    beside.round()
    beside.writes(511 * KIB, 30 * MS)
    beside.round()
    beside.writes(511 * KIB, 200 * US)
    beside.round()
    assert not beside.pages.hurried
    beside.writes(KIB, 0)
    beside.round()
    assert beside.pages.hurried


def test_where_memory_is_slow_the_writer_makes_every_other_step(beside: Beside, probe: Any) -> None:
    """Both at once; else it would wait for each, made on one processor."""
    beside.hurry(MIB)
    beside.round()
    assert beside.ready == 2 * MIB
    beside.pages.slow = True
    probe.fail("madvise", 0, times=0)
    beside.round()
    assert beside.ready == 6 * MIB
    assert probe.advice_given() == [RANDOM, POPULATE_WRITE, NORMAL], "of 2 MiB"
    assert not beside.pages.slow
    beside.pages.slow_ns = -1
    beside.writes(MIB, MS)
    beside.round()
    assert beside.pages.slow
    beside.round()
    assert beside.ready == 10 * MIB, "as far ahead as this the writer has enough"


def test_the_window_has_a_bound() -> None:
    beside = Beside(window_bytes=3 * MIB)
    beside.hurry(2 * MIB)
    assert beside.rounds() == [0, 0, SLEEP]
    assert beside.ready == 6 * MIB


def test_a_fast_writer_may_wait_now_and_then(beside: Beside, probe: Any) -> None:
    """Only a while of rest ends the hurry; being woken does not."""
    beside.hurry(MIB)
    beside.rounds()
    beside.writes(512 * KIB, 19 * MS)  # 27 MiB a second
    beside.rounds()
    assert beside.pages.hurried
    probe.fail("madvise", 0, times=0)
    beside.writes(2 * MIB, 100 * MS)  # 20
    assert beside.round() == LOOK
    assert not beside.pages.hurried
    beside.now += LOOK
    assert beside.round() == SLEEP, "more is ready than a slow one needs"
    beside.writes(4 * MIB, S)
    assert beside.round() == LOOK
    assert beside.round() == EASY_PAUSE
    assert probe.advice_given() == [NOHUGEPAGE, RANDOM, POPULATE_WRITE, NORMAL]


def test_nothing_is_done_twice(beside: Beside, probe: Any) -> None:
    beside.hurry(MIB)
    beside.rounds()
    probe.fail("madvise", 0, times=0)
    assert beside.rounds() == [SLEEP]
    assert probe.calls_made() == 0


@pytest.mark.parametrize("wrote", [START - 1, START + SIZE, START + 2 * SIZE])
def test_a_writer_elsewhere_ends_it(wrote: int) -> None:
    assert Beside(start=wrote).rounds() == [DONE]


def test_up_to_the_end_of_the_file() -> None:
    beside = Beside(start=START + 9 * MIB + 100)
    beside.hurry(3 * MIB)
    assert beside.rounds()[-2:] == [0, DONE]
    assert beside.ready == SIZE


def test_the_writer_near_the_end_makes_the_last_pages_itself() -> None:
    beside = Beside(start=START + SIZE - 600 * KIB)
    beside.hurry(600 * KIB - 10)
    assert beside.rounds() == [0, DONE]
    assert beside.ready == SIZE


def test_what_is_there_stays(beside: Beside) -> None:
    """D-11: the page that is written at this moment may be made ready."""
    beside.file.write(9 * MIB, b"the writer was here first")
    beside.hurry(4 * MIB)
    beside.rounds()
    assert beside.ready == SIZE
    assert beside.file.read(9 * MIB, 25) == b"the writer was here first"
    assert not any(beside.file.read(10 * MIB, 4096))


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EAGAIN, errno.EINTR])
def test_goes_on(beside: Beside, probe: Any, error: int) -> None:
    """D-39: EINVAL is a kernel without the advice, which touches the pages instead."""
    beside.hurry(MIB)
    probe.fail("madvise", error, times=3)  # the first two are only advice
    beside.rounds()
    assert beside.ready == 6 * MIB
    assert probe.calls_made() == (10 if error == errno.EINVAL else 13)


def test_tells_that_there_is_no_room(beside: Beside, probe: Any) -> None:
    beside.hurry(MIB)
    probe.fail("madvise", errno.EFAULT, times=3)
    with pytest.raises(OSError, match="Bad address"):
        beside.round()
    assert beside.ready == MIB
    assert beside.round() == 0


def test_what_it_refuses(beside: Beside, tmp_path: Path) -> None:
    signal = EventCount()
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(4096))
    file = MappedFile.open(path, 0, 4096, "read")
    with pytest.raises(OSError, match="reading only"):
        beside.pages.serve(signal, file)
    with pytest.raises(OSError, match="reading only"):
        beside.pages.round(file, 0)
    beside.file.close()
    with pytest.raises(StoreClosedError):
        beside.pages.serve(signal, beside.file)


# ---- in a thread of its own ----


class Served:
    def __init__(self, beside: Beside) -> None:
        self.beside = beside
        self.signal = EventCount()
        self.thread = threading.Thread(target=beside.pages.serve, args=(self.signal, beside.file))
        self.thread.start()

    def writes(self, size: int) -> None:
        self.beside.positions.wrote += size
        self.signal.notify()

    def end(self) -> None:
        self.beside.pages.paused = True
        self.signal.notify()
        self.thread.join()


@pytest.fixture
def served(beside: Beside) -> Iterator[Served]:
    service = Served(beside)
    yield service
    service.end()


def test_it_sleeps_until_woken(served: Served) -> None:
    served.writes(MIB)
    wait_until(lambda: served.beside.ready >= 2 * MIB)
    served.writes(MIB)
    wait_until(lambda: served.beside.ready >= 4 * MIB)
    assert served.thread.is_alive()


def test_it_does_not_poll(served: Served) -> None:
    status = Path(f"/proc/self/task/{served.thread.native_id}/status")

    def slept() -> int:
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))

    served.writes(64 * KIB)
    wait_until(lambda: served.beside.ready >= 128 * KIB)
    time.sleep(0.05)
    before = slept()
    time.sleep(0.3)
    assert slept() - before < 10


def test_it_returns_with_the_file(served: Served) -> None:
    served.writes(14 * MIB)
    served.thread.join(60)
    assert not served.thread.is_alive()
    assert served.beside.ready == SIZE


def test_it_leaves_a_file_that_was_closed(served: Served) -> None:
    served.beside.file.close()
    served.signal.notify()
    served.thread.join(60)
    assert not served.thread.is_alive()


def test_it_needs_no_gil(served: Served) -> None:
    """A writer that puts one by one holds it for 5 ms at a time, in which a thread that needs it makes no page."""
    interval = sys.getswitchinterval()
    pages, positions = served.beside.pages, served.beside.positions
    served.writes(64 * KIB)
    wait_until(lambda: served.beside.ready >= 128 * KIB)
    sys.setswitchinterval(600.0)
    try:
        deadline = time.monotonic() + 60
        served.writes(MIB)
        while pages.populated < START + 4 * MIB and time.monotonic() < deadline:
            if positions.wrote < START + 2 * MIB:
                positions.wrote += 10_000
    finally:
        sys.setswitchinterval(interval)
    assert pages.populated >= START + 4 * MIB
