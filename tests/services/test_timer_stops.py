"""Messages with a time of their own and a stop at any step: each is delivered once."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import Any

import pytest

from rocketstore.log.layout.paths import StoreLayout
from rocketstore.services.delay import delivery, offsets, progress, timer_file, timer_table
from rocketstore.services.delay.timer_table import TimerTable
from rocketstore.testing import ManualClock
from tests.services.delay_tools import bodies, crash, read, refuse
from tests.services.timer_tools import put_at, saved, settled, state_of, timers_of
from tests.support.small_store import open_small, parts
from tests.support.waiting import wait_until

Crashes = list[Path]


@pytest.fixture
def _runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few entries."""
    monkeypatch.setattr(timer_table, "RECENT", 4)
    monkeypatch.setattr(timer_table, "LIKE", 3)


@pytest.mark.parametrize("delivered", [1, 3, 7])
@pytest.mark.usefixtures("_runs")
def test_a_stop_between_the_copies_and_the_table(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, delivered: int
) -> None:
    """The next start finds the copies in the log by the property that names their source."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        for n in range(8):
            put_at(store, b"%d" % n, 1 + n)
        saved(store)
        stored = state_of(path).read_bytes()
        monkeypatch.setattr(timer_file, "save", refuse)  # a second after the next put it is due
        put_at(store, b"new", 0.5)
        store.flush()
        clock.advance(delivered)
        wait_until(lambda: len(bodies(store)) == delivered + 1)
        store.flush()
        copy = crash(path, tmp_path / "copy")
        assert state_of(copy).read_bytes() == stored, "the table was stored too early"
        monkeypatch.undo()
    expected = [b"new", *(b"%d" % n for n in range(8))]
    with open_small(copy, clock=clock) as store:
        settled(store)
        assert bodies(store) == expected[: delivered + 1]
        assert len(store.delayed) == 8 - delivered
        clock.advance(60)
        settled(store)
        assert bodies(store) == expected


@pytest.mark.usefixtures("_runs")
def test_a_stop_at_each_step(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each copy, each run and each table: nothing is lost, nothing comes twice."""
    path, images = tmp_path / "store", list[Path]()

    def stopping(act: Any) -> Any:
        def stop(*given: Any, **named: Any) -> Any:
            images.append(crash(path, tmp_path / f"copy{len(images)}"))
            found = act(*given, **named)
            images.append(crash(path, tmp_path / f"copy{len(images)}"))
            return found

        return stop

    with open_small(path, clock=clock, durability="os") as store:
        for n in range(9):
            put_at(store, b"%d" % n, 1 + n % 3)
        put_at(store, b"never", 2, properties={"UNIQ_KEY": "never"})
        store.delayed.cancel("never")
        monkeypatch.setattr(offsets, "SAVE_AFTER_S", 0)
        monkeypatch.setattr(delivery, "put_message", stopping(delivery.put_message))
        monkeypatch.setattr(timer_table, "write_run", stopping(timer_table.write_run))
        monkeypatch.setattr(timer_file, "save", stopping(timer_file.save))
        for _ in range(3):
            clock.advance(1)
            settled(store)
        monkeypatch.undo()
        assert sorted(bodies(store)) == [b"%d" % n for n in range(9)]
    assert len(images) > 20
    for image in images:
        with open_small(image, clock=clock) as store:
            settled(store)
            assert sorted(bodies(store)) == [b"%d" % n for n in range(9)], image.name


