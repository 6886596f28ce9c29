"""Tags of messages in the key index, as RocketMQ writes them since 5.4."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store, tools
from rocketstore._native.format import index_file
from rocketstore.log.index.store import IndexStore, hash_of
from rocketstore.log.layout.paths import StoreLayout
from tests.support.small_store import SMALL, dispatched, everything, open_small

SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}


def entries(root: Path) -> list[tuple[int, int]]:
    """(hash, physical offset) of all entries, in the order of the files."""
    index = IndexStore(StoreLayout(root), "read", SMALL["index_slots"], SMALL["index_entries"])
    index.load()
    try:
        return [
            index_file.entry(segment.file, *segment.shape, number)[:2]
            for segment in index.files
            for number in range(1, segment.header().index_count)
        ]
    finally:
        index.close()


def put_tagged(store: rocketstore.Store, count: int = 90) -> None:
    """Every third message without tags, every fifth without keys; the unique id is a key, too."""
    writer = store.writer("orders")
    for n in range(count):
        more: dict[str, Any] = {"tags": f"tag{n % 4}"} if n % 3 else {}
        if n % 5:
            more["keys"] = (f"key{n}", "all")
        writer.put(b"%d" % n, **more)


def expected(root: Path, *, tags: bool) -> list[tuple[int, int]]:
    """What RocketMQ's index has: unique id, words of the keys, then the tags, record by record."""
    found = []
    with open_small(root, "r") as store:
        messages = sorted(everything(store), key=lambda message: message.physical_offset)
    for message in messages:
        texts = [text for text in (message.unique_id, *message.keys) if text]
        if tags and message.tags:
            texts.append(f"T#{message.tags}")
        found += [(hash_of(message.topic, text), message.physical_offset) for text in texts]
    return found


def made(root: Path, **options: Any) -> None:
    with open_small(root, **options) as store:
        put_tagged(store)


def taken_over(root: Path) -> None:
    """The store as another program leaves it, which knows nothing of ours."""
    shutil.rmtree(root / "rocketstore")
    (root / "lock").write_bytes(b"lock")


def remembered(root: Path) -> object:
    return json.loads((root / "rocketstore" / "store.json").read_text()).get("index_tags")


@pytest.mark.parametrize("tags", [True, False, None])
def test_an_entry_for_the_tags_follows_those_of_the_keys(tags: bool | None, tmp_path: Path) -> None:
    made(tmp_path, index_tags=tags)
    assert entries(tmp_path) == expected(tmp_path, tags=bool(tags))
    assert not tools.verify(tmp_path, **SHAPE).faults
    assert remembered(tmp_path) is tags


@pytest.mark.parametrize("ours", [True, False])
def test_an_open_goes_on_as_the_store_has_it(ours: bool, tmp_path: Path) -> None:
    made(tmp_path, index_tags=True)
    if not ours:
        taken_over(tmp_path)
    with open_small(tmp_path) as store:
        assert store.config.index_tags is True
        put_tagged(store, 40)
    assert entries(tmp_path) == expected(tmp_path, tags=True)
    assert remembered(tmp_path) is True


def test_what_was_given_is_kept_against_what_stands_there(tmp_path: Path) -> None:
    made(tmp_path, index_tags=True)
    with open_small(tmp_path, index_tags=False) as store:
        put_tagged(store, 10)
    with open_small(tmp_path) as store:
        assert store.config.index_tags is False
    assert not tools.verify(tmp_path, **SHAPE).faults


@pytest.mark.parametrize("how", ["rebuild", "directory", "last file", "crash"])
def test_an_index_that_is_made_again_has_them(how: str, tmp_path: Path) -> None:
    made(tmp_path, index_tags=True)
    taken_over(tmp_path)
    if how == "rebuild":
        assert tools.rebuild(tmp_path, **SMALL)
    elif how == "directory":  # nothing tells but the directory that RocketMQ makes since 5.4
        (tmp_path / "rocksdbstore").mkdir()
        shutil.rmtree(tmp_path / "index")
    elif how == "last file":
        max((tmp_path / "index").iterdir()).unlink()
    else:
        (tmp_path / "abort").touch()
    with open_small(tmp_path):
        pass
    assert entries(tmp_path) == expected(tmp_path, tags=True)
    assert not tools.verify(tmp_path, **SHAPE).faults
    assert (tmp_path / "rocksdbstore").is_dir() == (how == "directory")


def test_a_broker_that_was_upgraded_is_noticed(tmp_path: Path) -> None:
    """We wrote last without tags; then a RocketMQ 5.4 wrote: the newest entries count."""
    made(tmp_path, index_tags=False)
    with open_small(tmp_path, index_tags=True) as store:
        put_tagged(store, 30)
    path = tmp_path / "rocketstore" / "store.json"
    path.write_text(path.read_text().replace('"index_tags": true', '"index_tags": false'))
    (tmp_path / "lock").write_bytes(b"lock")
    with open_small(tmp_path) as store:
        assert store.config.index_tags is True


@pytest.mark.store(index_tags=True)
def test_a_key_that_looks_like_an_entry_of_tags_is_held_against_the_record(
    store: Store, writer: rocketstore.Writer
) -> None:
    writer.put(b"tagged", tags="paid")
    writer.put(b"keyed", keys="T#paid")
    dispatched(store)
    assert [m.body for m in store.query("orders", "T#paid")] == [b"keyed"]


@pytest.mark.parametrize("kind", [4, 8, 12])
def test_a_rolled_back_message_gets_no_entry(kind: int, tmp_path: Path) -> None:
    with open_small(tmp_path, index_tags=True) as store:
        store.put_message("orders", b"x", properties={"TAGS": "paid"}, sys_flag=kind)
        store.put_message("orders", b"y", properties={"KEYS": "k"})
    found = [key_hash for key_hash, _ in entries(tmp_path)]
    assert (hash_of("orders", "T#paid") in found) == (kind != 12)
    assert hash_of("orders", "T#") not in found


def test_the_option_takes_three_values() -> None:
    with pytest.raises(rocketstore.ConfigError, match="index_tags = 1: must be True, Fa"):
        rocketstore.StoreConfig(index_tags=1)  # type: ignore[arg-type]
