"""put_columns: bodies back to back and their offsets, as Arrow lays them out."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketstore import (
    MessageRejectedError,
    MessageTooLargeError,
    NewMessage,
    Store,
    StoreFailedError,
)
from rocketstore.puts.arrays import offsets_of, whole_of
from rocketstore.puts.put_columns import whole
from tests.support.small_store import SEGMENT, dispatched, everything, open_small, parts


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_rows_over_several_segments(tmp_path: Path, durability: str) -> None:
    bodies = [b"%03d" % i * (i % 60) for i in range(100)]
    offsets = np.cumsum([0, *map(len, bodies)])
    with open_small(tmp_path, durability=durability) as store:
        result = store.writer("orders").put_columns((offsets, b"".join(bodies)), tags="t")
        assert result.count == 100
        assert result.queue_offsets == range(100)
        assert result.physical_offsets[-1] // SEGMENT >= 2
        store.wait_flushed(result.end_offset)
        messages = everything(dispatched(store))
        assert [m.body for m in messages] == bodies
        assert [m.physical_offset for m in messages] == result.physical_offsets
        assert {m.tags for m in messages} == {"t"}
        assert store.end_offset == result.end_offset


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16, list])
def test_offsets_of_any_integer_kind(kind: type, store: Store) -> None:
    offsets: Any = [1, 3, 3, 6] if kind is list else np.array([1, 3, 3, 6], kind)
    store.writer("orders").put_columns((offsets, bytearray(b"abcdef")))
    assert [m.body for m in everything(dispatched(store))] == [b"bc", b"", b"def"]


@pytest.mark.parametrize("offsets", [[0, 2, 1], [-1, 2], [0, 7], [0.5, 1.0], [[0, 1]], []])
def test_wrong_offsets_store_nothing(offsets: list[object], store: Store) -> None:
    with pytest.raises(MessageRejectedError, match="offsets"):
        store.writer("orders").put_columns((offsets, b"abcdef"))
    assert store.end_offset == 0


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (
            np.array([1, 2, 3]),
            MessageRejectedError,
            r"data: dtype int64, expected uint8; use \.view\(np\.uint8\)",
        ),
        (np.zeros(3), MessageRejectedError, "dtype float64"),
        (memoryview(b"abcdefgh").cast("I"), MessageRejectedError, "items of 4 bytes"),
        (np.zeros((3, 3), np.uint8), MessageRejectedError, "data: 2 dimensions, expected one"),
        (np.zeros(6, np.uint8)[::2], MessageRejectedError, "data: not contiguous"),
        (np.array(["2020"], "M8[s]"), TypeError, r"data: dtype datetime64\[s\]"),
        ("abcd", TypeError, r"data\.encode\(\)"),
        ([b"a", b"b"], TypeError, "data: list, expected bytes or a buffer"),
        (None, TypeError, "data: NoneType, expected bytes"),
    ],
)
def test_data_are_bytes(data: Any, error: type[Exception], said: str, store: Store) -> None:
    with pytest.raises(error, match=said):
        store.writer("orders").put_columns(([0, 1, 2, 3], data))
    assert store.end_offset == 0


@pytest.mark.parametrize(
    "checked",
    [
        lambda given: offsets_of("offsets", given),
        lambda given: whole_of("born_timestamps_ms", given, 3, 0, 9),
        lambda given: whole(given, 0, 3, np.int64, "born_timestamps_ms"),
    ],
)
def test_what_was_checked_is_out_of_the_callers_reach(checked: Callable[[Any], Any]) -> None:
    """A thread that fills its arrays anew too early would have native code leave the memory."""
    given = np.array([0, 1, 2], np.int64)
    found = checked(given)
    given[:] = 1 << 40
    assert found.tolist() == [0, 1, 2]


class ChunkedArray:
    """As far as Arrow's is looked at."""

    def combine_chunks(self) -> None:
        raise AssertionError


