"""First files of queues wait whole and on disk, without a name; and the names of queues' directories come to the
disk with the units."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
from pathlib import Path

import pytest

from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.mapped_files import new_file
from rocketstore.log.queues import directories as queue_directories
from rocketstore.log.queues import queue_preallocator
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.queue_preallocator import FIRST_MAX, FirstFiles
from rocketstore.log.queues.units import UNIT_SIZE
from tests.support.file_tools import close_for_its_owner
from tests.support.small_store import Calls, dispatched, engine_of, everything, open_small, watched
from tests.support.waiting import wait_until

SIZE = 100 * UNIT_SIZE


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Of the modules that make files and directories, in order."""
    return watched(monkeypatch, queue_preallocator, new_file, queue_directories)


def queue_directory(layout: StoreLayout, number: int) -> Path:
    path = layout.consume_queue / "orders" / str(number)
    path.mkdir(parents=True, mode=0o700)
    path.parent.chmod(0o700)
    return path


def asked(layout: StoreLayout, times: int) -> FirstFiles:
    """First files of a store in which so many queues were made."""
    files = FirstFiles(layout.consume_queue, layout.tmp, SIZE)
    for _ in range(times):
        assert files.take(layout.consume_queue, 0) is None
    return files


def open_files() -> int:
    gc.collect()  # what tests before this one left
    return len(os.listdir("/proc/self/fd"))


def test_taking_one_waits_for_no_sync(layout: StoreLayout, calls: Calls) -> None:
    files = asked(layout, 2)
    assert files.wanted
    assert files.make_ahead()
    assert not files.wanted
    assert "fsync" in calls.made
    calls.made.clear()
    new = files.take(queue_directory(layout, 0), 3 * SIZE)
    assert new is not None
    file = new.publish(durable=False)
    assert calls.made == ["link_unnamed"]
    path = layout.consume_queue / "orders" / "0" / segment_name(3 * SIZE)
    assert (file.path, file.start_offset) == (str(path), 3 * SIZE)
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (SIZE, 0o600)
    file.close()


def test_they_are_on_disk_before_anybody_has_them(layout: StoreLayout, calls: Calls) -> None:
    """D-06: a sync that fails keeps all of them back, and leaves nothing."""
    files, before = asked(layout, 9), open_files()
    calls.errors["fsync"] = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        files.make_ahead()
    calls.errors.clear()
    assert open_files() == before
    assert files.take(queue_directory(layout, 0), 0) is None
    assert files.make_ahead()
    assert open_files() == before + 5
    files.drop()
    assert open_files() == before


