"""Reading queues: the statuses of RocketMQ, the filter, damage, and single records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format.codec import tags_code
from rocketstore.errors import (
    CorruptRecordError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    StoreClosedError,
)
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.multi_dispatch import offset_in_queue
from rocketstore.log.read.reader import Reader
from tests.support.made_store import PRE_BLANK, MadeStore, rocketmq_store, vectors, write_files

BOTH_CHECKSUMS = 3
VECTORS = vectors()


class Opened:
    """Readers over stores that nobody writes."""

    def __init__(self) -> None:
        self._sources: list[Follower] = []

    def __call__(self, root: Path) -> Reader:
        source = Follower(StoreLayout(root), verify=BOTH_CHECKSUMS)
        self._sources.append(source)
        return Reader(source)

    def close(self) -> None:
        for source in self._sources:
            source.close()


@pytest.fixture
def reader_of() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    opened.close()


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path / "store")


def everything(reader: Reader, topic: str, queue_id: int) -> list[Any]:
    """All messages of a queue, by following next offsets from the minimum on."""
    found = []
    offset, maximum = reader.bounds(topic, queue_id)
    while offset < maximum:
        messages, following, _ = reader.fetch(topic, queue_id, offset, 32)
        assert following > offset
        found += messages
        offset = following
    return found


MINI_READS = [
    pytest.param(row, id=f"{row['topic']}-{row['queue_offset']}-{row['max_messages']}")
    for row in VECTORS["mini_store"]["reads"]
]


@pytest.mark.parametrize("row", MINI_READS)
def test_statuses_and_next_offsets_are_those_of_rocketmq(
    row: dict[str, Any], tmp_path: Path, reader_of: Opened
) -> None:
    """S003-09: except that looking an unknown queue up does not create it, so that it says so."""
    write_files(tmp_path, VECTORS["mini_store"]["files"])
    found = reader_of(tmp_path).fetch(row["topic"], 0, row["queue_offset"], row["max_messages"])
    status = row["status"] if row["topic"] == "T1" else "NO_MATCHED_LOGIC_QUEUE"
    assert found.status == status
    assert found.next_offset == row["next_offset"]
    assert [message.queue_offset for message in found.messages] == row["found"]


def test_behind_pre_blanks_the_first_message_is_the_minimum(
    tmp_path: Path, reader_of: Opened
) -> None:
    """RocketMQ answers minimum 0 where the log begins at 0, and then skips messages (format 6.3)."""
    for number, row in enumerate(VECTORS["pre_blank"]):
        root = tmp_path / str(number)
        write_files(root, row["log"] | row["queue"])
        reader = reader_of(root)
        assert reader.bounds("T1", 0) == (10, row["max"])
        assert reader.fetch("T1", 0, 0, 32)[1:] == (10, "OFFSET_TOO_SMALL")
        first = reader.fetch("T1", 0, 10, 32)
        assert [message.queue_offset for message in first.messages] == list(range(10, 20))
        assert first.next_offset == 20


STOPPED_CLEANLY = [
    "batches-498",
    "batches-533",
    "clean-498",
    "clean-533",
    "delay-transactions-498",
    "expired-498",
    "ipv6-533",
    "light-queues-533",
    "long-topics-533",
    "record-crc-533",
]


@pytest.mark.parametrize("name", STOPPED_CLEANLY)
def test_every_message_that_rocketmq_serves_is_served(
    name: str, tmp_path: Path, reader_of: Opened
) -> None:
    """S001-08 S001-09: queue offset n is unit n of its queue; nothing is missing, nothing is more."""
    root, expected = rocketmq_store(name, tmp_path)
    reader = reader_of(root)
    served = [
        [topic, queue_id, offset_in_queue(message, topic, queue_id), message.physical_offset]
        for topic in reader.source.topics()
        for queue_id in reader.source.queues(topic)
        for message in everything(reader, topic, queue_id)
    ]
    assert sorted(served) == sorted(row[:4] for row in expected["must"]["slots"])


def test_an_empty_queue_directory_is_a_queue_without_messages(
    made: MadeStore, reader_of: Opened
) -> None:
    (made.root / "consumequeue" / "orders" / "0").mkdir(parents=True)
    reader = reader_of(made.root)
    assert reader.fetch("orders", 0, 0, 32) == ([], 0, "NO_MESSAGE_IN_QUEUE")
    assert reader.fetch("orders", 0, 7, 32) == ([], 0, "NO_MESSAGE_IN_QUEUE")


@pytest.mark.parametrize("topic", ["../orders", "a/b", "", ".", "x" * 300, "é"])
def test_a_name_that_is_no_topic_has_no_queue(
    topic: str, made: MadeStore, reader_of: Opened
) -> None:
    assert reader_of(made.root).fetch(topic, 0, 0, 1).status == "NO_MATCHED_LOGIC_QUEUE"


def test_the_filter_takes_units_by_their_code(made: MadeStore, reader_of: Opened) -> None:
    made.fill(9)
    paid = frozenset([tags_code("paid")])
    messages, following, status = reader_of(made.root).fetch("orders", 0, 0, 32, paid)
    assert [message.queue_offset for message in messages] == [0, 3, 6]
    assert (following, status) == (9, "FOUND")


def test_a_filter_stops_behind_the_last_message_it_may_take(
    made: MadeStore, reader_of: Opened
) -> None:
    made.fill(9)
    paid = frozenset([tags_code("paid")])
    messages, following, _ = reader_of(made.root).fetch("orders", 0, 0, 2, paid)
    assert [message.queue_offset for message in messages] == [0, 3]
    assert following == 4


def test_a_filter_that_takes_nothing_says_so_and_goes_on(
    made: MadeStore, reader_of: Opened
) -> None:
    made.fill(9)
    found = reader_of(made.root).fetch("orders", 0, 2, 32, frozenset([tags_code("other")]))
    assert found == ([], 9, "NO_MATCHED_MESSAGE")


def test_a_queue_file_that_is_missing_is_stepped_over(made: MadeStore, reader_of: Opened) -> None:
    made.fill(25)
    (made.root / "consumequeue" / "orders" / "0" / f"{200:020d}").unlink()
    reader = reader_of(made.root)
    assert reader.fetch("orders", 0, 12, 32) == ([], 20, "OFFSET_FOUND_NULL")
    assert reader.fetch("orders", 0, 20, 32).messages[0].queue_offset == 20


def test_pre_blanks_between_messages_are_stepped_over(made: MadeStore, reader_of: Opened) -> None:
    made.fill(9)
    made.write_unit("orders", 0, 4, PRE_BLANK)
    reader = reader_of(made.root)
    messages, following, _ = reader.fetch("orders", 0, 3, 3)
    assert [message.queue_offset for message in messages] == [3, 5]
    assert following == 6
    assert reader.fetch("orders", 0, 4, 1) == ([], 5, "MESSAGE_WAS_REMOVING")


def test_what_lies_in_front_of_damage_comes_first_then_the_damage(
    made: MadeStore, reader_of: Opened
) -> None:
    records = made.fill(9)
    body_at = records[5].physical_offset + 88
    made.write_log(body_at, b"\xff")
    reader = reader_of(made.root)
    offset = 0
    while offset < 5:
        messages, following, _ = reader.fetch("orders", 0, offset, 32)
        assert [m.queue_offset for m in messages] == list(range(offset, following))
        offset = following
    assert offset == 5
    with pytest.raises(CorruptRecordError) as caught:
        reader.fetch("orders", 0, 5, 32)
    assert caught.value.physical_offset == records[5].physical_offset
    assert caught.value.__notes__ == ["orders/0, queue offset 5: seek(6, queue_id=0) steps over it"]
    assert reader.fetch("orders", 0, 6, 32).messages[0].queue_offset == 6


def test_a_unit_of_another_record_is_damage(made: MadeStore, reader_of: Opened) -> None:
    """Format 15.2, equation 9: stale units can point to records of other messages."""
    records = made.fill(9)
    other = records[7]
    made.write_unit("orders", 0, 3, struct.pack(">qiq", other.physical_offset, other.size, 0))
    with pytest.raises(CorruptRecordError):
        reader_of(made.root).fetch("orders", 0, 3, 1)


def test_get_gives_the_record_that_begins_there(made: MadeStore, reader_of: Opened) -> None:
    """S001-66: the file by the offset, then the record at offset mod file size."""
    records = made.fill(50)
    reader = reader_of(made.root)
    for record in records:
        message = reader.get(record.physical_offset)
        assert (message.queue_offset, message.body) == (record.queue_offset, record.body)


def test_get_between_records_finds_nothing(made: MadeStore, reader_of: Opened) -> None:
    records = made.fill(50)
    reader = reader_of(made.root)
    for offset in (records[3].physical_offset + 1, made.end, made.segment_size - 8):
        with pytest.raises(MessageNotFoundError, match=str(offset)):
            reader.get(offset)


def test_get_outside_the_log_names_its_bounds(tmp_path: Path, reader_of: Opened) -> None:
    made = MadeStore(tmp_path / "store", begin=8192)
    made.fill(3)
    reader = reader_of(made.root)
    for offset, status in (
        (8191, "OFFSET_TOO_SMALL"),
        (-1, "OFFSET_TOO_SMALL"),
        (12288, "OFFSET_OVERFLOW_BADLY"),
    ):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            reader.get(offset)
        error = caught.value
        assert (error.asked, error.minimum, error.maximum) == (offset, 8192, 12288)
        assert error.status == status


def test_get_checks_the_body_unless_told_otherwise(made: MadeStore, reader_of: Opened) -> None:
    record = made.fill(3)[1]
    made.write_log(record.physical_offset + 88, b"\xff")
    reader = reader_of(made.root)
    with pytest.raises(CorruptRecordError):
        reader.get(record.physical_offset)
    assert reader.get(record.physical_offset, verify=0).queue_offset == 1


def test_get_in_an_empty_store_finds_nothing(tmp_path: Path, reader_of: Opened) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        reader_of(tmp_path).get(0)


def test_the_end_of_a_unit_is_that_of_its_record(made: MadeStore, reader_of: Opened) -> None:
    records = made.fill(12)
    made.write_unit("orders", 0, 4, PRE_BLANK)
    reader = reader_of(made.root)
    last = records[11]
    assert reader.unit_end("orders", 0, 11) == last.physical_offset + last.size
    assert reader.unit_end("orders", 0, 4) is None
    assert reader.unit_end("orders", 0, 12) is None
    assert reader.unit_end("orders", 1, 0) is None


def test_times_are_searched_in_the_records(made: MadeStore, reader_of: Opened) -> None:
    made.fill(40)
    reader = reader_of(made.root)
    first_ms = 1_700_000_000_000
    assert reader.offset_at("orders", 0, first_ms + 100) == 10
    assert reader.offset_at("orders", 0, first_ms + 101) == 11
    assert reader.offset_at("orders", 0, first_ms + 101, boundary="upper") == 10
    assert reader.offset_at("orders", 0, first_ms - 1) == 0
    assert reader.offset_at("orders", 0, first_ms + 10_000) == 40
    assert reader.offset_at("nothing", 0, first_ms) == 0


def test_damage_does_not_stop_a_search_by_time(made: MadeStore, reader_of: Opened) -> None:
    records = made.fill(40)
    for number in (5, 9, 10, 11, 20, 30):
        made.write_log(records[number].physical_offset + 28, b"\xff")
    made.write_unit("orders", 0, 19, PRE_BLANK)
    reader = reader_of(made.root)
    first_ms = 1_700_000_000_000
    assert [reader.offset_at("orders", 0, first_ms + 10 * n) for n in (4, 8, 9, 12, 19, 21)] == [
        4,
        8,
        12,
        12,
        21,
        21,
    ]


def test_messages_stay_readable_when_their_store_was_closed(
    made: MadeStore, reader_of: Opened
) -> None:
    """S003-10: nothing has to be released."""
    records = made.fill(3)
    reader = reader_of(made.root)
    message = reader.fetch("orders", 0, 1, 1).messages[0]
    reader_of.close()
    assert message.body == records[1].body
    with pytest.raises(StoreClosedError):
        reader.fetch("orders", 0, 1, 1)


def test_a_log_that_was_cut_off_in_front_moves_the_minimum(
    made: MadeStore, reader_of: Opened
) -> None:
    records = made.fill(60)
    (made.root / "commitlog" / f"{0:020d}").unlink()
    first = next(r for r in records if r.physical_offset >= made.segment_size)
    reader = reader_of(made.root)
    assert reader.bounds("orders", 0) == (first.queue_offset, 60)
    assert len(everything(reader, "orders", 0)) == 60 - first.queue_offset


def test_units_behind_the_last_message_do_not_count(made: MadeStore, reader_of: Opened) -> None:
    """A unit can outlive its record, after a power cut or a cut of the log (format 15.4)."""
    made.fill(9)
    for number in (9, 10, 11):
        made.write_unit("orders", 0, number, struct.pack(">qiq", made.end + number, 120, 0))
    assert reader_of(made.root).bounds("orders", 0) == (0, 9)


def test_a_record_that_is_gone_between_others_is_damage(made: MadeStore, reader_of: Opened) -> None:
    records = made.fill(9)
    made.write_log(records[7].physical_offset, b"\0" * records[7].size)
    reader = reader_of(made.root)
    assert reader.bounds("orders", 0) == (0, 9)
    with pytest.raises(CorruptRecordError):
        reader.fetch("orders", 0, 7, 1)
    assert reader.fetch("orders", 0, 8, 1).messages[0].queue_offset == 8
