"""Queues that lack files or units for messages of the log: an open makes them again, and says so;
a reader serves them from memory (K-88)."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import rocketstore
from rocketstore import RefilledQueue
from rocketstore.engine import phases
from rocketstore.log.dispatch import missing_units
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.tools import verify
from tests.support.consumer_setting import offsets_of
from tests.support.log_store import unpack_store
from tests.support.small_store import dispatched, open_small, put_many

#: A file of a queue holds ten units, a segment about a dozen records.
COUNT = 45
TOPICS = {"orders": COUNT, "others": COUNT, "many": 2 * COUNT + 1}


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Two topics with records by turns; the process was killed when all was on disk."""
    root = tmp_path / "store"
    with open_small(root) as store:
        for _ in range(COUNT // 5):
            for topic in ("orders", "others"):
                put_many(store.writer(topic, queue_id=0), 5, 1)
        put_many(store.writer("many", queue_id=0), 2 * COUNT + 1, 1)  # no full file at its end
    StoreLayout(root).abort.touch()
    return root


def files_of(root: Path, topic: str = "orders") -> list[Path]:
    return sorted((root / "consumequeue" / topic / "0").iterdir())


def zero(path: Path, first: int, count: int) -> None:
    with path.open("r+b") as file:
        file.seek(first * 20)
        file.write(bytes(count * 20))


def lose_first_file(root: Path) -> None:
    files_of(root)[0].unlink()


def lose_three_files(root: Path) -> None:
    for path in files_of(root)[:3]:
        path.unlink()


def lose_middle_file(root: Path) -> None:
    files_of(root)[2].unlink()


def lose_all_but_the_middle(root: Path) -> None:
    for path in [*files_of(root)[:2], *files_of(root)[3:]]:
        path.unlink()


def lose_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "0")


def lose_topic(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders")


def zero_first_units(root: Path) -> None:
    zero(files_of(root)[0], 0, 3)


def zero_middle_units(root: Path) -> None:
    zero(files_of(root)[2], 4, 3)


def zero_a_file(root: Path) -> None:
    zero(files_of(root)[1], 0, 10)


def zero_last_units(root: Path) -> None:
    zero(files_of(root)[-1], 2, 8)


def swap_files(root: Path) -> None:
    one, other = files_of(root)[1], files_of(root, "others")[1]
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def swap_in_the_queue(root: Path) -> None:
    one, other = files_of(root)[1:3]
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def swap_queues(root: Path) -> None:
    """With a queue that has more messages, so that this one ends too far then."""
    queue = root / "consumequeue" / "orders" / "0"
    queue.rename(root / "between")
    (root / "consumequeue" / "many" / "0").rename(queue)
    (root / "between").rename(root / "consumequeue" / "many" / "0")


def rename_a_file(root: Path) -> None:
    files_of(root)[1].rename(files_of(root)[1].with_name(f"{2000:020d}"))


#: What is lost, and the messages that no unit of "orders" names then: first, last, count.
LOSSES: list[tuple[Callable[[Path], None], int, int, int]] = [
    (lose_first_file, 0, 9, 10),
    (lose_three_files, 0, 29, 30),
    (lose_middle_file, 20, 29, 10),
    (lose_all_but_the_middle, 0, 44, 35),
    (lose_queue, 0, 44, 45),
    (lose_topic, 0, 44, 45),
    (zero_first_units, 0, 2, 3),
    (zero_middle_units, 24, 26, 3),
    (zero_a_file, 10, 19, 10),
    (zero_last_units, 42, 44, 3),
    (swap_files, 10, 19, 10),
    (swap_in_the_queue, 10, 29, 20),
    (swap_queues, 0, 44, 45),
    (rename_a_file, 10, 19, 10),
]


def is_whole(store: rocketstore.Store) -> bool:
    return all(
        store.min_queue_offset(topic, 0) == 0
        and offsets_of(store.consumer(topic)) == list(range(count))
        for topic, count in TOPICS.items()
    )


def content_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("lose", "first", "last", "count"), LOSSES)
def test_an_open_after_a_crash_makes_them_again(
    crashed: Path, lose: Callable[[Path], None], first: int, last: int, count: int
) -> None:
    lose(crashed)
    with open_small(crashed) as store:
        found = [one for one in store.recovery.refilled_queues if one.topic == "orders"]
        assert found == [
            RefilledQueue(topic="orders", queue_id=0, first=first, last=last, count=count)
        ]
        assert f"  orders/0: {first} … {last} ({count} messages)" in str(store.recovery)
        assert is_whole(store)
        assert store.writer("orders", queue_id=0).put(b"x").queue_offset == COUNT
    assert verify(crashed).ok
    with open_small(crashed) as store:
        assert not store.recovery.refilled_queues


