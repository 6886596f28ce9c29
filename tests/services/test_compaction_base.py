"""A compaction that goes on from an earlier one: what stays, and which bases are refused."""

from __future__ import annotations

import json
import os
import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ConfigError, CorruptRecordError, Store, tools
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import checksum
from tests.services.compacting import NONE, SHAPE, fill_at_random, messages, put, rows
from tests.support.retention_tools import fill
from tests.support.small_store import SEGMENT, dispatched, open_small


def trimmed(store: Store) -> None:
    store.flush()
    dispatched(store)
    store.trim(before_offset=store.end_offset)


@pytest.mark.quick
def test_two_keys_survive_100_trims_and_compactions(tmp_path: Path) -> None:
    """Each compaction reads what the one before does not know, and the log is trimmed in between."""
    base: Path | None = None
    with open_small(tmp_path / "s") as store:
        put(store, b"once", "a")
        for n in range(100):
            put(store, b"%d" % n, "b")
            fill(store, 25)
            into = tmp_path / f"c{n}"
            report = store.compact("users", into=into, base=base)
            assert report.base == ("" if base is None else str(base))
            if base is not None:
                assert report.messages == 3
                shutil.rmtree(base)
            base = into
            store.retention.hold("compacted", report.end)
            trimmed(store)
        assert store.begin_offset > 80 * SEGMENT
    assert {one.keys[0]: one.body for one in messages(tmp_path / "c99")} == {
        "a": b"once",
        "b": b"99",
    }
    assert not tools.verify(tmp_path / "c99", **SHAPE).faults


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"keep_offsets": False}, {"without_key": "drop"}])
def test_in_steps_as_in_one(tmp_path: Path, seed: int, options: dict[str, Any]) -> None:
    """With tombstones, keys in several queues, and two topics."""
    rand, base, source = random.Random(seed), None, tmp_path / "s"
    for step in range(4):
        fill_at_random(source, 10 * seed + step)
        with open_small(source) as store:
            grace = timedelta(days=rand.randrange(2))
            into = tmp_path / f"c{step}"
            store.compact(["users", "other"], into=into, base=base, grace=grace, **options)
            base = into
    with open_small(source) as store:
        store.compact(["users", "other"], into=tmp_path / "last", base=base, grace=NONE, **options)
        store.compact(["users", "other"], into=tmp_path / "one", grace=NONE, **options)
    for topic in ("users", "other"):
        found, wanted = rows(tmp_path / "last", topic), rows(tmp_path / "one", topic)
        if "keep_offsets" in options:  # numbers of messages that went since are left out
            found, wanted = ([(r[0], *r[2:]) for r in some] for some in (found, wanted))
        assert found == wanted
    assert not tools.verify(tmp_path / "last", **SHAPE).faults


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A store, `s`, and what was compacted of it, `base`."""
    fill_at_random(tmp_path / "s", 1)
    with open_small(tmp_path / "s") as store:
        store.compact("users", into=tmp_path / "base")
    return tmp_path


def refused(root: Path, why: str, source: str = "s", **options: Any) -> None:
    before = sorted(os.listdir(root))
    with open_small(root / source, **options.pop("open", {})) as store:
        given = {"into": root / "new", "base": root / "base", **options}
        topics = given.pop("topics", "users")
        with pytest.raises(ConfigError, match=why):
            store.compact(topics, **given)
    assert sorted(os.listdir(root)) == before


def test_a_base_of_something_else(made: Path) -> None:
    fill_at_random(made / "t", 1)
    refused(made, "made of another store", source="t")
    refused(made, r"of the topics \['users'\]", topics="other")
    refused(made, r"of the topics \['users'\]", topics=["users", "other"])
    refused(made, "keep_offsets=True", keep_offsets=False)
    refused(made, "no store that compact made", base=made / "t")
    refused(made, "no store that compact made", base=made / "s")
    refused(made, "outside of the store that is read", into=made / "base" / "x")
    with open_small(made / "s") as store:
        with pytest.raises((ConfigError, FileNotFoundError)):
            store.compact("users", into=made / "new", base=made / "nothing")
        with pytest.raises(TypeError):
            store.compact("users", into=made / "new", base=7)  # type: ignore[arg-type]


def test_a_base_that_was_changed(made: Path) -> None:
    with open_small(made / "base") as store:
        put(store, b"later", "a")
    refused(made, "it was changed since")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '{"version": 1}', '{"version": 2}'),
        '{"version": 1, "source": [0], "made": [0, 0]}',
        '{"version": 1, "source": [-1, 0], "made": [0, 0]}',
    ],
)
def test_a_base_that_does_not_say_what_it_is(made: Path, text: str) -> None:
    StoreLayout(made / "base").compacted.write_text(text)
    refused(made, "rocketstore/compacted.json in it is damaged")


@pytest.mark.parametrize("name", ["source", "made"])
def test_a_base_that_lies(made: Path, name: str) -> None:
    """With a right checksum."""
    path = StoreLayout(made / "base").compacted
    found = json.loads(path.read_text())
    del found["crc"]
    found[name][1] ^= 1
    path.write_text(json.dumps({**found, "crc": checksum(found)}))
    refused(made, "changed since" if name == "made" else "lost its end")
    found[name] = [found[name][0] + (1 << 40), 7]
    path.write_text(json.dumps({**found, "crc": checksum(found)}))
    refused(made, "changed since" if name == "made" else "lost its end")


@pytest.mark.parametrize("at", [4, 28, 88])
def test_a_damaged_base(made: Path, at: int) -> None:
    """A record that cannot be believed is no message that went: magic, place, body."""
    log = StoreLayout(made / "base").commit_log
    path = min(log.iterdir())
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with open_small(made / "s") as store, pytest.raises((CorruptRecordError, ConfigError)):
        store.compact("users", into=made / "new", base=made / "base")
    assert sorted(os.listdir(made)) == ["base", "s"]


def test_a_gap_between_base_and_log(made: Path) -> None:
    """A tombstone may have been there, so what the base has may be dead. A hold would have kept it."""
    with open_small(made / "s") as store:
        fill(store)
        trimmed(store)
    refused(made, "retention.hold keeps what a base lacks")


def test_a_log_that_lost_its_end(made: Path, tmp_path: Path) -> None:
    """And grew again: the base has messages that are in no log."""
    shutil.copytree(made / "s", made / "older")
    with open_small(made / "s") as store:
        put(store, b"lost", "a")
        dispatched(store)
        store.compact("users", into=made / "late")
    shutil.rmtree(made / "s")
    (made / "older").rename(made / "s")
    refused(made, "lost its end", base=made / "late")
    with open_small(made / "s") as store:
        fill(store)
    refused(made, "lost its end", base=made / "late")
    with open_small(made / "s") as store:  # this one is still right
        store.compact("users", into=made / "new", base=made / "base")


def test_nothing_new(made: Path) -> None:
    with open_small(made / "s") as store:
        report = store.compact("users", into=made / "new", base=made / "base", grace=NONE)
        assert report.begin <= report.end
        store.compact("users", into=made / "one", grace=NONE)
    assert rows(made / "new") == rows(made / "one")


def test_an_empty_base(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put(store, b"", "a")
        dispatched(store)
        store.compact("users", into=tmp_path / "base", grace=NONE)
        put(store, b"1", "a")
        dispatched(store)
        store.compact("users", into=tmp_path / "new", base=tmp_path / "base")
    assert [one.body for one in messages(tmp_path / "new")] == [b"1"]
