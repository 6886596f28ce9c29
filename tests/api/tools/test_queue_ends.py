"""Queues that lost what stood at their end while the store was closed (format 20.9)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rocketstore.engine import phases
from rocketstore.errors import MissingSegmentsError, ReadFailedError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues import consume_queue_store
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.saved_ends import load_queue_ends
from rocketstore.tools import verify
from rocketstore.tools.rebuild import rebuild
from tests.support.consumer_setting import offsets_of
from tests.support.small_store import engine_of, open_small, put_many

#: A file of a queue holds ten units.
COUNT = 35


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue" / "orders" / "0").iterdir())


def lose_last(root: Path) -> None:
    queue_files(root)[-1].unlink()


def lose_all(root: Path) -> None:
    for path in queue_files(root):
        path.unlink()


def lose_units(root: Path) -> None:
    with queue_files(root)[-1].open("r+b") as file:
        file.seek(3 * 20)
        file.write(bytes(7 * 20))


def cut_last(root: Path) -> None:
    os.truncate(queue_files(root)[-1], 60)


LOSSES = [(lose_last, 30), (lose_all, 0), (lose_units, 33), (cut_last, 33)]


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Two queues, closed cleanly; the second was not touched by the last run."""
    for topic in ("others", "orders"):
        with open_small(tmp_path) as store:
            put_many(store.writer(topic), COUNT, 1)
    return tmp_path


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize(("lose", "left"), LOSSES)
def test_readers_hear_of_an_end_that_is_missing(
    closed: Path, lose: Callable[[Path], None], left: int
) -> None:
    lose(closed)
    with open_small(closed, "r") as store:
        consumer = store.consumer("orders")
        assert offsets_of(next(consumer) for _ in range(left)) == list(range(left))
        with pytest.raises(ReadFailedError, match=f"no units of the offsets {left} to "):
            next(consumer)
        assert store.max_queue_offset("orders", 0) == COUNT
        assert offsets_of(store.consumer("others")) == list(range(COUNT))
    rebuild(closed)
    with open_small(closed) as store:
        assert offsets_of(store.consumer("orders")) == list(range(COUNT))
        assert store.writer("orders").put(b"x").queue_offset == COUNT


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize(("lose", "left"), LOSSES)
def test_no_message_gets_the_offset_of_another(
    closed: Path, lose: Callable[[Path], None], left: int
) -> None:
    """Puts to that queue are refused, to others not; the open after that makes the units anew."""
    lose(closed)
    with open_small(closed) as store:
        for _ in range(2):
            with pytest.raises(ReadFailedError, match=f"ended at {COUNT} when"):
                store.writer("orders").put(b"x")
            with pytest.raises(ReadFailedError):
                store.put_message("orders", b"x")
        assert store.writer("others").put(b"x").queue_offset == COUNT
    with open_small(closed) as store:
        assert offsets_of(store.consumer("orders")) == list(range(COUNT))
        assert store.writer("orders").put(b"x").queue_offset == COUNT
        assert offsets_of(store.consumer("others")) == list(range(COUNT + 1))
    assert verify(closed).ok
    with open_small(closed) as store:
        assert store.recovery.mode == "clean"
        assert offsets_of(store.consumer("orders")) == list(range(COUNT + 1))


@pytest.mark.parametrize(("lose", "left"), LOSSES)
def test_after_a_crash_the_open_makes_them_anew(
    closed: Path, lose: Callable[[Path], None], left: int
) -> None:
    """It looks at the end of every queue anyway."""
    lose(closed)
    StoreLayout(closed).abort.touch()
    with open_small(closed, "r") as store:
        assert offsets_of(store.consumer("orders")) == list(range(COUNT))
    with open_small(closed) as store:
        assert store.writer("orders").put(b"x").queue_offset == COUNT
        assert offsets_of(store.consumer("orders")) == list(range(COUNT + 1))
    assert verify(closed).ok


