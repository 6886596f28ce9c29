"""Messages by key through an open store, while it runs and after it was opened again."""

from __future__ import annotations

import datetime
import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ConfigError, ReadFailedError, Store, StoreClosedError, Writer
from rocketstore.log.index import store as index
from tests.support.small_store import dispatched, open_small


def test_newest_first_over_many_index_files(tmp_path: Path) -> None:
    """S001-49 S001-50: what was put is indexed in the background, with queue and key."""
    with open_small(tmp_path) as store:
        writer = store.writer("orders")
        for n in range(150):
            writer.put(b"%d" % n, keys=[f"k{n}", "all"])
        dispatched(store)
        assert len(list((tmp_path / "index").iterdir())) >= 4
        assert [m.body for m in store.query("orders", "all")] == [
            b"%d" % n for n in range(149, -1, -1)
        ]
        assert [m.body for m in store.query("orders", "k3")] == [b"3"]
        assert store.query("orders", "none") == store.query("other", "k3") == []
    with open_small(tmp_path, "r") as store:
        assert [m.body for m in store.query("orders", "k149")] == [b"149"]
        assert len(store.query("orders", "all", limit=64)) == 64


@pytest.mark.parametrize("gone", ["directory", "all files", "first", "middle", "last"])
def test_an_index_that_was_deleted_is_made_again(gone: str, tmp_path: Path) -> None:
    """Though the store was stopped cleanly and every position says that all is indexed."""
    with open_small(tmp_path) as store:
        writer = store.writer("orders")
        for n in range(150):
            writer.put(b"%d" % n, keys=f"k{n}")
    files = sorted((tmp_path / "index").iterdir())
    chosen = {"first": files[:1], "middle": files[1:2], "last": files[-1:]}.get(gone, files)
    for file in chosen:
        file.unlink()
    if gone == "directory":
        (tmp_path / "index").rmdir()
    for mode in ("r", "rw", "rw"):
        with open_small(tmp_path, mode) as store:
            for n in range(150):
                assert [m.body for m in store.query("orders", f"k{n}")] == [b"%d" % n]
            last = store.recovery
    assert (last.mode, last.scanned_records) == ("clean", 0)


def test_a_store_without_keys_opens_without_a_scan(tmp_path: Path) -> None:
    for _ in range(2):
        with open_small(tmp_path) as store:
            store.writer("orders").put(b"x")
    with open_small(tmp_path) as store:
        assert (store.recovery.mode, store.recovery.scanned_records) == ("clean", 0)


def test_unique_id_is_a_key(store: Store) -> None:
    store.put_message("orders", b"x", properties={"UNIQ_KEY": "u1", "KEYS": "u1 a"})
    dispatched(store)
    assert [m.body for m in store.query("orders", "u1")] == [b"x"]  # each once


def test_nothing_but_the_limit_bounds_a_query(store: Store) -> None:
    for n in range(100):
        store.writer("orders").put(b"%d" % n, keys="k")
    dispatched(store)
    assert len(store.query("orders", "k")) == 100
    assert len(store.query("orders", "k", limit=70)) == 70
    assert len(store.query("orders", "k", limit=1 << 40)) == 100


def test_pages_in_either_order_are_all_messages_once(
    tmp_path: Path, store: Store, writer: Writer
) -> None:
    """S001-50: some messages have the key twice, and pages end in the middle of index files."""
    offsets = [writer.put(b"x", keys=["k", "other", "k"]).physical_offset for _ in range(150)]
    writer.put(b"y", keys="other")
    dispatched(store)
    assert len(list((tmp_path / "index").iterdir())) >= 4
    with open_small(tmp_path, "r") as reader:
        for opened in (store, reader):
            for size in (1, 7, 64, 65, 1000):
                newest: list[int] = []
                while page := opened.query(
                    "orders", "k", limit=size, below=newest[-1] if newest else None
                ):
                    newest += [m.physical_offset for m in page]
                oldest: list[int] = []
                while page := opened.query(
                    "orders",
                    "k",
                    order="oldest",
                    limit=size,
                    above=oldest[-1] if oldest else None,
                ):
                    oldest += [m.physical_offset for m in page]
                assert newest[::-1] == oldest == offsets
            between = opened.query("orders", "k", above=offsets[3], below=offsets[7])
            assert [m.physical_offset for m in between] == offsets[6:3:-1]


