"""`where` in consumers and scans: what they give, and how far they are."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import FilterSyntaxError, Message, Store, StoreClosedError
from rocketstore.consuming import cursors
from rocketstore.filters import sql_filter
from rocketstore.scanning.delivered import NEEDED, messages_in
from tests.support.batch_store import TOPIC, BatchStore
from tests.support.small_store import open_small

COUNT = 2000
#: Each with the messages that it takes, by a condition of Python.
CASES: dict[str, Any] = {
    "price > 1900": lambda p: int(p["price"]) > 1900,
    "price BETWEEN 10 AND 19 AND region = 'eu'": lambda p: (
        9 < int(p["price"]) < 20 and p.get("region") == "eu"
    ),
    "region IS NULL": lambda p: "region" not in p,
    "region <> 'eu'": lambda p: p.get("region", "eu") != "eu",
    "weight < 3.5 OR price = 5": lambda p: float(p["weight"]) < 3.5 or p["price"] == "5",
    "(price = 5) = TRUE": lambda p: p["price"] == "5",  # native code asks
    "no = 1": lambda p: False,
    "TAGS IN ('a', 'c') AND KEYS CONTAINS '7'": lambda p: p["TAGS"] in "ac" and "7" in p["KEYS"],
}


def properties_of(number: int) -> dict[str, str]:
    found = {"price": str(number), "weight": f"{number / 7:.3f}"}
    return found if number % 3 == 0 else {**found, "region": ("eu", "us")[number % 2]}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("where")
    with open_small(root, durability="os", commit_log_file_size_bytes=1 << 16) as store:
        writer = store.writer("t", queues=3)
        for n in range(COUNT):
            writer.put(b"%d" % n, tags="abc"[n % 3], keys=f"k{n}", properties=properties_of(n))
        store.writer("other").put(b"other", properties={"price": "1950", "weight": "0"})
    return root


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with rocketstore.open(root, "r") as store:
        yield store


def wanted(where: str) -> set[int]:
    every = {n: {**properties_of(n), "TAGS": "abc"[n % 3], "KEYS": f"k{n}"} for n in range(COUNT)}
    return {n for n, properties in every.items() if CASES[where](properties)}


def numbers(messages: Any) -> list[int]:
    return sorted(int(message.body) for message in messages)


@pytest.mark.parametrize("where", CASES)
def test_consumers(where: str, store: Store) -> None:
    consumer = store.consumer("t", where=where)
    assert numbers(consumer) == sorted(wanted(where))
    assert consumer.lag() == 0
    assert sum(consumer.positions.values()) == COUNT


@pytest.mark.parametrize("where", CASES)
@pytest.mark.parametrize("most", [1, 7, 1000])
def test_polls(where: str, most: int, store: Store) -> None:
    consumer = store.consumer("t", where=where)
    found: list[Message] = []
    while consumer.lag():  # a poll that passes over many messages may come back with none
        batch = consumer.poll(most)
        assert len(batch) <= most
        found += batch
    assert numbers(found) == sorted(wanted(where))
    by_queue = [[m.queue_offset for m in found if m.queue_id == n] for n in range(3)]
    assert by_queue == [sorted(offsets) for offsets in by_queue]


@pytest.mark.parametrize("where", CASES)
@pytest.mark.parametrize("columns", [["body"], None, ["queue_offset", "body_view"]])
def test_scans(where: str, columns: list[str] | None, root: Path, store: Store) -> None:
    for source in (root, store):
        scan = rocketstore.scan(source, where=where, columns=columns, topics="t")
        assert scan.filter.where == where
        for read in (scan, pickle.loads(pickle.dumps(scan))):
            bodies = [
                bytes(body)
                for chunk in read
                for body in chunk["body" if "body" in chunk else "body_view"].tolist()
            ]
            assert sorted(map(int, bodies)) == sorted(wanted(where))
        parts = scan.split(1 << 16)
        assert len(parts) > 1
        assert sum(chunk.rows for part in parts for chunk in part) == len(wanted(where))


def test_columns_of_polls(store: Store) -> None:
    where = "price > 1900"
    consumer = store.consumer("t", where=where)
    found: list[int] = []
    while consumer.lag():
        columns = consumer.poll_columns(50, columns=["body"])
        assert columns.rows <= 50
        found += map(int, columns["body"].tolist())
    assert sorted(found) == sorted(wanted(where))


def test_with_tags(root: Path, store: Store) -> None:
    both = {n for n in wanted("price > 1900") if n % 3 == 0}
    assert set(numbers(store.consumer("t", where="price > 1900", tags="a"))) == both
    scan = rocketstore.scan(root, where="price > 1900", tags="a", topics="t", columns=["body"])
    assert {int(body) for chunk in scan for body in chunk["body"].tolist()} == both


def test_commits_pass_over_what_does_not_match(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("t")
        for n in range(30):
            writer.put(b"%d" % n, properties={"n": str(n)})
        with store.consumer("t", group="g", where="n = 5 OR n = 20") as consumer:
            (first,) = consumer.poll(1)
            assert first.body == b"5"
            assert consumer.commit() == {0: 10}  # what it has looked at
        with store.consumer("t", group="g", where="n = 5 OR n = 20") as consumer:
            assert [m.body for m in consumer] == [b"20"]
            assert consumer.commit() == {0: 30}
        with store.consumer("t", group="g", where="n = 100") as consumer:
            writer.put(b"30", properties={"n": "30"})
            assert consumer.poll() == []
            assert consumer.commit() == {0: 31}
        with store.consumer("t", group="g") as consumer:
            assert list(consumer) == []


def test_a_poll_that_passes_over_many_has_a_bound(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives none, stands further, and goes on from there; iterating does not end early."""
    monkeypatch.setattr(cursors, "PASSING_S", 0.0)
    monkeypatch.setattr(cursors, "FILTERED", 20)
    consumer = store.consumer("t", queue_id=0, where="price > 1900")
    assert consumer.poll() == []
    assert consumer.statuses == {0: "FOUND"}
    assert 0 < consumer.positions[0] < 100
    assert consumer.lag() > 500
    polls = 0
    while not (found := consumer.poll(1)) and consumer.lag():
        polls += 1
    assert polls > 10
    assert int(found[0].body) > 1900
    assert len(found) == 1
    expected = sorted(n for n in wanted("price > 1900") if n % 3 == 0)
    assert numbers(store.consumer("t", queue_id=0, where="price > 1900")) == expected
    assert next(store.consumer("t", queue_id=0, where="price > 1900")).body == b"1902"
    following = store.consumer("t", where="price > 1900").follow(timeout_s=0.0)
    assert len(list(following)) == 99
    waiting = store.consumer("t", where="price > 1900")
    assert len(waiting.poll(1, timeout_s=None)) == 1
    assert waiting.poll_columns(200, timeout_s=5.0).rows > 0