def test_a_stop_while_one_is_cancelled_or_gets_another_time(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one record: it is there as a whole or not at all."""
    from rocketstore.services.delay import timers

    path, images, put = tmp_path / "store", list[Path](), timers.put_message

    def stop(*given: Any, **named: Any) -> Any:
        images.append(crash(path, tmp_path / f"copy{len(images)}"))
        result = put(*given, **named)
        store.flush()
        images.append(crash(path, tmp_path / f"copy{len(images)}"))
        return result

    with open_small(path, clock=clock) as store:
        first, second = put_at(store, b"a", 5), put_at(store, b"b", 5)
        saved(store)
        monkeypatch.setattr(timers, "put_message", stop)
        store.delayed.cancel(first)
        store.delayed.reschedule(second, clock.now_ms() + 9000)
        monkeypatch.undo()
    delivered = []
    for image in images:
        with open_small(image, clock=ManualClock(clock.now_ms())) as store:
            moved: Any = parts(store).clock
            moved.advance(5)
            settled(store)
            moved.advance(5)
            settled(store)
            delivered.append(bodies(store))
    assert delivered == [[b"a", b"b"], [b"b"], [b"b"], [b"b"]]


def test_the_table_is_stored_after_a_flush(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it speaks of no message, and of no copy, that a power cut takes back."""
    flushed: list[tuple[int, int]] = []
    save = timer_file.save
    with open_small(tmp_path, clock=clock, durability="memory") as store:

        def watch(layout: Any, table: Any, place: Any) -> None:
            flushed.append((store.flushed_offset, place.end))
            save(layout, table, place)

        monkeypatch.setattr(timer_file, "save", watch)
        put_at(store, b"x", 1)
        clock.advance(1)
        wait_until(lambda: bodies(store) == [b"x"])
    assert flushed
    assert all(flushed_offset >= begin for flushed_offset, begin in flushed)


def test_copies_stay_within_the_window(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "WINDOW_BYTES", 8192)
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        monkeypatch.setattr(offsets, "SAVE_AFTER_S", 3600)
        for n in range(20):
            put_at(store, b"%d" % n, 1 + n)
        for n in range(20):
            store.writer("other").put(b"x" * 900)
            clock.advance(1)
            wait_until(lambda n=n: len(bodies(store)) == n + 1)
        last = read(store)[-1].physical_offset
        stored = timers_of(store).stored
        assert stored is not None
        assert stored.begin is not None
        assert last - stored.begin < 8192 + 2048
        copy = crash(path, tmp_path / "copy")
    with open_small(copy, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"%d" % n for n in range(20)]


def damaged(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


FILES = {
    "no directory": lambda path: (
        [file.unlink() for file in state_of(path).parent.iterdir()]
        and state_of(path).parent.rmdir()
    ),
    "no state": lambda path: state_of(path).unlink(),
    "empty state": lambda path: state_of(path).write_bytes(b""),
    "damaged state": lambda path: state_of(path).write_bytes(damaged(state_of(path).read_bytes())),
    "no run": lambda path: runs_of(path)[0].unlink(),
    "damaged run": lambda path: runs_of(path)[0].write_bytes(
        damaged(runs_of(path)[0].read_bytes())
    ),
    "short run": lambda path: runs_of(path)[0].write_bytes(runs_of(path)[0].read_bytes()[:-24]),
}


def runs_of(path: Path) -> list[Path]:
    return sorted(file for file in state_of(path).parent.iterdir() if file.name.isdigit())


@pytest.mark.parametrize("damage", FILES)
@pytest.mark.usefixtures("_runs")
def test_files_that_are_missing_or_no_use(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """They are derived: the timer topic and the log say what waits."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        for n in range(20):
            put_at(store, b"%d" % n, 1 + n)
        store.delayed.cancel(put_at(store, b"never", 30))
        clock.advance(10)
        settled(store)
        saved(store)
        assert len(store.delayed) == 10
    FILES[damage](path)
    clock.advance(5)
    with caplog.at_level(logging.WARNING), open_small(path, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"%d" % n for n in range(15)]
        assert len(store.delayed) == 5
        clock.advance(60)
        settled(store)
        assert bodies(store) == [b"%d" % n for n in range(20)]
    assert ("timers are read from their topic" in caplog.text) == (
        not damage.startswith("no d") and damage != "no state"
    )


def test_a_table_of_another_log(tmp_path: Path, clock: ManualClock) -> None:
    """Of a log that was cut and went on with other messages in the same places."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        put_at(store, b"a", 10)
        put_at(store, b"b", 20)
        store.flush()
        short = crash(path, tmp_path / "short")
        for n in range(3):
            put_at(store, b"old%d" % n, 30)
        saved(store)
    state = state_of(path).read_bytes()
    clock.advance(1)
    with open_small(short, clock=clock) as store:
        for n in range(3):
            put_at(store, b"new%d" % n, 5)
    state_of(short).parent.mkdir(exist_ok=True)
    state_of(short).write_bytes(state)
    clock.advance(10)
    with open_small(short, clock=clock) as store:
        settled(store)
        assert sorted(bodies(store)) == [b"a", b"new0", b"new1", b"new2"]


def test_a_table_that_was_stored_beyond_the_end_of_a_cut_log(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Its messages are there; where copies begin that it does not know, it cannot say."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        put_at(store, b"a", 10)
        store.flush()
        short = crash(path, tmp_path / "short")
        store.writer("other").put(b"x" * 900)
        saved(store)
        timers_of(store).save()
    state_of(short).parent.mkdir(exist_ok=True)
    state_of(short).write_bytes(state_of(path).read_bytes())
    clock.advance(60)
    with open_small(short, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"a"]
        timers_of(store).stored = None  # it is stored no more
        image = crash(short, tmp_path / "image")
    with open_small(image, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"a"]


def test_a_log_that_was_cut(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        put_at(store, b"a", 10)
        store.flush()
        short = crash(path, tmp_path / "short")
        for n in range(3):
            put_at(store, b"old%d" % n, 30)
        saved(store)
    state_of(short).parent.mkdir(exist_ok=True)
    state_of(short).write_bytes(state_of(path).read_bytes())
    clock.advance(60)
    with open_small(short, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"a"]


def test_a_deep_file_of_timers_is_of_no_use(tmp_path: Path) -> None:
    """Its checksum is right: the timers are read from their topic."""
    layout = StoreLayout(tmp_path)
    layout.timers.mkdir(parents=True)
    text = b"[" * 100_000
    layout.timer_state.write_bytes(b"%08x\n" % zlib.crc32(text) + text)
    assert timer_file.load(layout, TimerTable(), lambda: 0) is None