def test_all_answers_are_a_lazy_sequence(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("orders")
        for n in range(150):
            writer.put(b"%d" % n, keys="k")
        dispatched(store)
        found = store.query("orders", "k")
        assert repr(found) == "<1 or more messages of 'orders' with key 'k'>"
        assert found and found[2].body == b"147"
        assert repr(found) == "<3 or more messages of 'orders' with key 'k'>"
        writer.put(b"later", keys="k")
        dispatched(store)
        assert [m.body for m in found[1:3]] == [b"148", b"147"]
        assert (found[-1].body, len(found), len(found[-3:])) == (b"0", 150, 3)
        assert repr(found) == "<150 messages of 'orders' with key 'k'>"
        assert [m.body for m in found] == [b"%d" % n for n in range(149, -1, -1)]
        assert len(pickle.loads(pickle.dumps(found))) == 150
        assert found != store.query("orders", "k") != []
        with pytest.raises(IndexError, match="message 150 of 150"):
            found[150]
        begun = store.query("orders", "k")
    with pytest.raises(StoreClosedError):
        len(begun)
    with pytest.raises(StoreClosedError):  # not an end of the answers
        list(begun)


@pytest.mark.parametrize(
    ("error", "match", "wrong"),
    [
        (ValueError, "limit = 0: 1 or more, or None for all", {"limit": 0}),
        (ValueError, "limit = -1", {"limit": -1}),
        (TypeError, "limit = '5'", {"limit": "5"}),
        (TypeError, "limit = True", {"limit": True}),
        (ValueError, "order = 'desc': 'newest' or 'oldest'", {"order": "desc"}),
        (ValueError, "order = None", {"order": None}),
        (ValueError, "below = -1", {"below": -1}),
        (TypeError, "below = 1.5", {"below": 1.5}),
        (TypeError, "above = 'x'", {"above": "x"}),
        (
            ValueError,
            "below = 5: no offset is below it and above above = 5",
            {"below": 5, "above": 5},
        ),
        (ValueError, "below = 5: no offset", {"below": 5, "above": 9, "order": "oldest"}),
    ],
)
def test_wrong_pages_are_refused(
    error: type[Exception], match: str, wrong: dict[str, Any], tmp_path: Path
) -> None:
    with open_small(tmp_path) as store, pytest.raises(error, match=match):
        store.query("orders", "k", **wrong)


def test_time_window(store: Store) -> None:
    stored = store.writer("orders").put(b"x", keys="k").store_timestamp_ms
    dispatched(store)
    when = datetime.datetime.fromtimestamp(stored / 1000, datetime.UTC)
    hour = datetime.timedelta(hours=1)
    assert store.query("orders", "k", begin=when - hour, end=when + hour)
    assert not store.query("orders", "k", begin=when + hour)
    assert not store.query("orders", "k", end=when - hour)


def test_hashes_that_collide_are_told_apart(store: Store) -> None:
    """K-59: RocketMQ's index holds no key: "Aa" and "BB" look alike there."""
    store.writer("orders").put(b"1", keys="Aa")
    store.writer("orders").put(b"2", keys="BB")
    dispatched(store)
    assert [m.body for m in store.query("orders", "Aa")] == [b"1"]
    assert [m.body for m in store.query("orders", "BB")] == [b"2"]


@pytest.mark.store(index_enabled=False)
def test_without_an_index(tmp_path: Path, store: Store) -> None:
    store.writer("orders").put(b"x", keys="k")
    dispatched(store)
    with pytest.raises(ConfigError, match="needs the index"):
        store.query("orders", "k")
    assert not list((tmp_path / "index").glob("*"))


def test_a_record_with_entries_in_two_files_hides_no_other(tmp_path: Path) -> None:
    """Its unique id is one of its keys, and the second of its entries found the file full."""
    options = {"index_entries": 64, "index_slots": 16, "commit_log_file_size_bytes": 1 << 18}
    with open_small(tmp_path, **options) as store:

        def put(**more: str) -> int:
            return store.put_message(
                "orders", b"x", properties={**more, "KEYS": "k"}
            ).physical_offset

        offsets = [put() for _ in range(62)]  # of 63 entries
        offsets.append(put(UNIQ_KEY="k"))
        offsets += [put() for _ in range(10)]
        dispatched(store)
        assert len(list((tmp_path / "index").iterdir())) == 2
        for limit in (1, 11, 12, 64, 73, 1000):
            found = [m.physical_offset for m in store.query("orders", "k", limit=limit)]
            assert found == offsets[::-1][:limit]


@pytest.mark.parametrize("live", [True, False], ids=["live", "stopped"])
def test_a_file_that_a_reader_cannot_open(
    live: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """It says so: an answer without that file's messages would look like a whole one."""

    def fail(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files", "index")

    store.writer("orders").put(b"x", keys="k")
    dispatched(store)
    if not live:
        store.close()
    with open_small(tmp_path, "r") as reader:
        monkeypatch.setattr(index, "open_segment", fail)
        with pytest.raises(ReadFailedError, match=r"key 'k' is not known.*Too many open files"):
            reader.query("orders", "k")
        monkeypatch.undo()
        assert [m.body for m in reader.query("orders", "k")] == [b"x"]


@pytest.mark.parametrize("size", [0, 40, 1000])
def test_a_file_that_another_program_cut(tmp_path: Path, size: int) -> None:
    """Nothing of it can be used: a reader makes the index again in memory, a writer on the disk."""
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x", keys="k")
    (file,) = (tmp_path / "index").iterdir()
    os.truncate(file, size)
    for mode in ("r", "r+", "r"):
        with open_small(tmp_path, mode) as store:
            assert [m.body for m in store.query("orders", "k")] == [b"x"]
    (made,) = (tmp_path / "index").iterdir()
    assert made.stat().st_size > 1000


def test_a_file_without_entries_is_missed_by_nobody(tmp_path: Path) -> None:
    """As RocketMQ makes one of any shape for messages without keys."""
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x", keys="k")
    header = bytes(36) + (1).to_bytes(4, "big")
    (tmp_path / "index" / "20991231235959999").write_bytes(header + bytes(100))
    with open_small(tmp_path, "r") as reader:
        assert [m.body for m in reader.query("orders", "k")] == [b"x"]