def test_a_poll_with_time_uses_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "PASSING_S", 0.0)
    monkeypatch.setattr(cursors, "FILTERED", 20)
    consumer = store.consumer("t", where="price = 1999")
    assert [m.body for m in consumer.poll(timeout_s=10.0)] == [b"1999"]
    began = time.monotonic()
    assert consumer.poll(timeout_s=0.3) == []
    assert 0.25 < time.monotonic() - began < 5


def test_closed_while_it_passes_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "PASSING_S", 0.0)
    consumer = store.consumer("t", where="no = 1")
    real = type(consumer._cursors).fill

    def fill(self: Any, limit: int) -> bool:
        found = real(self, limit)
        self.passing = True
        consumer._closed = True
        return found

    monkeypatch.setattr(type(consumer._cursors), "fill", fill)
    with pytest.raises(StoreClosedError):
        list(consumer)


def test_follow_waits_for_what_matches(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer, consumer = store.writer("t"), store.consumer("t", where="n > 1")
        following = consumer.follow(timeout_s=20.0)
        for n in range(3):
            writer.put(b"%d" % n, properties={"n": str(n)})
        assert next(following).body == b"2"


def test_nothing_is_made_of_a_wrong_expression(root: Path, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for wrong in ("n >", ""):
            with pytest.raises(FilterSyntaxError):
                store.consumer("t", group="g", where=wrong)
        for strange in (5, b"n = 1", ["n = 1"]):
            with pytest.raises(TypeError, match="where"):
                store.consumer("t", group="g", where=strange)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="where"):
                rocketstore.scan(root, where=strange)  # type: ignore[arg-type]
        store.consumer("t", group="g").close()  # nobody owns the group
    with pytest.raises(FilterSyntaxError):
        rocketstore.scan(root, where="n >")


def test_messages_of_inner_batches(tmp_path: Path) -> None:
    """Each has properties of its own; a record of several comes whole in a plain scan."""
    made = BatchStore(tmp_path)
    made.fill_batches(10)
    parts = [(body, properties) for _, batch in made.batches for body, properties in batch]
    for where in ("n = 2", "n >= 1 AND TAGS <> 'c'", "n IS NULL", "(n = 2) = TRUE"):
        matches = sql_filter(where).matches
        expected = [body for body, properties in parts if matches(properties)]
        with open_small(made.root, "r") as store:
            assert [m.body for m in store.consumer(TOPIC, where=where)] == expected
        scan = rocketstore.scan(made.root, columns=["body", *NEEDED], topics=TOPIC, where=where)
        found = [body for chunk, _ in messages_in(scan) for body in chunk["body"].tolist()]
        assert found == expected
        assert sum(chunk.rows for chunk in scan) == len(made.batches)


def test_threads_that_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketstore.scanning import parallel

    monkeypatch.setattr(parallel, "PART_BYTES", 1 << 16)
    with rocketstore.open(tmp_path, durability="os") as store:
        writer = store.writer("t")
        for n in range(3000):
            writer.put(b"x" * 100, properties={"n": str(n), "of": "many"})
        for where, rows in (("n >= 1000", 2000), ("n = 5.0 OR (7 = n) = TRUE", 2)):
            scan = rocketstore.scan(store, where=where, threads=4, chunk_bytes=1 << 14)
            found = [p["n"] for chunk in scan for p in chunk["properties"].tolist()]
            assert len(found) == rows
            assert found == sorted(found, key=int)


def test_a_message_that_a_trim_took(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("t")
        for n in range(60):
            writer.put(b"x" * 200, properties={"n": str(n)})
        consumer = store.consumer("t", where="n > 50")
        store.trim(before_offset=store.visible_offset - 8192)
        assert [m.properties["n"] for m in consumer] == [str(n) for n in range(51, 60)]
