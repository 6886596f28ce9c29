"""Trimming whole segments from the front."""

from __future__ import annotations

import datetime
import errno
import shutil
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

from rocketstore import OffsetOutOfRangeError, PutResult, Store
from rocketstore._native.os import syscalls
from rocketstore.engine.trim import Trim
from rocketstore.log.mapped_files import second_names
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.read.reader import Reader
from rocketstore.log.read.source import StoreSource
from tests.support.copies import copy_if_there
from tests.support.small_store import (
    SEGMENT,
    STILL,
    dispatched,
    engine_of,
    everything,
    open_small,
    open_still,
    parts,
    segments,
    store_group_offset,
)


def filled(path: Path, count: int = 40, **options: object) -> tuple[Store, list[PutResult]]:
    store = open_small(path, **options)
    results = [store.writer("orders").put(b"%02d" % n * 300, keys=f"k{n}") for n in range(count)]
    return dispatched(store), results


def test_only_whole_segments_go(tmp_path: Path) -> None:
    store, results = filled(tmp_path)
    with store:
        assert store.trim(before_offset=SEGMENT - 1) == 0
        assert store.trim(before_offset=2 * SEGMENT + 5) == 2 * SEGMENT == store.begin_offset
        assert segments(tmp_path)[0].name == f"{2 * SEGMENT:020d}"
        kept = [r for r in results if r.physical_offset >= 2 * SEGMENT]
        assert [m.physical_offset for m in everything(store)] == [r.physical_offset for r in kept]
        assert store.min_queue_offset("orders", 0) == kept[0].queue_offset
        with pytest.raises(OffsetOutOfRangeError):
            store.get(results[0].physical_offset)
        assert store.trim(before_offset=0) == 2 * SEGMENT  # never backwards


def test_the_segment_being_written_stays(tmp_path: Path) -> None:
    store, results = filled(tmp_path)
    with store:
        begin = store.trim(before_offset=store.end_offset)
        assert begin == results[-1].physical_offset // SEGMENT * SEGMENT
        assert everything(store)[-1].body == b"39" * 300
        assert store.writer("orders").put(b"after").queue_offset == 40


@pytest.mark.store(**STILL, durability="os")
def test_nothing_undispatched_or_unflushed_goes(store: Store) -> None:
    for _ in range(40):
        store.writer("orders").put(b"x" * 600)
    dispatched(store)
    assert store.flushed_offset == 0
    assert store.trim(before_offset=store.end_offset) == 0
    store.wait_flushed(store.end_offset)
    assert store.trim(before_offset=store.end_offset) > 0