@pytest.mark.usefixtures("unlooked")
def test_after_a_crash_queues_that_end_where_they_did_are_not_mapped_for_that(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 of them cost seven seconds."""
    StoreLayout(closed).abort.touch()
    # These look into each queue, and the others find what the first has mapped.
    monkeypatch.setattr(phases, "lost_messages", Mock(return_value=()))
    monkeypatch.setattr(ConsumeQueueStore, "truncate", no_longer := Mock(return_value=0))
    with open_small(closed) as store:
        assert no_longer.called
        assert not any(queue.loaded for queue in engine_of(store)._queues.all())


@pytest.mark.usefixtures("unlooked")
def test_a_reader_beside_a_writer_hears_of_it_too(closed: Path) -> None:
    lose_last(closed)
    with open_small(closed), open_small(closed, "r") as follower:
        assert follower.recovery.mode == "following"
        consumer = follower.consumer("orders")
        assert offsets_of(next(consumer) for _ in range(30)) == list(range(30))
        with pytest.raises(ReadFailedError, match="no units of the offsets 30 to 34"):
            next(consumer)
    StoreLayout(closed).abort.touch()
    with open_small(closed), open_small(closed, "r") as follower:
        assert offsets_of(follower.consumer("orders")) == list(range(COUNT))


@pytest.mark.usefixtures("unlooked")
def test_a_reader_hears_of_what_is_lost_between_two_writers(tmp_path: Path) -> None:
    """It was there before anything was known of ends."""
    with open_small(tmp_path) as store, contextlib.ExitStack() as stack:
        put_many(store.writer("orders"), COUNT, 1)
        follower = stack.enter_context(open_small(tmp_path, "r"))
        arriving = follower.consumer("orders").follow(20.0)
        assert offsets_of(itertools.islice(arriving, COUNT)) == list(range(COUNT))
        store.close()
        lose_last(tmp_path)
        with open_small(tmp_path) as again:
            put_many(again.writer("others"), 1, 1)
            assert offsets_of(follower.consumer("others").poll(1, 20.0)) == [0]
            consumer = follower.consumer("orders", queue_id=0, offset=30)
            with pytest.raises(ReadFailedError, match="no units of the offsets 30 to 34"):
                next(consumer)


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_time_does_not_lead_over_what_is_missing(closed: Path, mode: Any) -> None:
    with open_small(closed, "r") as store:
        times = [message.store_timestamp_ms for message in store.consumer("orders")]
        assert store.offset_at("orders", 0, times[-1] + 1) == COUNT
    lose_last(closed)
    with open_small(closed, mode) as store:
        assert store.offset_at("orders", 0, times[-1] + 1) == 30
        assert store.offset_at("orders", 0, times[0]) == 0


def test_a_copy_of_a_live_store_is_looked_through(
    closed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without the mark of a crash: our checkpoint says that the store was not closed."""
    copy = tmp_path_factory.mktemp("copy") / "store"
    with open_small(closed) as store:
        put_many(store.writer("others"), 1, 1)
        store.wait_flushed(store.end_offset)
        shutil.copytree(closed, copy)
    StoreLayout(copy).abort.unlink()
    lose_last(copy)
    with open_small(copy) as store:
        assert store.recovery.mode == "unclean"
        assert offsets_of(store.consumer("orders")) == list(range(COUNT))
        assert store.writer("orders").put(b"x").queue_offset == COUNT


@pytest.mark.usefixtures("unlooked")
def test_an_open_that_is_refused_forgets_nothing(closed: Path) -> None:
    segment = sorted(StoreLayout(closed).commit_log.iterdir())[0]
    away = segment.rename(closed / "away")
    with pytest.raises(MissingSegmentsError):
        open_small(closed)
    away.rename(segment)
    lose_last(closed)
    with open_small(closed) as store, pytest.raises(ReadFailedError):
        store.writer("orders").put(b"x")


def test_a_full_disk_does_not_spoil_a_clean_close(
    closed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was known before still holds."""
    before = load_queue_ends(StoreLayout(closed))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(consume_queue_store, "save_queue_ends", full)
        with open_small(closed) as store:
            put_many(store.writer("orders"), 1, 1)
    assert "ends of queues are not kept" in caplog.text
    assert load_queue_ends(StoreLayout(closed)) == before
    with open_small(closed) as store:
        assert store.recovery.mode == "clean"
        assert store.writer("orders").put(b"x").queue_offset == COUNT + 1
    assert load_queue_ends(StoreLayout(closed)).least("orders", 0) == COUNT + 2


def test_stored_offsets_of_groups_stay(closed: Path) -> None:
    with open_small(closed) as store:
        consumer = store.consumer("orders", group="g")
        assert len(consumer.poll(COUNT)) == COUNT
        consumer.commit()
    lose_last(closed)
    with open_small(closed) as store:
        assert store.consumer("orders", group="g").positions == {0: COUNT}


def test_what_another_program_did_to_the_queues_counts(closed: Path) -> None:
    """Our saved ends do not count; what the log has of the queue does."""
    with open_small(closed) as store:
        put_many(store.writer("others"), 500, 1)  # so far on that its queues are not filled again
    lose_all(closed)
    StoreLayout(closed).lock.write_bytes(b"lock")
    with open_small(closed) as store:
        assert store.recovery.mode == "foreign-clean"
        assert offsets_of(store.consumer("orders")) == list(range(COUNT))
        assert store.writer("orders").put(b"x").queue_offset == COUNT
    with open_small(closed) as store:
        assert store.writer("orders").put(b"x").queue_offset == COUNT + 1


@pytest.mark.parametrize("anew", ["crash", "refused put", "rebuild"])
def test_a_hole_that_the_log_cannot_fill_is_none(closed: Path, anew: str) -> None:
    """All messages of the queue were trimmed away, and then its files were lost."""
    with open_small(closed) as store:
        put_many(store.writer("others"), 500, 1)
        assert store.trim(before_offset=store.end_offset) > 0
    lose_all(closed)
    if anew == "crash":
        StoreLayout(closed).abort.touch()
    elif anew == "rebuild":
        rebuild(closed)
    else:
        with open_small(closed) as store, pytest.raises(ReadFailedError):
            store.writer("orders").put(b"x")
    with open_small(closed) as store:
        offset = store.writer("orders").put(b"x").queue_offset
    with open_small(closed) as store:
        assert store.recovery.mode == "clean"
        assert offsets_of(store.consumer("orders")) == [offset]
        assert store.writer("orders").put(b"x").queue_offset == offset + 1


def test_of_another_log_it_tells_nothing(
    closed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """An older copy of a store, with a file that is newer."""
    older = tmp_path_factory.mktemp("older") / "store"
    shutil.copytree(closed, older)
    with open_small(closed) as store:
        put_many(store.writer("orders"), COUNT, 1)
    shutil.copy(StoreLayout(closed).queue_ends, StoreLayout(older).queue_ends)
    with open_small(older, "r") as store:
        assert offsets_of(store.consumer("orders")) == list(range(COUNT))
    with open_small(older) as store:
        assert not StoreLayout(older).queue_ends.exists()
        assert store.writer("orders").put(b"x").queue_offset == COUNT
        put_many(store.writer("others"), 10 * COUNT, 1)  # beyond where the other log ended
    with open_small(older) as store:
        assert store.writer("orders").put(b"x").queue_offset == COUNT + 1


def test_an_end_that_was_trimmed_away_is_remembered(tmp_path: Path) -> None:
    """The last file of a queue stays, and with it where the next message goes."""
    with open_small(tmp_path) as store:
        put_many(store.writer("orders"), COUNT, 1)
        put_many(store.writer("others"), 500, 1)
        assert store.trim(before_offset=store.end_offset) > 0
    with open_small(tmp_path) as store:
        assert store.writer("orders").put(b"x").queue_offset == COUNT


@pytest.mark.usefixtures("unlooked")
@pytest.mark.parametrize("content", [b"", b"RSQE", b"\0" * 64])
def test_a_file_that_is_none_is_as_good_as_no_file(
    closed: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    layout = StoreLayout(closed)
    layout.queue_ends.write_bytes(content)
    lose_last(closed)
    with open_small(closed) as store:
        assert "is no use" in caplog.text
        assert store.max_queue_offset("orders", 0) == 30
        put_many(store.writer("others"), 1, 1)
    assert load_queue_ends(layout).least("others", 0) == COUNT + 1