@pytest.mark.parametrize(("lose", "first", "last", "count"), LOSSES)
def test_a_reader_serves_them_from_memory(
    crashed: Path, lose: Callable[[Path], None], first: int, last: int, count: int
) -> None:
    lose(crashed)
    before = content_of(crashed)
    with open_small(crashed, "r") as store:
        assert any(one.count == count for one in store.recovery.refilled_queues)
        assert is_whole(store)
    assert content_of(crashed) == before


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize(("lose", "first", "last", "count"), LOSSES)
def test_what_got_lost_after_our_own_clean_stop(
    crashed: Path, mode: Any, lose: Callable[[Path], None], first: int, last: int, count: int
) -> None:
    with open_small(crashed):
        pass
    lose(crashed)
    with open_small(crashed, mode) as store:
        assert store.recovery.mode == "clean"
        assert [
            (one.first, one.last, one.count)
            for one in store.recovery.refilled_queues
            if one.topic == "orders"
        ] == [(first, last, count)]
        assert is_whole(store)
    if mode == "rw":
        assert verify(crashed).ok


def test_queues_that_no_one_touched_are_not_compared(
    crashed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(crashed):
        pass
    looked = Mock(side_effect=lambda report, *_, **__: report)
    monkeypatch.setattr(phases, "refill_queues", looked)
    for mode in ("r", "rw", "r"):
        with open_small(crashed, mode):
            pass
    assert not looked.called
    os.utime(files_of(crashed)[0])
    with open_small(crashed, "r"):
        assert looked.called


def test_an_open_looks_at_all_of_a_log_that_is_asked_for(
    crashed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open for which the log is too large looks at the begin of each file, and at all of it
    where a unit is missing there."""
    monkeypatch.setattr(missing_units, "LOOK_BYTES", 700)  # two records of each file
    zero_middle_units(crashed)
    with open_small(crashed, "r") as store:
        assert not store.recovery.refilled_queues
        with pytest.raises(rocketstore.RocketStoreError):
            list(store.consumer("orders"))
    with open_small(crashed, "r", check_queues=True) as store:
        assert is_whole(store)
    with open_small(crashed) as store:
        assert not store.recovery.refilled_queues
    with open_small(crashed, check_queues=True) as store:
        assert store.recovery.mode == "clean"
        assert store.recovery.refilled_queues[0].count == 3
        assert is_whole(store)
    lose_queue(crashed)
    StoreLayout(crashed).abort.touch()
    with open_small(crashed) as store:
        assert store.recovery.refilled_queues[0].count == COUNT
        assert is_whole(store)


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_nothing_is_said_where_nothing_is_missing(crashed: Path, mode: Any) -> None:
    with open_small(crashed, mode) as store:
        assert not store.recovery.refilled_queues
        assert is_whole(store)


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize(("first", "count"), [(0, 10), (3, 2), (1, 9)])
def test_units_in_front_of_what_was_kept_are_zeroed(
    mode: Any, first: int, count: int, root: Path
) -> None:
    """A trimmed log: some of them had no message any more, and RocketMQ takes an unwritten unit for
    the end."""
    with open_small(root) as store:
        put_many(store.writer("orders", queue_id=0), 130, 1)
        dispatched(store)  # a trim of the log leaves a queue that is behind as it is
        store.trim(before_offset=store.end_offset * 2 // 3)
        least = store.min_queue_offset("orders", 0)
    files = files_of(root)
    assert int(files[0].name) // 20 + 3 < least < int(files[0].name) // 20 + 10
    zero(files[0], first, count)
    StoreLayout(root).abort.touch()
    with open_small(root, mode) as store:
        assert store.min_queue_offset("orders", 0) == least
        assert offsets_of(store.consumer("orders")) == list(range(least, 130))
    if mode == "rw":
        assert verify(root).ok


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_cut_file_does_not_tell_the_length_of_the_others(mode: Any, root: Path) -> None:
    with open_small(root) as store:
        for topic in ("a", "orders"):
            put_many(store.writer(topic, queue_id=0), 5 if topic == "a" else COUNT, 1)
    os.truncate(files_of(root, "a")[0], 60)
    with rocketstore.open(root, mode) as store:
        assert store.config.consume_queue_file_size_bytes == 200
        assert offsets_of(store.consumer("a")) == list(range(5))
        assert offsets_of(store.consumer("orders")) == list(range(COUNT))
    shutil.rmtree(root / "consumequeue" / "orders")
    with rocketstore.open(root, mode) as store:
        assert store.config.consume_queue_file_size_bytes == 200


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_what_can_be_no_units_does_not_say_that_segments_are_missing(
    crashed: Path, mode: Any
) -> None:
    """Here they say that records overlap, far behind the end of the log."""
    StoreLayout(crashed).lock.write_bytes(b"lock")  # RocketMQ wrote last
    garbage = b"".join(struct.pack(">qiq", (1 << 40) + n, 100, 0) for n in range(10))
    files_of(crashed)[-1].write_bytes(garbage)
    with open_small(crashed, mode) as store:
        assert is_whole(store)
        assert not store.recovery.lost_messages
    if mode == "rw":
        assert verify(crashed).ok


#: Java's stores with all their messages in queues, and the topic whose queues get lost.
JAVA = ("clean-498", "clean-533", "crashed-498", "crashed-533", "expired-498", "light-queues-533")


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("name", JAVA)
def test_a_topic_is_lost_that_rocketmq_wrote(
    tmp_path: Path, name: str, mode: Any, root: Path
) -> None:
    unpack_store(name, root)
    shape = {"index_slots": 64, "index_entries": 300}
    with rocketstore.open(root, "r", **shape) as store:
        wanted = {topic: bodies(store, topic) for topic in store.topics(system=True)}
        assert not store.recovery.refilled_queues
    for topic in wanted:
        copy = tmp_path / f"without-{topic.replace('%', '_')}"
        shutil.copytree(root, copy)
        shutil.rmtree(copy / "consumequeue" / topic)
        with rocketstore.open(copy, mode, **shape) as store:
            assert {topic: bodies(store, topic) for topic in store.topics()} == wanted


def bodies(store: rocketstore.Store, topic: str) -> dict[int, list[bytes]]:
    return {
        queue_id: [message.body for message in store.consumer(topic, queue_id=queue_id)]
        for queue_id in store.queues(topic)
    }


def test_an_open_that_fails_while_it_takes_units_out_leaves_no_clean_store(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """The clean mark of the last stop would speak of queues that have changed since."""
    with open_small(root) as store:
        for queue_id in (0, 1):
            put_many(store.writer("orders", queue_id=queue_id), 5, 1)
    first, second = (root / "consumequeue" / "orders" / name for name in ("0", "1"))
    first.rename(root / "kept")
    second.rename(first)
    (root / "kept").rename(second)
    clear = ConsumeQueue.clear_units

    def fails(queue: ConsumeQueue, numbers: list[int]) -> None:
        clear(queue, numbers)
        raise OSError(5, "bad block")

    monkeypatch.setattr(ConsumeQueue, "clear_units", fails)
    with pytest.raises(OSError, match="bad block"):
        open_small(root)
    assert (root / "abort").exists()
    monkeypatch.undo()
    with open_small(root) as store:
        assert sorted(m.queue_offset for m in store.consumer("orders")) == sorted([*range(5)] * 2)
