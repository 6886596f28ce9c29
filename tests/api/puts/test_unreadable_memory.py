"""Bodies and columns in a mapped file that somebody has cut: their put is refused, all else goes on."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore import MessageRejectedError, NewMessage, Store, tools
from rocketstore.puts import arrays
from tests.support.small_store import SMALL, dispatched, engine_of, everything, open_small, segments

pytestmark = pytest.mark.quick
PAGE = mmap.PAGESIZE
FILE = 32 * PAGE
ROWS = np.arange(0, PAGE + 1, 256)
Cut = tuple[memoryview, memoryview]
Put = Callable[[Store, Cut], object]


@pytest.fixture
def cut(tmp_path: Path) -> Cut:
    """A page that can be read before one that cannot, and two that cannot."""
    path = tmp_path / "mapped"
    path.write_bytes(b"x" * PAGE * 3)
    with path.open("r+b") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0))
        file.truncate(PAGE)
    return mapped[:5000], mapped[PAGE:]


def open_store(path: Path, durability: str) -> Store:
    sizes = {**SMALL, "commit_log_file_size_bytes": FILE, "max_message_size_bytes": 4 * PAGE}
    return open_small(path, durability=durability, **sizes)


def in_transaction(store: Store, cut: Cut) -> None:
    with store.transaction() as transaction:
        transaction.put("orders", cut[0])


def numbers(cut: Cut, kind: Any = np.int64) -> Any:
    return np.frombuffer(cut[1], kind)[: ROWS.size - 1]


WHOLE = (ROWS, bytes(PAGE))
#: Each as a program would call it.
PUTS: dict[str, Put] = {
    "put": lambda store, cut: store.writer("orders").put(cut[0]),
    "reversed": lambda store, cut: store.writer("orders").put(cut[0][::-1]),
    "expected": lambda store, cut: store.writer("orders").put(cut[0], expected_queue_offset=1),
    "unique": lambda store, cut: store.writer("orders").put(cut[0], unique_id="1"),
    "delayed": lambda store, cut: store.writer("orders").put(cut[0], delay_level=1),
    "batch": lambda store, cut: store.writer("orders").put_batch([b"x" * 100] * 20 + [cut[0]]),
    "ticket": lambda store, cut: store.writer("orders").submit(cut[0]),
    "message": lambda store, cut: store.put_message("orders", cut[0]),
    "messages": lambda store, cut: store.put_batch([NewMessage("orders", cut[0])]),
    "transaction": in_transaction,
    "column": lambda store, cut: store.writer("orders").put_columns((ROWS, cut[1])),
    "offsets": lambda store, cut: store.writer("orders").put_columns((numbers(cut), bytes(9))),
    "tags": lambda store, cut: store.writer("orders", queues=2).put_columns(
        WHOLE, row_tags=["a"] * (ROWS.size - 1), queue_ids=numbers(cut, np.int32)
    ),
    "frames": lambda store, cut: store.put_frames(cut[1]),
    "columns": lambda store, cut: store.put_columns((ROWS, cut[1]), topics=["orders"]),
    "keys": lambda store, cut: store.put_columns(WHOLE, topics=["orders"], keys=(ROWS, cut[1])),
    "encoded": lambda store, cut: rocketstore.encode_frames((ROWS, cut[1]), topics=["orders"]),
}  # fmt: skip


def refused_alone(path: Path, durability: str, put: Callable[[Store], object]) -> None:
    """After the refusal the log ends where it did, in zeros, and takes puts of all kinds."""
    with open_store(path, durability) as store:
        writer = store.writer("orders")
        first = writer.put(b"before", durability="os")
        with pytest.raises(MessageRejectedError, match=r"cannot be read \(SIGBUS\)"):
            put(store)
        if durability == "os":  # the others have stored nothing to the file
            assert not segments(path)[-1].read_bytes()[first.end_offset % FILE :].strip(b"\0")
        assert store.end_offset == first.end_offset
        after = [writer.put(b"after"), *[writer.put_batch([b"y" * 3000] * 9) for _ in range(6)]]
        assert [each.queue_offset for each in after] == [1, *range(2, 56, 9)]
        assert after[0].physical_offset == first.end_offset
        assert len(segments(path)) > 1
        store.flush()  # then all of it is visible
        bodies = [b"before", b"after", *[b"y" * 3000] * 54]
        assert [message.body for message in everything(dispatched(store))] == bodies
    assert tools.verify(path).ok
    with open_store(path, durability) as store:
        assert [message.body for message in everything(store)] == bodies


@pytest.mark.parametrize("name", PUTS)
def test_memory_that_cannot_be_read_refuses_its_put_alone(
    tmp_path: Path, cut: Cut, name: str
) -> None:
    refused_alone(tmp_path / "s", "os", lambda store: PUTS[name](store, cut))


@pytest.mark.parametrize("durability", ["memory", "disk"])
@pytest.mark.parametrize("name", ["put", "batch"])
def test_no_write_buffer_keeps_what_was_refused(
    tmp_path: Path, cut: Cut, name: str, durability: str
) -> None:
    refused_alone(tmp_path / "s", durability, lambda store: PUTS[name](store, cut))


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("name", ["column", "columns", "tags"])
def test_a_file_that_is_cut_after_the_look(
    tmp_path: Path, cut: Cut, monkeypatch: pytest.MonkeyPatch, name: str, through: bool
) -> None:
    """The append meets it: offsets that earlier rows of the batch took are given back."""
    monkeypatch.setattr(arrays, "check_readable", lambda memory: None)
    whole = cut[0].obj
    assert isinstance(whole, mmap.mmap)
    rows = (np.arange(0, 2 * PAGE + 1, 256), memoryview(whole))
    puts: dict[str, Callable[[Store], object]] = {
        "column": lambda store: store.writer("orders").put_columns(rows),
        "columns": lambda store: store.put_columns(rows, topics=["orders"]),
        "tags": lambda store: store.writer("orders").put_columns(rows, row_tags=["a"] * 32),
    }

    def put(store: Store) -> None:
        if through:
            engine_of(store).commit_log.log.through.least_bytes = 0
        puts[name](store)

    refused_alone(tmp_path / "s", "os", put)


@pytest.mark.parametrize("name", ["put", "batch"])
def test_a_roll_stays_that_a_refused_put_had_begun(tmp_path: Path, cut: Cut, name: str) -> None:
    """The segment that was left ends in its blank, and the next one takes what comes."""
    with open_store(tmp_path / "s", "os") as store:
        writer = store.writer("orders")
        while FILE - (end := store.end_offset) > 5000:
            writer.put(b"x" * 1000)
        for _ in range(2):
            with pytest.raises(MessageRejectedError, match="SIGBUS"):
                PUTS[name](store, cut)
        assert store.end_offset == end
        assert writer.put(b"x" * 1000).physical_offset == FILE
        for _ in range(2 * FILE // 1000):
            writer.put(b"x" * 1000)
        count = everything(dispatched(store))[-1].queue_offset + 1
        assert len(everything(store)) == count
    assert tools.verify(tmp_path / "s").ok
