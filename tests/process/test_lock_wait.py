"""An open that waits for the lock of another process, as at a rolling restart."""

from __future__ import annotations

import asyncio
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore.aio
from rocketstore import ConfigError, StoreLockedError
from rocketstore.log.layout.paths import StoreLayout
from tests.aio.loops import run
from tests.process.other_process import HOLD, SMALL, open_small, other_process
from tests.support.live_writer import java_writer
from tests.support.waiting import pause, wait_until

#: Says when it begins, and how the open ended.
WAIT = """
say("begins")
try:
    rocketstore.open(path, wait_s=60, **options)
except KeyboardInterrupt:
    say("interrupted")
"""
#: Holds the store, then removes it.
REMOVE = """
store = rocketstore.open(path, **options)
say("open")
told()
store.destroy()
say("gone")
told()
"""


def later(what: Callable[[], None], after_s: float = 1.3) -> threading.Timer:
    """Beyond the second that each open waits."""
    timer = threading.Timer(after_s, what)
    timer.start()
    return timer


def test_the_next_writer_has_the_store_once_it_is_closed(tmp_path: Path) -> None:
    """D-35"""
    with other_process(HOLD, tmp_path) as holder:
        assert holder.line() == "open"
        timer = later(holder.hears)
        before = time.monotonic()
        with open_small(tmp_path, wait_s=30) as store:
            assert 1 < time.monotonic() - before < 20
            assert store.writer("T").put(b"a").queue_offset == 0
        timer.join()
        assert holder.line() == "closed"


def test_a_killed_writer_is_waited_for_too(tmp_path: Path) -> None:
    with other_process(HOLD, tmp_path) as holder:
        assert holder.line() == "open"
        timer = later(holder.kill)
        with open_small(tmp_path, "r+", wait_s=float("inf")) as store:
            assert store.recovery.mode == "unclean"
        timer.join()


def test_after_the_time_the_error_says_how_long_it_was(tmp_path: Path) -> None:
    with other_process(HOLD, tmp_path) as holder:
        assert holder.line() == "open"
        before, used = time.monotonic(), time.process_time()
        with pytest.raises(StoreLockedError, match=f"rocketstore process {holder.pid}") as caught:
            open_small(tmp_path, wait_s=0.5)
        taken_s = time.monotonic() - before
        assert time.process_time() - used < taken_s / 4  # nobody waits by asking all the time
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert 0.5 <= error.waited_s <= taken_s < 10
            assert f", after {error.waited_s:.1f} s of waiting for it; open it with" in str(error)
        with pytest.raises(StoreLockedError) as caught:
            open_small(tmp_path)
        assert caught.value.waited_s == 0
        assert "waiting" not in str(caught.value)


def test_a_rocketmq_is_waited_for(tmp_path: Path) -> None:
    """D-04: it is named at once where nobody waits."""
    open_small(tmp_path).close()
    with java_writer(StoreLayout(tmp_path)):
        before = time.monotonic()
        with pytest.raises(StoreLockedError, match="RocketMQ takes, after") as caught:
            open_small(tmp_path, wait_s=0.5)
        assert 0.5 <= caught.value.waited_s <= time.monotonic() - before < 5


def test_nobody_waits_for_a_store_of_this_process(tmp_path: Path) -> None:
    with open_small(tmp_path):
        before = time.monotonic()
        with pytest.raises(StoreLockedError, match="this process") as caught:
            open_small(tmp_path, wait_s=60)
        assert time.monotonic() - before < 20
        assert caught.value.waited_s == 0


def test_a_store_that_is_removed_meanwhile_is_not_there(tmp_path: Path) -> None:
    """What the open found before it waited holds no more."""
    place = tmp_path / "store"
    with other_process(REMOVE, place) as holder:
        assert holder.line() == "open"
        timer = later(holder.hears)
        with pytest.raises(FileNotFoundError):
            open_small(place, "r+", wait_s=30)
        timer.join()
        assert holder.line() == "gone"
        open_small(place, wait_s=1).close()


def test_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    with open_small(tmp_path), other_process(WAIT, tmp_path) as waiting:
        assert waiting.line() == "begins"
        pause(1.5)
        waiting.process.send_signal(signal.SIGINT)
        assert waiting.line() == "interrupted"


@pytest.mark.parametrize("wrong", [-1, "10", None, True, float("nan"), [1]])
def test_a_wrong_time_is_named(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="^wait_s = .*: a number of seconds, 0 or more"):
        open_small(tmp_path / "store", wait_s=wrong)

    async def main() -> None:
        with pytest.raises(ConfigError, match="^wait_s = .*: a number of seconds, 0 or more"):
            await rocketstore.aio.open(tmp_path / "store", wait_s=wrong)

    run(main)
    assert not (tmp_path / "store").exists()


def test_a_reader_takes_no_lock(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    with pytest.raises(ConfigError, match="^wait_s = 5: .*a reader takes no lock"):
        open_small(tmp_path, "r", wait_s=5)

    async def main() -> None:
        with pytest.raises(ConfigError, match="^wait_s = 5: .*a reader takes no lock"):
            await rocketstore.aio.open(tmp_path, "r", wait_s=5)

    run(main)


def test_a_loop_goes_on_while_an_open_waits(tmp_path: Path) -> None:
    async def main() -> None:
        with other_process(HOLD, tmp_path) as holder:
            assert holder.line() == "open"
            with pytest.raises(StoreLockedError, match=r"after \d\.\d s of waiting") as caught:
                await rocketstore.aio.open(tmp_path, wait_s=0.4, **SMALL)
            assert caught.value.waited_s >= 0.4
            timer = later(holder.hears)
            async with rocketstore.aio.open(tmp_path, wait_s=30, **SMALL) as store:
                await store.writer("T").put(b"a")
            timer.join()

    run(main)


def test_a_cancelled_open_stops_waiting(tmp_path: Path) -> None:
    """Its thread would keep the process from ending."""

    def waits(thread: threading.Thread) -> bool:
        return thread.name.startswith("rocketstore-aio")

    async def main() -> None:
        with other_process(HOLD, tmp_path) as holder:
            assert holder.line() == "open"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await rocketstore.aio.open(tmp_path, wait_s=600, **SMALL)
            wait_until(lambda: not any(map(waits, threading.enumerate())), patience_s=20)

    run(main)