def test_one_that_cannot_be_closed_keeps_no_other_open(
    layout: StoreLayout, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    """D-36: the kernel has given it back; the error is told, and the others are closed, too."""
    before = set(os.listdir("/proc/self/fd"))
    files = asked(layout, 9)
    assert files.make_ahead()
    calls.errors["close"] = OSError(errno.EIO, os.strerror(errno.EIO))
    files.drop()
    assert calls.made.count("close") == 4
    assert caplog.text.count("not needed, cannot be removed") == 4
    for number in set(os.listdir("/proc/self/fd")) - before:  # nobody has closed them really
        with contextlib.suppress(OSError):
            close_for_its_owner(int(number))


@pytest.mark.parametrize(("times", "ready"), [(1, 0), (7, 3)])
def test_half_as_many_wait_as_were_asked_for(layout: StoreLayout, times: int, ready: int) -> None:
    """A store of a few queues holds none."""
    before = open_files()
    files = asked(layout, times)
    assert files.make_ahead()
    assert files.make_ahead()
    assert open_files() == before + ready
    files.drop(closed=True)
    assert open_files() == before
    assert not files.make_ahead()  # never again
    assert open_files() == before


@pytest.mark.parametrize(("expected", "ready"), [(1, 1), (3, 3), (50_000, FIRST_MAX)])
def test_those_that_are_expected(layout: StoreLayout, expected: int, ready: int) -> None:
    """Also of a store that had none before; each is expected once."""
    before = open_files()
    files = asked(layout, 0)
    files.expect(expected)
    assert files.wanted
    assert files.make_ahead()
    assert not files.wanted
    assert open_files() == before + ready
    for number in range(ready):
        new = files.take(queue_directory(layout, number), 0)
        assert new is not None
        new.drop()
    files.drop()
    assert open_files() == before
    assert not files.wanted


@pytest.mark.parametrize(
    ("limit", "ready"), [(63, 0), (256, 4), (resource.RLIM_INFINITY, FIRST_MAX)]
)
def test_few_where_descriptors_are_few(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, limit: int, ready: int
) -> None:
    """They are for files that must be open."""
    monkeypatch.setattr(queue_preallocator.resource, "getrlimit", lambda _: (limit, limit))
    files = asked(layout, 500)
    before = open_files()
    assert files.make_ahead()
    assert open_files() == before + ready
    files.drop()


def test_none_for_a_queue_of_another_owner_or_mode(layout: StoreLayout) -> None:
    """D-09: such a queue's file is made where it belongs."""
    files = asked(layout, 4)
    assert files.make_ahead()
    other = queue_directory(layout, 0)
    other.chmod(0o770)
    assert files.take(other, 0) is None
    layout.consume_queue.chmod(0o770)
    assert files.make_ahead()  # anew, as everything is from now on
    new = files.take(other, 0)
    assert new is not None
    file = new.publish(durable=False)
    assert Path(file.path).stat().st_mode & 0o777 == 0o660
    file.close()
    files.drop()


def test_none_where_they_cannot_wait(layout: StoreLayout) -> None:
    """D-06: on the disk of the queues, and not among them."""
    files = FirstFiles(layout.consume_queue, Path("/proc"), SIZE)
    for _ in range(4):
        files.take(layout.consume_queue, 0)
    assert not files.make_ahead()
    assert [path.name for path in layout.consume_queue.iterdir()] == []


def test_without_nameless_files_they_wait_apart(layout: StoreLayout, calls: Calls) -> None:
    """D-07: and go when they are not needed."""
    calls.errors["open_unnamed"] = OSError(errno.EOPNOTSUPP, "no such files here")
    files = asked(layout, 6)
    assert files.make_ahead()
    assert len(list(layout.tmp.iterdir())) == 3
    new = files.take(queue_directory(layout, 0), 0)
    assert new is not None
    new.publish(durable=False).close()
    assert (layout.consume_queue / "orders" / "0" / segment_name(0)).stat().st_size == SIZE
    files.drop()
    assert not list(layout.tmp.iterdir())


def test_names_of_directories_come_to_the_disk_with_the_units(
    layout: StoreLayout, calls: Calls
) -> None:
    """D-18: those of the queue, its topic and its file; once, until there is another."""
    queues = ConsumeQueueStore(layout, "write", SIZE, lambda: 0)

    def put(topic: str, queue_id: int) -> tuple[str, int, int, int]:
        queues.add(topic, queue_id).put(0, 0, 100, 0)
        return topic, queue_id, 0, 1

    first = [put("orders", 0), put("orders", 1), put("bills", 0)]
    assert "sync_directory" not in calls.made
    assert queues.sync(first)
    assert calls.made.count("sync_directory") == 1 + 2 + 3
    calls.made.clear()
    assert queues.sync(first)
    assert "sync_directory" not in calls.made
    assert queues.sync([put("orders", 2)])
    assert calls.made.count("sync_directory") == 2
    queues.close()


def test_a_directory_that_cannot_be_synced_degrades_the_queues(
    layout: StoreLayout, calls: Calls
) -> None:
    """D-13: no later sync makes up for it."""
    queues = ConsumeQueueStore(layout, "write", SIZE, lambda: 0)
    queues.add("orders", 0).put(0, 0, 100, 0)
    calls.errors["sync_directory"] = OSError(errno.EIO, os.strerror(errno.EIO))
    assert not queues.sync([("orders", 0, 0, 1)])
    calls.errors.clear()
    assert not queues.sync([("orders", 0, 0, 1)])
    assert queues.degraded
    queues.close()


def test_a_store_of_many_new_queues(tmp_path: Path) -> None:
    """From end to end: each has its messages, and nothing is left when the store is closed."""
    before = open_files()
    with open_small(tmp_path) as store:
        for round_ in range(2):
            for number in range(100):
                store.writer("orders", queue_id=number).put(b"%d" % (round_ * 100 + number))
            dispatched(store)
        files = engine_of(store)._queues._first_files
        wait_until(lambda: bool(files._ready))
        found = sorted(int(m.body) for m in everything(store))
        assert found == list(range(200))
    assert not list((tmp_path / "rocketstore" / "tmp").iterdir())
    assert open_files() == before
