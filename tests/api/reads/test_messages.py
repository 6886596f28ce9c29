"""What a message shows, as the store gives it: get, equality, pickling, checksums."""

from __future__ import annotations

import copy
import datetime
import pickle
from pathlib import Path

import pytest

from rocketstore import (
    CorruptRecordError,
    Message,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    Store,
)
from tests.support.made_store import write_at
from tests.support.small_store import SEGMENT, dispatched, everything, open_small


def test_every_field(tmp_path: Path) -> None:
    born = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=datetime.UTC)
    with open_small(tmp_path, store_host="[::1]:99") as store:
        result = store.put_message(
            "orders", b"body", queue_id=9, properties={"TAGS": "t", "KEYS": "a b", "UNIQ_KEY": "u"},
            flag=-5, born_time=born, born_host="[fe80::1]:1", reconsume_times=4,
            prepared_transaction_offset=77,
        )  # fmt: skip
        message = store.get(result.physical_offset)
    assert (message.topic, message.queue_id, message.body) == ("orders", 9, b"body")
    assert (message.tags, message.keys, message.unique_id) == ("t", ("a", "b"), "u")
    assert (message.flag, message.reconsume_times, message.prepared_transaction_offset) == (
        -5,
        4,
        77,
    )
    assert message.born_time == born
    assert message.message_id == result.message_id
    assert len(message.message_id) == 56  # an IPv6 store host
    assert (message.size, message.physical_offset) == (result.size, result.physical_offset)


def test_equality_pickle_bytes(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        result = store.writer("orders").put(b"body", tags="t")
        first, second = store.get(result.physical_offset), store.get(result.physical_offset)
    assert first == second == pickle.loads(pickle.dumps(first)) == copy.deepcopy(first)
    assert hash(first) == hash(second)
    assert Message.from_bytes(bytes(first)) == first
    with pytest.raises(CorruptRecordError):
        Message.from_bytes(bytes(first) + b"\0")


def test_get_needs_the_start_of_a_record(store: Store) -> None:
    """S001-66: the file is found by the offset, the record at offset mod size."""
    results = [store.writer("orders").put(b"%d" % n * 200) for n in range(30)]
    for n, result in enumerate(results):
        assert store.get(result.physical_offset).body == b"%d" % n * 200
    for wrong in (1, results[1].physical_offset + 4, SEGMENT - 8):
        with pytest.raises((MessageNotFoundError, CorruptRecordError)):
            store.get(wrong)
    for outside in (-1, store.end_offset, 1 << 50):
        with pytest.raises(OffsetOutOfRangeError):
            store.get(outside)


@pytest.mark.store(durability="os")
def test_damage_is_not_served(tmp_path: Path, store: Store) -> None:
    """K-17 K-18: the record CRC covers header, topic and properties too."""
    result = store.writer("orders").put(b"body", properties={"price": "100"})
    assert store.get(result.physical_offset).properties == {"price": "100"}
    data = (tmp_path / "commitlog" / ("0" * 20)).read_bytes()
    write_at(tmp_path / "commitlog" / ("0" * 20), data.index(b"100"), b"900")
    with pytest.raises(CorruptRecordError):
        store.get(result.physical_offset)


def test_order_of_a_queue_is_order_of_the_log(store: Store) -> None:
    for n in range(50):
        store.writer("orders", queue_id=n % 3).put(b"%d" % n)
    messages = everything(dispatched(store))
    for queue_id in range(3):
        own = [m for m in messages if m.queue_id == queue_id]
        assert [m.queue_offset for m in own] == list(range(len(own)))
        assert [m.physical_offset for m in own] == sorted(m.physical_offset for m in own)
