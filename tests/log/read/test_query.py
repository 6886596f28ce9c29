"""Messages by key: what the index proposes is proven by the records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Message
from rocketstore.errors import CorruptRecordError, ReadFailedError, StoreClosedError
from rocketstore.log.follow.follower import Follower
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.query import KeyIndex, KeyQuery, query_by_key
from rocketstore.log.read.reader import Reader
from tests.support.made_store import MadeStore, rocketmq_store

FIRST_MS = 1_700_000_000_000


class ProposedOffsets:
    """An index that proposes what it is told to, as damage and hash collisions would."""

    def __init__(self, offsets: Sequence[int]) -> None:
        self.offsets = sorted(offsets, reverse=True)

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, /, *, newest: bool
    ) -> Iterator[int]:
        return iter(self.offsets if newest else reversed(self.offsets))


def asked(
    reader: Reader, index: KeyIndex, topic: str, key: str, limit: int | None = None, **more: Any
) -> list[Message]:
    found = query_by_key(reader, index, KeyQuery(topic, key, **more))
    return list(itertools.islice(found, limit))


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path / "store", segment_size=1 << 20)


@pytest.fixture
def reader(made: MadeStore) -> Iterator[Reader]:
    """Opened by the first use: the segments have to be there."""
    source = Follower(StoreLayout(made.root), verify=3)
    yield Reader(source)
    source.close()


@pytest.mark.parametrize("name", ["clean-498", "clean-533", "expired-498"])
def test_every_key_that_rocketmq_indexed_is_found(name: str, tmp_path: Path) -> None:
    """The newest 64 of each key, newest first, in files of RocketMQ's own making."""
    root, expected = rocketmq_store(name, tmp_path)
    layout = StoreLayout(root)
    index = IndexStore(layout, "read", 64, 300)
    index.load()
    source = Follower(layout, verify=3)
    for topic, key, offsets in expected["must"]["index"]:
        found = asked(Reader(source), index, topic, key, limit=64)
        assert [m.physical_offset for m in found] == sorted(offsets, reverse=True)[:64], key
    source.close()
    index.close()


def test_only_messages_with_the_key_are_answers(made: MadeStore, reader: Reader) -> None:
    wanted = made.put(keys=["Aa"])
    also = made.put(properties={"UNIQ_KEY": "Aa"})
    made.put(keys=["BB"])
    made.put("payments", keys=["Aa"])
    made.put(keys=["Aa-1", "AaA"])
    index = ProposedOffsets([record.physical_offset for record in made.records])
    found = asked(reader, index, "orders", "Aa")
    assert [m.physical_offset for m in found] == [also.physical_offset, wanted.physical_offset]


def test_entries_that_lead_nowhere_are_no_answers(made: MadeStore, reader: Reader) -> None:
    record = made.put(keys=["k"])
    index = ProposedOffsets([-5, 0, 1, 17, made.end, 1 << 19, 1 << 40])
    told: list[CorruptRecordError] = []
    found = list(query_by_key(reader, index, KeyQuery("orders", "k"), told.append))
    assert [m.physical_offset for m in found] == [record.physical_offset]
    assert [error.physical_offset for error in told if error.reason == "end"] == [1 << 40]
    with pytest.raises(ReadFailedError, match="beyond the log"):
        asked(reader, index, "orders", "k")
    sound = ProposedOffsets([-5, 0, 1, 17])
    assert [m.physical_offset for m in asked(reader, sound, "orders", "k")] == [0]


def test_an_offset_that_is_proposed_twice_is_one_answer(made: MadeStore, reader: Reader) -> None:
    made.put(keys=["k"])
    assert len(asked(reader, ProposedOffsets([0, 0, 0]), "orders", "k")) == 1


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "expected"),
    [
        (None, None, [4, 3, 2, 1, 0]),
        (FIRST_MS + 1000, None, [4, 3, 2, 1]),
        (FIRST_MS + 1001, FIRST_MS + 3000, [3, 2]),
        (None, FIRST_MS - 1, []),
        (FIRST_MS + 2000, FIRST_MS + 2000, [2]),
    ],
)
def test_the_window_is_that_of_the_records_own_times(
    made: MadeStore, reader: Reader, begin_ms: Any, end_ms: Any, expected: list[int]
) -> None:
    for number in range(5):
        made.put(keys=["k"], store_ms=FIRST_MS + 1000 * number)
    index = ProposedOffsets([record.physical_offset for record in made.records])
    window = {"begin_ms": begin_ms, "end_ms": end_ms}
    given = {name: value for name, value in window.items() if value is not None}
    found = asked(reader, index, "orders", "k", **given)
    assert [m.queue_offset for m in found] == expected


def test_the_limit_counts_answers_not_candidates(made: MadeStore, reader: Reader) -> None:
    """Other keys of the same hash do not use the limit up."""
    for number in range(1000):
        made.put(keys=["rare" if number % 400 == 0 else "other"])
    index = ProposedOffsets([record.physical_offset for record in made.records])
    found = asked(reader, index, "orders", "rare", limit=3)
    assert [m.queue_offset for m in found] == [800, 400, 0]
    assert [m.queue_offset for m in asked(reader, index, "orders", "rare", limit=1)] == [800]


def test_a_damaged_answer_is_left_out_with_a_warning(
    made: MadeStore, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    record = made.put(keys=["k"])
    whole = made.put(keys=["k"])
    made.write_log(record.physical_offset + 88, b"\xff")
    index = ProposedOffsets([r.physical_offset for r in made.records])
    found = asked(reader, index, "orders", "k")
    assert [message.physical_offset for message in found] == [whole.physical_offset]
    assert "body crc" in caplog.text


@pytest.mark.parametrize(("at", "reason"), [(88, "body crc"), (4, "magic")])
def test_whoever_asks_is_told_of_a_damaged_answer(
    made: MadeStore, reader: Reader, at: int, reason: str
) -> None:
    """Even where its frame is what is damaged, and no record can be believed there."""
    record = made.put(keys=["k"])
    whole = made.put(keys=["k"])
    made.write_log(record.physical_offset + at, b"\xff")
    index = ProposedOffsets([r.physical_offset for r in made.records])
    told: list[CorruptRecordError] = []
    found = list(query_by_key(reader, index, KeyQuery("orders", "k"), told.append))
    assert [message.physical_offset for message in found] == [whole.physical_offset]
    assert [(error.physical_offset, error.reason) for error in told] == [
        (record.physical_offset, reason)
    ]


def test_damage_to_another_record_is_not(made: MadeStore, reader: Reader) -> None:
    record = made.put(keys=["other"])
    made.put(keys=["k"])
    made.write_log(record.physical_offset + 88, b"\xff")
    index = ProposedOffsets([r.physical_offset for r in made.records])
    assert len(asked(reader, index, "orders", "k")) == 1


def test_a_closed_store_answers_nothing(made: MadeStore, reader: Reader) -> None:
    made.put(keys=["k"])
    reader.source.close()  # type: ignore[attr-defined]
    with pytest.raises(StoreClosedError):
        asked(reader, ProposedOffsets([0]), "orders", "k")
