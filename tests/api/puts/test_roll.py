"""From one segment to the next: when, what the blank looks like, and what a full disk does."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from rocketstore import DiskFullError, Store, StoreConfig
from rocketstore.log.layout import disk_blocks as files_module
from tests.support.made_store import PRE_BLANK, MadeStore
from tests.support.small_store import (
    BLANK_MAGIC,
    SEGMENT,
    dispatched,
    everything,
    log_bytes,
    open_small,
    parts,
    segments,
    watched,
)

#: A record of topic "t" with an IPv4 host, no properties and the record CRC, without its body.
EMPTY_RECORD = 92 + 20


def body(record_size: int) -> bytes:
    return b"x" * (record_size - EMPTY_RECORD)


def test_names_follow_each_other(tmp_path: Path, store: Store) -> None:
    """S000-05 S001-02 S001-03 S001-04 S000-57 S000-62: 0, size, 2 × size … and never another size."""
    assert StoreConfig().commit_log_file_size_bytes == 1 << 30
    results = [store.writer("t").put(b"x" * 900) for _ in range(17)]
    names = [path.name for path in segments(tmp_path)]
    assert names[:3] == ["0" * 20, f"{SEGMENT:020d}", f"{2 * SEGMENT:020d}"]
    assert names == [f"{n * SEGMENT:020d}" for n in range(len(names))]
    assert {path.stat().st_size for path in segments(tmp_path)} == {SEGMENT}
    offsets = [r.physical_offset for r in results]
    assert offsets == sorted(offsets)
    assert [o // SEGMENT for o in offsets] == [n // 4 for n in range(17)]


def test_one_log_of_many_files(store: Store) -> None:
    """S000-01 S000-06 S004-02: to its user the log is one file without an end."""
    results = [store.writer("t").put(b"%03d" % n * 100) for n in range(60)]
    log = parts(store).commit_log
    assert len(log.queue.files) == store.end_offset // SEGMENT + 1 > 4
    for n, result in enumerate(results):
        assert store.get(result.physical_offset).body == b"%03d" % n * 100
    assert store.end_offset == results[-1].end_offset > 4 * SEGMENT


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.store("durability")
def test_record_plus_8_that_fits_exactly(tmp_path: Path, durability: str, store: Store) -> None:
    """The last record may leave room for a blank of 8 bytes, and that blank is written."""
    writer = store.writer("t")
    first = writer.put(body(SEGMENT - 8))
    assert first.end_offset == SEGMENT - 8
    second = writer.put(b"next")
    assert second.physical_offset == SEGMENT
    store.wait_flushed(second.end_offset)
    assert log_bytes(tmp_path)[SEGMENT - 8 : SEGMENT] == struct.pack(">i", 8) + BLANK_MAGIC


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.store("durability")
def test_one_byte_too_long_rolls(tmp_path: Path, durability: str, store: Store) -> None:
    """S003-30 S001-47: blank over the rest, then the same message again at the next start."""
    writer = store.writer("t")
    writer.put(body(1000))
    second = writer.put(body(SEGMENT - 1000 - 8 + 1))
    assert (second.physical_offset, second.queue_offset) == (SEGMENT, 1)
    store.wait_flushed(second.end_offset)
    data = log_bytes(tmp_path)
    assert data[1000:1008] == struct.pack(">i", SEGMENT - 1000) + BLANK_MAGIC
    assert data[1008:SEGMENT].strip(b"\0") == b""
    assert [m.queue_offset for m in everything(dispatched(store), "t")] == [0, 1]


def test_append_goes_on_only_below_the_file_size(store: Store) -> None:
    """S000-66 S001-69: a full file takes nothing: no record crosses or touches its end."""
    for n in range(80):
        result = store.writer("t").put(b"x" * (n * 37 % 700))
        inside = result.physical_offset % SEGMENT + result.size
        assert inside <= SEGMENT - 8


def test_the_first_put_makes_the_first_file(tmp_path: Path, store: Store) -> None:
    """S004-20 S001-45: an empty log has no file until somebody puts."""
    assert segments(tmp_path) == []
    store.writer("t").put(b"x")
    assert segments(tmp_path)[0].name == "0" * 20


def test_the_next_file_is_made_ahead(store: Store) -> None:
    """S000-59 S004-22 S004-46: at half of a file the one that follows is made, not two."""
    writer = store.writer("t")
    writer.put(body(2000))
    assert parts(store).preallocator.spare() is None
    writer.put(body(200))
    made = parts(store).preallocator.take(SEGMENT, 10)
    assert (made.start_offset, made.size) == (SEGMENT, SEGMENT)
    assert parts(store).preallocator.spare() is None
    made.close()


def test_a_spare_file_goes_when_the_store_closes(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("t")
        writer.put(body(3000))
    assert [path.name for path in segments(tmp_path)] == ["0" * 20]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_at_a_roll(monkeypatch: pytest.MonkeyPatch, number: int, store: Store) -> None:
    """D-16: the put fails with the cause, nothing has changed, and it works once there is room."""
    writer = store.writer("t")
    writer.put(body(1900))
    calls = watched(monkeypatch, files_module)
    calls.errors["fallocate"] = OSError(number, "no room")
    writer.put(body(1900))
    end = store.end_offset
    for _ in range(2):
        with pytest.raises(DiskFullError) as caught:
            writer.put(body(1900))
        assert caught.value.errno == number
        assert caught.value.status == "CREATE_MAPPED_FILE_FAILED"
    assert store.end_offset == end
    calls.errors.clear()
    result = writer.put(body(1900))
    assert (result.physical_offset, result.queue_offset) == (SEGMENT, 2)
    assert [m.queue_offset for m in everything(dispatched(store), "t")] == [0, 1, 2]


def test_a_small_message_still_fits_while_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """No blank is written for a roll that failed, so the room at the end is not lost."""
    writer = store.writer("t")
    writer.put(body(1000))
    calls = watched(monkeypatch, files_module)
    calls.errors["fallocate"] = OSError(errno.ENOSPC, "no room")
    writer.put(body(2000))  # more than half: a spare is tried in vain
    with pytest.raises(DiskFullError):
        writer.put(body(2000))
    assert writer.put(body(500)).physical_offset == 3000


def test_first_file_of_a_queue_that_begins_later(tmp_path: Path) -> None:
    """S000-61 S004-17: places before its first unit are filled ahead, so no reader takes them for units."""
    made = MadeStore(tmp_path, begin=SEGMENT)
    made.put("t", queue_offset=7)
    with open_small(tmp_path) as store:
        assert (store.min_queue_offset("t", 0), store.max_queue_offset("t", 0)) == (7, 8)
        assert [m.queue_offset for m in everything(store, "t")] == [7]
        queue = (tmp_path / "consumequeue/t/0/00000000000000000000").read_bytes()
        assert queue[: 7 * 20] == PRE_BLANK * 7
        assert queue[7 * 20 : 8 * 20] != PRE_BLANK