def test_an_array_in_chunks_is_to_be_combined(store: Store) -> None:
    with pytest.raises(TypeError, match=r"bodies: .* in chunks; use \.combine_chunks\(\)"):
        store.writer("orders").put_columns(ChunkedArray())
    with pytest.raises(TypeError, match=r"row_tags: .* in chunks; use \.combine_chunks\(\)"):
        store.writer("orders").put_columns(([0, 1], b"a"), row_tags=ChunkedArray())
    assert store.end_offset == 0


def test_no_offsets_at_all_are_said_to_be_missing(store: Store) -> None:
    with pytest.raises(MessageRejectedError, match=r"offsets: shape \(0,\), expected n \+ 1"):
        store.writer("orders").put_columns(([], b""))
    assert store.end_offset == 0


@pytest.mark.parametrize("kind", [np.uint8, np.int8, "S1", np.bool_])
def test_items_of_one_byte_are_bytes(kind: Any, store: Store) -> None:
    store.writer("orders").put_columns(([0, 1, 3], np.frombuffer(b"\1\0\1", np.uint8).view(kind)))
    assert [m.body for m in everything(dispatched(store))] == [b"\1", b"\0\1"]


@pytest.mark.store(max_message_size_bytes=10)
def test_a_row_that_is_too_large_stores_nothing(store: Store) -> None:
    with pytest.raises(MessageTooLargeError):
        store.writer("orders").put_columns(([0, 10, 20, 31], b"x" * 31))
    assert store.end_offset == 0


@pytest.mark.parametrize("what", ["rows", "messages", "messages that wait"])
@pytest.mark.store(durability="os")
def test_an_error_says_how_many_rows_are_stored(
    monkeypatch: pytest.MonkeyPatch, store: Store, what: str
) -> None:
    puts = {
        "rows": lambda: writer.put_columns((range(0, 10_001, 500), b"x" * 10_000)),
        "messages": lambda: writer.put_batch([b"x" * 500] * 20, chunk=True),
        "messages that wait": lambda: store.put_batch([later] * 20, chunk=True),
    }
    writer, later = store.writer("orders"), NewMessage("t", b"x" * 500, deliver_after=3600)
    log = parts(store).commit_log
    rolls: list[int] = []

    def next_segment() -> None:
        rolls.append(1)
        if len(rolls) > 1:
            log.fail(OSError(5, "the disk is gone"))
        real()

    real = log.next_segment
    monkeypatch.setattr(log, "next_segment", next_segment)
    with pytest.raises(StoreFailedError) as caught:
        puts[what]()
    stored = store.stats().put_messages
    assert 0 < stored < 20
    assert caught.value.__notes__ == [f"{stored} of 20 {what.split()[0]} were stored before this"]


def test_the_array_may_be_read_only(store: Store) -> None:
    data = np.frombuffer(b"abcd", np.uint8)
    offsets = np.array([0, 4])
    offsets.flags.writeable = False
    store.writer("orders").put_columns((offsets, data))
    assert everything(dispatched(store))[0].body == b"abcd"


@pytest.mark.store(durability="os")
def test_rows_with_those_of_another_writer_in_between(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """A column goes to the log in one piece a segment: what is put in between is no part of it."""
    bodies = [b"%03d" % i * 20 for i in range(60)]
    commit_log = parts(store).commit_log
    make_next, other = commit_log.next_segment, store.writer("orders")

    def make_next_and_put() -> None:
        make_next()
        other.put(b"another")

    monkeypatch.setattr(commit_log, "next_segment", make_next_and_put)
    result = store.writer("orders").put_columns(
        (np.cumsum([0, *map(len, bodies)]), b"".join(bodies))
    )
    assert pickle.loads(pickle.dumps(result)) == result
    found = [store.get(offset) for offset in result.physical_offsets]
    assert [m.body for m in found] == bodies
    assert [m.queue_offset for m in found] == result.queue_offsets
    assert result.queue_offsets[-1] > 60
    assert len(everything(dispatched(store))) == result.queue_offsets[-1] + 1
