"""Readers beside a writer of another process, and readers of dead stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore import StoreReadOnlyError, StoreRecoveringError
from tests.process.other_process import (
    PUT,
    SMALL,
    arriving,
    fingerprint,
    number_of,
    numbers,
    open_small,
    other_process,
)

#: Opens with a callback that stops in the middle of recovery until told.
RECOVER_SLOWLY = """
waited = []
def wait(*_):
    if not waited:
        waited.append(True)
        say("recovering")
        told()
store = rocketstore.open(path, on_recovery=wait, **options)
say("open")
told()
store.close()
"""


@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
def test_a_reader_sees_each_message_once_and_in_order(tmp_path: Path, durability: str) -> None:
    """D-30 D-32: beside a live writer that rolls its segments nothing is lost, doubled or early."""
    count = 1200
    with other_process(PUT, tmp_path, given=[0, count], durability=durability) as writer:
        assert writer.line() == "open"
        with open_small(tmp_path, "r") as reader:
            assert reader.recovery.mode == "following"
            writer.hears()
            consumer = reader.consumer("Orders")
            seen: list[int] = []
            for message in consumer.follow(20.0):
                assert message.queue_offset == len(seen)
                assert len(message.body) == len(str(len(seen))) + 301
                seen.append(number_of(message.body))
                if len(seen) == count:
                    break
            assert seen == list(range(count))
            assert reader.end_offset >= 5 * SMALL["commit_log_file_size_bytes"]
            assert consumer.poll(timeout_s=0.0) == []


def test_a_reader_writes_nothing(tmp_path: Path) -> None:
    """D-30: a follower refuses whatever would change the store."""
    with other_process(PUT, tmp_path, given=[0, 1]) as writer:
        assert writer.line() == "open"
        with open_small(tmp_path, "r") as reader:
            entries: list[Callable[[], object]] = [
                lambda: reader.writer("T"),
                lambda: reader.put_message("T", b"x"),
                lambda: reader.trim(before_offset=0),
                lambda: reader.wait_flushed(0),
                lambda: reader.configure(flush_interval_ms=1),
                reader.destroy,
            ]
            for entry in entries:
                with pytest.raises(StoreReadOnlyError, match="mode='r'"):
                    entry()


def killed_writer(path: Path, first: int, end: int, durability: str = "os") -> None:
    with other_process(PUT, path, given=[first, end], durability=durability) as writer:
        assert writer.line() == "open"
        writer.hears()
        assert writer.line() == "done"
        writer.kill()


def test_a_reader_that_opens_while_the_writer_recovers(tmp_path: Path) -> None:
    """D-30: the page says "recovering" and is not believed: an error, no empty store; once live,
    everything is seen."""
    killed_writer(tmp_path, 0, 300)
    with other_process(RECOVER_SLOWLY, tmp_path, durability="os") as writer:
        assert writer.line() == "recovering"
        with pytest.raises(StoreRecoveringError, match="recovers this store"):
            open_small(tmp_path, "r")
        writer.hears()
        assert writer.line() == "open"
        with open_small(tmp_path, "r") as reader:
            assert arriving(reader.consumer("Orders"), 300) == list(range(300))


def test_a_writer_that_dies_and_comes_back_is_followed_on(tmp_path: Path) -> None:
    """D-30: a new run id makes the reader look anew; its cursor stays valid, nothing is doubled."""
    with other_process(PUT, tmp_path, given=[0, 400], durability="os") as writer:
        assert writer.line() == "open"
        with open_small(tmp_path, "r") as reader:
            writer.hears()
            consumer = reader.consumer("Orders")
            assert arriving(consumer, 400) == list(range(400))
            writer.kill()
            assert consumer.poll(timeout_s=0.0) == []
            with other_process(PUT, tmp_path, given=[400, 800], durability="os") as second:
                assert second.line() == "open"
                second.hears()
                assert arriving(consumer, 400) == list(range(400, 800))
            assert consumer.poll(timeout_s=0.0) == []


def test_a_reader_of_a_clean_dead_store_changes_no_byte(tmp_path: Path) -> None:
    """D-03: nobody writes, the marks are clean; reading leaves every file as it was."""
    with open_small(tmp_path) as store:
        writer = store.writer("Orders")
        for number in range(300):
            writer.put(b"%d:" % number + bytes(300), keys=f"k{number}")
    before = fingerprint(tmp_path)
    with open_small(tmp_path, "r") as reader:
        assert reader.recovery.mode == "clean"
        assert numbers(reader) == list(range(300))
        assert [number_of(m.body) for m in reader.query("Orders", "k17")] == [17]
    assert fingerprint(tmp_path) == before


def test_a_reader_of_an_unclean_dead_store_recovers_in_memory(tmp_path: Path) -> None:
    """D-30 D-21: the tail is recovered over private mappings; the directory stays byte-identical."""
    killed_writer(tmp_path, 0, 500)
    before = fingerprint(tmp_path)
    assert "abort" in before
    with open_small(tmp_path, "r") as reader:
        assert reader.recovery.mode != "clean"
        assert numbers(reader) == list(range(500))
        assert [number_of(m.body) for m in reader.query("Orders", "k499")] == [499]
    assert fingerprint(tmp_path) == before
    with open_small(tmp_path) as store:
        assert numbers(store) == list(range(500))


def test_several_readers_of_one_writer(tmp_path: Path) -> None:
    """D-30: readers take no lock and do not disturb each other."""
    with other_process(PUT, tmp_path, given=[0, 300], durability="os") as writer:
        assert writer.line() == "open"
        readers = [open_small(tmp_path, "r") for _ in range(3)]
        writer.hears()
        for reader in readers:
            with reader:
                assert arriving(reader.consumer("Orders"), 300) == list(range(300))
        assert writer.line() == "done"