def test_it_stays_trimmed_after_an_open(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    with store:
        begin = store.trim(before_offset=3 * SEGMENT)
        bodies = [m.body for m in everything(store)]
    for mode in ("r", "rw"):
        with open_small(tmp_path, mode) as store:
            assert store.begin_offset == begin
            assert [m.body for m in everything(store)] == bodies
            assert store.recovery.mode == "clean"


def test_a_crash_after_it_finds_its_own_checkpoint(tmp_path: Path) -> None:
    """D-02 D-27: the durable record that the checkpoint is recognised by is not trimmed away."""
    with open_still(tmp_path / "store", "os") as store:
        writer = store.writer("orders")
        store.wait_flushed(writer.put(b"early").end_offset)
        assert parts(store).checkpointer.save(derived=True).flushed == store.end_offset
        results = [writer.put(b"x" * 600) for _ in range(20)]
        store.wait_flushed(store.end_offset)
        results.append(writer.put(b"not flushed yet"))
        dispatched(store)
        assert store.trim(before_offset=store.end_offset) > 0
        shutil.copytree(tmp_path / "store", tmp_path / "crashed", copy_function=copy_if_there)
    with open_small(tmp_path / "crashed") as store:
        assert store.recovery.mode == "unclean"
        assert store.end_offset == results[-1].end_offset


def test_by_time(tmp_path: Path) -> None:
    """A segment goes when its newest message is older."""
    store, results = filled(tmp_path)
    with store:
        last = results[-1].store_timestamp_ms
        early = datetime.datetime.fromtimestamp(0, datetime.UTC)
        late = datetime.datetime.fromtimestamp(last / 1000 + 60, datetime.UTC)
        assert store.trim(before_time=early) == 0
        assert store.trim(before_time=late) == results[-1].physical_offset // SEGMENT * SEGMENT
        with pytest.raises((TypeError, ValueError)):
            store.trim(before_time=datetime.datetime(2020, 1, 1))


def test_a_time_in_milliseconds_is_no_offset(tmp_path: Path) -> None:
    """Milliseconds as an offset would be beyond the log and remove all sealed segments."""
    store, results = filled(tmp_path)
    with store:
        last = results[-1].store_timestamp_ms
        assert store.trim(before_time=last - 7 * 86_400_000) == 0
        with pytest.raises(ValueError, match="the log ends at .*; for a time use before_time="):
            store.trim(before_offset=last)
        with pytest.raises(ValueError, match="the log ends at"):
            store.trim(before_offset=store.end_offset + 1)
        assert store.begin_offset == 0
        assert store.trim(before_time=last + 60_000) > 0


def test_one_bound_by_its_name(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    trim: Any = store.trim
    with store:
        for call in (
            trim,
            lambda: trim(before_offset=0, before_time=0),
        ):
            with pytest.raises(TypeError, match="one of before_offset= and before_time="):
                call()
        with pytest.raises(TypeError, match="positional"):
            trim(0)
        assert store.begin_offset == 0


@pytest.mark.parametrize("fault", ["damaged", "missing", "to come"])
def test_one_segment_does_not_stop_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A segment that does not begin with a record, is not there, or is dated in the future says nothing of
    the age of those before it; a later one does."""
    store, results = filled(tmp_path)
    store.close()
    third = segments(tmp_path)[2]
    if fault == "damaged":
        with third.open("r+b") as file:
            file.write(b"\xff" * 64)
    elif fault == "missing":
        third.unlink()
    with open_small(tmp_path, force=True) as store:
        if fault == "to come":
            real = Reader.first_store_time

            def dated(reader: Reader, segment: Any) -> int | None:
                return 1 << 50 if segment.start_offset == 2 * SEGMENT else real(reader, segment)

            monkeypatch.setattr(Reader, "first_store_time", dated)
        late = datetime.datetime.fromtimestamp(
            results[-1].store_timestamp_ms / 1000 + 60, datetime.UTC
        )
        assert store.trim(before_time=late) == results[-1].physical_offset // SEGMENT * SEGMENT


def test_a_time_that_is_damaged_removes_nothing(tmp_path: Path) -> None:
    """A flipped bit makes the second segment begin in another year: the first one is as young as before."""
    store, results = filled(tmp_path)
    store.close()
    with segments(tmp_path)[1].open("r+b") as file:
        file.seek(56 + 2)  # of the store time
        byte = file.read(1)[0]
        file.seek(56 + 2)
        file.write(bytes([byte & ~1]))
    before = datetime.datetime.fromtimestamp(
        results[0].store_timestamp_ms / 1000 - 86_400, datetime.UTC
    )
    with open_small(tmp_path) as store:
        assert store.trim(before_time=before) == 0


def test_queue_files_of_pre_blanks_go(tmp_path: Path) -> None:
    """Those that fill a gap have no record whose end could be trimmed."""
    store, _ = filled(tmp_path)
    store.close()
    with open_small(tmp_path) as store:
        store_group_offset(store, "orders", 100)
        for n in range(40):
            assert store.writer("orders").put(b"%d" % n * 300).queue_offset == 100 + n
        dispatched(store).trim(before_offset=store.end_offset)
        assert store.min_queue_offset("orders", 0) > 100
        files = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())
        assert int(files[0].name) // 20 > 100, [file.name for file in files]


def refused(path: str) -> None:
    if Path(path).exists():
        raise PermissionError(errno.EACCES, "refused", path)


def test_a_second_name_that_stays_fails_no_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is not trimmed before: the next open would bring it back."""
    with monkeypatch.context() as patch:
        patch.setattr(second_names, "unlink_if_there", refused)
        store, results = filled(tmp_path, durability="disk")
        assert parts(store).commit_log.failure is None
        with pytest.raises(PermissionError, match=f"live/{0:020d}"):
            store.trim(before_offset=3 * SEGMENT)
        assert store.begin_offset == 0
        assert len(everything(store)) == len(results)
    with store:
        assert store.trim(before_offset=3 * SEGMENT) == 3 * SEGMENT
        assert segments(tmp_path)[0].name == f"{3 * SEGMENT:020d}"
        store.writer("orders").put(b"after", durability="disk")


def test_a_second_name_that_stays_keeps_nothing_in_front_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a trim that ends before it."""
    real = second_names.unlink_if_there

    def kept(path: str) -> None:
        (refused if path.endswith(f"/live/{3 * SEGMENT:020d}") else real)(path)

    with monkeypatch.context() as patch:
        patch.setattr(second_names, "unlink_if_there", kept)
        store, _ = filled(tmp_path, durability="disk")
        assert store.trim(before_offset=SEGMENT) == SEGMENT
        for _ in range(2):
            with pytest.raises(PermissionError, match=f"live/{3 * SEGMENT:020d}"):
                store.trim(before_offset=5 * SEGMENT)
            assert store.begin_offset == 3 * SEGMENT
        assert segments(tmp_path)[0].name == f"{3 * SEGMENT:020d}"
    with store:
        assert store.trim(before_offset=5 * SEGMENT) == 5 * SEGMENT


def test_a_segment_that_could_not_be_removed_goes_with_the_next_trim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of queues and of the index do not wait for that."""
    store, _ = filled(tmp_path, 150)
    queue = tmp_path / "consumequeue/orders/0"
    before = len(list(queue.iterdir()))
    real = syscalls.unlink

    def kept(path: str) -> None:
        (refused if path.endswith(f"/commitlog/{SEGMENT:020d}") else real)(path)

    with store:
        with monkeypatch.context() as patch:
            patch.setattr(syscalls, "unlink", kept)
            with pytest.raises(PermissionError, match="refused"):
                store.trim(before_offset=20 * SEGMENT)
        assert segments(tmp_path)[0].name == f"{SEGMENT:020d}"
        assert len(list(queue.iterdir())) < before
        assert store.trim(before_offset=20 * SEGMENT) == 20 * SEGMENT
        assert segments(tmp_path)[0].name == f"{20 * SEGMENT:020d}"


def test_messages_in_hand_stay_readable(tmp_path: Path) -> None:
    """S000-84 S000-87 S000-91 S001-21: K-02 K-41: who holds a view pins the file, nobody skips a flush."""
    store, results = filled(tmp_path)
    with store:
        message = store.get(results[0].physical_offset)
        view = message.body_view
        file = parts(store).commit_log.queue.first
        store.trim(before_offset=2 * SEGMENT)
        assert bytes(view) == b"00" * 300
        assert file.closed
        assert not Path(file.path).exists()
    assert bytes(view) == message.body == b"00" * 300


def test_index_and_queue_files_go_too(tmp_path: Path) -> None:
    store, results = filled(tmp_path, 150)
    with store:
        queue = tmp_path / "consumequeue/orders/0"
        before = len(list(queue.iterdir())), len(list((tmp_path / "index").iterdir()))
        begin = store.trim(before_offset=results[-1].physical_offset)
        after = len(list(queue.iterdir())), len(list((tmp_path / "index").iterdir()))
        assert after[0] < before[0]
        assert after[1] < before[1]
        assert store.query("orders", "k0") == []
        kept = next(n for n, r in enumerate(results) if r.physical_offset >= begin)
        assert store.query("orders", f"k{kept}")[0].queue_offset == kept


@pytest.mark.store(**STILL, durability="os")
def test_a_segment_stays_until_the_flush_that_is_over_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """It looks at the names of all of them before it tells of each; a descriptor that was closed failed the store."""
    dispatched(store)
    flusher = parts(store).flusher
    publish, half, go_on = flusher._publish, threading.Event(), threading.Event()

    def slowly(flushed: int) -> None:
        publish(flushed)
        if flushed == 2 * SEGMENT:
            half.set()
            assert go_on.wait(20)

    monkeypatch.setattr(flusher, "_publish", slowly)
    for _ in range(8):
        store.writer("orders").put(bytes(2500))
    dispatched(store)
    parts(store).commit_log.log.request_flush(store.end_offset)
    assert half.wait(20)
    assert parts(store).positions.flushed == 2 * SEGMENT
    begun: list[int] = []
    engine = engine_of(store)
    look = Trim(parts(store), engine._segments, engine._queues, engine.reader, 20_000)._new_begin
    thread = threading.Thread(target=lambda: begun.append(look(2 * SEGMENT)))
    thread.start()
    thread.join(0.3)
    assert begun == []
    go_on.set()
    thread.join(20)
    assert begun == [2 * SEGMENT] == [store.trim(before_offset=2 * SEGMENT)]
    assert parts(store).commit_log.failure is None
    store.writer("orders").put(b"after", durability="disk")


@pytest.mark.parametrize(("polled", "patched", "name"), [
    (0, Reader, "_read"),
    (0, StoreSource, "visible"),
    (1, StoreSource, "segments"),  # the batch goes on where the last one ended
])  # fmt: skip
@pytest.mark.parametrize("reset", ["earliest", None])
def test_a_trim_within_a_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    polled: int,
    patched: Any,
    name: str,
    reset: Literal["earliest"] | None,
) -> None:
    """The reader begins where the log begins now, or hears that messages are gone: neither of a file that is
    closed or damaged, nor nothing."""
    store, results = filled(tmp_path)
    real = getattr(patched, name)

    def trim_first(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(patched, name, real)
        store.trim(before_offset=4 * SEGMENT)
        return real(self, *arguments)

    with store, store.consumer("orders", queue_id=0, offset=0, reset=reset) as consumer:
        store.wait_flushed(store.end_offset)
        for _ in range(polled):
            assert [m.queue_offset for m in consumer.poll(1)] == [0]
        monkeypatch.setattr(patched, name, trim_first)
        kept = [r.queue_offset for r in results if r.physical_offset >= 4 * SEGMENT]
        if reset is None:
            with pytest.raises(OffsetOutOfRangeError):
                consumer.poll()
        else:
            assert [m.queue_offset for m in consumer] == kept
        assert kept[0] > 1


@pytest.mark.parametrize("reset", ["earliest", None])
def test_a_reader_of_another_process_in_the_middle_of_a_trim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reset: Literal["earliest"] | None
) -> None:
    """It hears that messages were trimmed away, and not that a file of its queue is missing."""
    store, results = filled(tmp_path)
    kept = [r.queue_offset for r in results if r.physical_offset >= 5 * SEGMENT]
    trim, polls = ConsumeQueueStore.trim, []
    with store, open_small(tmp_path, "r") as reading:
        consumer = reading.consumer("orders", queue_id=0, reset=reset)
        assert [next(consumer).queue_offset for _ in range(10)] == list(range(10))

        def trim_and_poll(queues: ConsumeQueueStore, minimum: int) -> None:
            trim(queues, minimum)
            try:
                polls.append([m.queue_offset for m in consumer.poll(1)])
            except OffsetOutOfRangeError as error:
                polls.append([error.minimum])

        monkeypatch.setattr(ConsumeQueueStore, "trim", trim_and_poll)
        assert store.trim(before_offset=5 * SEGMENT) == 5 * SEGMENT
    assert polls == [kept[:1]]
    assert kept[0] > 20
