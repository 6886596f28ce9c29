"""Mapped files: what stands in them, how it gets there, what is counted."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from rocketstore import PutResult, Ticket
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.mapping import mapped_bytes, mapped_files
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from tests.support.file_tools import created
from tests.support.small_store import dispatched, everything, open_still

PROMISES = ["disk", "os", "memory"]
KIB = 1024


def test_every_kind_of_append_goes_behind_the_one_before(tmp_path: Path) -> None:
    """One call or another, one body or many: the records stand back to back and nothing else does."""
    with open_still(tmp_path, "os", commit_log_file_size_bytes=1 << 20) as store:
        writer = store.writer("orders")
        ends = np.array([0, 300, 600, 900])
        for _ in range(20):
            made: list[PutResult | Ticket] = [
                writer.put(b"a" * 300),
                writer.put(memoryview(b"?" + b"b" * 300 + b"?")[1:-1]),
                writer.put_batch([b"c" * 300, b"d" * 300]),
                writer.put_columns((ends, np.frombuffer(b"e" * 900, dtype=np.uint8))),
                writer.submit(b"f" * 300),
                store.put_message("orders", b"g" * 300),
            ]
            last = made[-1]
            assert isinstance(last, PutResult)
            assert store.end_offset == last.end_offset
        messages = everything(dispatched(store))
        assert b"".join(m.body[:1] for m in messages) == b"abcdeeefg" * 20
        assert {len(m.body) for m in messages} == {300}
        sizes = [m.size for m in messages]
        assert [m.physical_offset for m in messages] == [sum(sizes[:n]) for n in range(180)]
        assert store.end_offset == sum(sizes)


@pytest.mark.parametrize("durability", PROMISES)
def test_a_thousand_appends_of_one_kibibyte_fill_what_they_say(
    tmp_path: Path, durability: str
) -> None:
    """Each promise has another way into the file; the count of bytes is the same."""
    with open_still(tmp_path, durability, commit_log_file_size_bytes=4 << 20) as store:
        writer = store.writer("orders", durability="memory")
        first = writer.put(b"\x5a" * KIB)
        for _ in range(999):
            writer.put(b"\x5a" * KIB)
        assert first.size > KIB
        assert store.end_offset == 1000 * first.size
        store.wait_flushed(store.end_offset)
        assert store.get(999 * first.size).body == b"\x5a" * KIB


def test_many_threads_may_ask_for_the_same_flush(
    tmp_path: Path, small_switch_interval: None
) -> None:
    """K-40: the position has one writer, so asking at once is no harm: all hear the same end."""
    with open_still(tmp_path, "os") as store:
        end = [store.writer("orders").put(b"%d" % n * 100) for n in range(20)][-1].end_offset
        assert store.flushed_offset == 0
        barrier, seen = threading.Barrier(5), []

        def ask() -> None:
            barrier.wait(20)
            store.wait_flushed(end, timeout_s=20)
            seen.append(store.flushed_offset)

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert seen == [end] * 5


def test_mapped_memory_is_the_sum_of_the_files(tmp_path: Path) -> None:
    gc.collect()
    files, size = mapped_files(), mapped_bytes()
    queue = MappedFileQueue(tmp_path, "write", file_size=8 * KIB, name="queue")
    for number in range(5):
        created(queue, number * 8 * KIB, sparse=True)
    assert (mapped_files() - files, mapped_bytes() - size) == (5, 40 * KIB)
    queue.remove_before(16 * KIB)
    assert (mapped_files() - files, mapped_bytes() - size) == (3, 24 * KIB)
    queue.close()
    assert (mapped_files(), mapped_bytes()) == (files, size)


def test_bytes_that_do_not_fit_into_the_rest_of_a_file_change_nothing() -> None:
    file = MappedFile.anonymous(0, KIB)
    file.write(0, b"x" * (KIB - 10))
    with pytest.raises(ValueError, match=r"\b1014\b"):
        file.write(KIB - 10, b"y" * 20)
    assert file.read(KIB - 10, 10) == bytes(10)
    file.write(KIB - 10, b"z" * 10)
    assert file.read(KIB - 10, 10) == b"z" * 10
    file.close()
