"""The end of the log: append, blank, roll, batches, refusals, on anonymous segments."""

from __future__ import annotations

import pickle
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketstore._native.append.appender import Log
from rocketstore._native.format.codec import decode_properties, decode_record, pack_host
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.put.put_message import put_message
from rocketstore._native.put.writer import Writer
from rocketstore._native.sync.positions import Positions
from rocketstore._native.sync.queue_positions import QueueState
from rocketstore.errors import (
    MessageRejectedError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    StoreClosedError,
)
from rocketstore.values.timestamps import timestamp_ms

SEGMENT = 1024
HOST = "127.0.0.1:10911"


class Owner:
    """Hands out anonymous segments and counts what it was asked."""

    def __init__(self, *, size: int = SEGMENT, limit: int = 100, start: int = 0) -> None:
        self.size = size
        self.limit = limit
        self.segments: list[MappedFile] = []
        self.rolling = threading.Lock()
        self.start = start
        self.rolls = 0
        self.halves = 0
        self.positions = Positions()
        self.log = Log(
            self,
            self.positions,
            max_unflushed_bytes=1 << 40,
            max_undispatched_bytes=1 << 40,
            store_host=HOST,
        )
        self.log.max_message_size_bytes = 1 << 20
        self.positions.wrote = start
        self.log.start(start, -1, 0)

    def refusal(self) -> Exception:
        return StoreClosedError("closed")

    def check_waitable(self) -> None:
        pass

    def next_segment(self) -> None:
        with self.rolling:
            if not self.log.has_next:
                self.add_segment()

    def add_segment(self) -> None:
        if len(self.segments) == self.limit:
            raise OSError(28, "no space left for a segment")
        start = self.segments[-1].end_offset if self.segments else self.start
        segment = MappedFile.anonymous(start, self.size)
        self.segments.append(segment)
        self.log.set_next(segment)

    def wait_for_room(self) -> None:
        raise TimeoutError("no room")

    def rolled(self) -> None:
        with self.rolling:
            self.rolls += 1
            self.log.take_roll()

    def half_full(self) -> None:
        self.halves += 1

    def was_slow(self, nanoseconds: int, what: str) -> None:
        assert nanoseconds > 0

    def writer(self, topic: str = "T", queue_id: int = 0, **options: object) -> Writer:
        state = QueueState(topic, topic.encode(), queue_id, 0)
        settings: dict[str, object] = {
            "durability": "os",
            "timeout_ms": 1000,
            "record_crc": False,
            "born_host": HOST,
            "reserved": {"TAGS": "use tags="},
            "to_ms": timestamp_ms,
        }
        settings.update(options)
        return Writer(self.log, topic, topic.encode(), (state,), **settings)  # type: ignore[arg-type]

    def record(self, offset: int) -> dict[str, object]:
        segment = self.segments[(offset - self.start) // self.size]
        position = offset - segment.start_offset
        (size,) = struct.unpack(">i", segment.read(position, 4))
        return decode_record(segment.read(position, size), offset)


def body_filling(free: int) -> bytes:
    """A body whose V1 record of topic "T" without properties has exactly `free` bytes."""
    return b"x" * (free - 92)


@pytest.fixture
def owner() -> Owner:
    """With one segment."""
    return Owner()


@pytest.fixture
def writer(owner: Owner) -> Writer:
    """Of the owner's log."""
    return owner.writer()


def test_first_put_makes_the_first_segment(owner: Owner) -> None:
    """S000-31 S000-67 S003-29: no file yet: one is made, the record stands at its start."""
    result = owner.writer().put(b"hello")
    assert (result.physical_offset, result.queue_offset, result.size) == (0, 0, 97)
    assert owner.record(0)["body"] == b"hello"
    assert owner.positions.wrote == 97


def test_queue_offsets_rise_per_queue(owner: Owner) -> None:
    """S000-70 S001-72: the queue offset starts at 0 and belongs to one (topic, queue id)."""
    first, second = owner.writer(queue_id=0), owner.writer(queue_id=1)
    offsets = [w.put(b"b").queue_offset for w in (first, first, second, first)]
    assert offsets == [0, 1, 0, 2]


def test_record_that_just_fits_does_not_roll(owner: Owner, writer: Writer) -> None:
    """S000-75: record + 8 equal to the free bytes fits."""
    writer.put(body_filling(200))
    result = writer.put(body_filling(SEGMENT - 200 - 8))
    assert result.physical_offset == 200
    assert result.end_offset == SEGMENT - 8
    assert owner.rolls == 1  # only the first segment


def test_one_byte_more_rolls_behind_a_blank(owner: Owner, writer: Writer) -> None:
    """S000-20 S000-34 S000-75 S001-47 S001-75 S004-68: blank over the rest, record in the next file."""
    writer.put(body_filling(200))
    result = writer.put(body_filling(SEGMENT - 200 - 7))
    assert result.physical_offset == SEGMENT
    size, magic = struct.unpack(">iI", owner.segments[0].read(200, 8))
    assert (size, magic) == (SEGMENT - 200, 0xCBD43194)
    assert owner.segments[0].find_data(208, SEGMENT) == SEGMENT  # K-19: header only, rest zeros
    assert owner.rolls == 2


def test_smallest_blank_has_eight_bytes() -> None:
    writer = (owner := Owner()).writer()
    writer.put(body_filling(SEGMENT - 8))
    writer.put(b"")
    assert struct.unpack(">iI", owner.segments[0].read(SEGMENT - 8, 8)) == (8, 0xCBD43194)


def test_record_larger_than_a_segment_changes_nothing(owner: Owner, writer: Writer) -> None:
    """K-20: refused up front instead of burning two files."""
    writer.put(b"a")
    before = owner.positions.wrote
    with pytest.raises(MessageTooLargeError):
        writer.put(body_filling(SEGMENT - 7))
    assert owner.positions.wrote == before
    assert len(owner.segments) == 1


def test_no_next_segment_leaves_everything_as_it_was() -> None:
    """D-16 S000-32 S000-35: the blank is not written before the next file is in hand."""
    owner = Owner(limit=1)
    writer = owner.writer()
    writer.put(body_filling(900))
    with pytest.raises(OSError, match="no space"):
        writer.put(body_filling(200))
    assert owner.positions.wrote == 900
    assert owner.segments[0].find_data(900, SEGMENT) == SEGMENT
    assert writer.put(b"").physical_offset == 900  # what still fits goes on
    owner.limit = 2
    assert writer.put(body_filling(200)).physical_offset == SEGMENT


def test_first_segment_contains_the_wanted_start() -> None:
    owner = Owner(start=2 * SEGMENT)
    assert owner.writer().put(b"a").physical_offset == 2 * SEGMENT


def test_batch_stands_in_one_segment(owner: Owner, writer: Writer) -> None:
    """K: a batch never straddles files; consecutive offsets, one store time (semantics 2.10)."""
    writer.put(body_filling(700))
    result = writer.put_batch([b"a" * 30, b"b" * 30, b"c" * 30], tags="t")
    assert result.physical_offset == SEGMENT
    assert result.count == 3
    records = [owner.record(offset) for offset in result.physical_offsets]
    assert [r["body"] for r in records] == [b"a" * 30, b"b" * 30, b"c" * 30]
    assert [r["queue_offset"] for r in records] == list(result.queue_offsets) == [1, 2, 3]
    assert len({r["store_timestamp_ms"] for r in records}) == 1
    assert result.end_offset == owner.positions.wrote


def test_batch_larger_than_a_segment_is_refused_whole(owner: Owner, writer: Writer) -> None:
    with pytest.raises(MessageTooLargeError):
        writer.put_batch([b"x" * 200] * 5)
    assert owner.positions.wrote == 0
    assert writer.put(b"").queue_offset == 0


def test_columns_are_split_at_segments() -> None:
    import numpy as np

    owner = Owner()
    writer = owner.writer()
    data = np.frombuffer(b"abcdefgh" * 100, dtype=np.uint8)
    offsets = np.arange(0, 801, 40, dtype=np.int64)
    result = writer._put_column(data, offsets)
    assert result.count == 20
    assert len(owner.segments) == 3
    bodies = [owner.record(offset)["body"] for offset in result.physical_offsets]
    assert b"".join(bodies) == bytes(data)  # type: ignore[arg-type]


def test_store_time_never_falls(owner: Owner) -> None:
    """K-30 D-28 S000-30 S003-28: taken inside the lock, at least the last one."""
    owner.log.refuse(False)
    future = 4_102_444_800_000
    log = Log(
        owner,
        Positions(),
        max_unflushed_bytes=1 << 40,
        max_undispatched_bytes=1 << 40,
        store_host=HOST,
    )
    log.max_message_size_bytes = 1000
    owner.log = log
    log.start(0, -1, future)
    assert owner.writer().put(b"a").store_timestamp_ms == future


def test_prepared_and_rollback_take_no_queue_offset(owner: Owner, writer: Writer) -> None:
    """S000-71 S000-78 S001-77: they carry 0 and the next offset stays."""
    common = {
        "flag": 0,
        "born_timestamp_ms": 5,
        "born_host": pack_host(HOST),
        "store_host": pack_host("[fe80::9]:10911"),
        "reconsume_times": 2,
        "prepared_transaction_offset": 77,
        "lights": [],
        "durability": None,
        "timeout_s": None,
    }
    writer.put(b"first")
    offsets = [
        put_message(writer, b"x", b"", sys_flag=flag, **common).queue_offset  # type: ignore[arg-type]
        for flag in (4, 8, 12, 0)
    ]
    assert offsets == [0, 1, 0, 2]
    record = owner.record(97)
    assert record["sys_flag"] == 4 | 0x20
    assert record["store_host"] == "[fe80::9]:10911"
    assert (record["reconsume_times"], record["prepared_transaction_offset"]) == (2, 77)


def test_light_queues_get_their_offsets_inside_the_lock(owner: Owner, writer: Writer) -> None:
    lights = [QueueState("%LMQ%a", b"%LMQ%a", 0, 5), QueueState("%LMQ%b", b"%LMQ%b", 0, 0)]
    text = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"
    result = put_message(
        writer,
        b"x",
        text,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=None,
        born_host=pack_host(HOST),
        store_host=pack_host(HOST),
        reconsume_times=0,
        prepared_transaction_offset=0,
        lights=lights,
        durability=None,
        timeout_s=None,
    )
    properties = decode_properties(owner.record(result.physical_offset)["properties"])
    assert properties["INNER_MULTI_QUEUE_OFFSET"] == "5,0"
    assert [light.next_offset for light in lights] == [6, 1]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"properties": {"TAGS": "x"}}, MessageRejectedError, "reserved"),
        ({"properties": {"a": ""}}, MessageRejectedError, "empty"),
        ({"properties": {"": "a"}}, MessageRejectedError, "empty"),
        ({"properties": {"a": "b\x01c"}}, MessageRejectedError, "control character"),
        ({"properties": {"a\x02": "b"}}, MessageRejectedError, "control character"),
        ({"properties": {"a": 7}}, TypeError, "^property 'a' = 7: expected a str$"),
        ({"keys": "a b"}, MessageRejectedError, "blank"),
        ({"keys": ("a", "")}, MessageRejectedError, "empty"),
        ({"tags": ""}, MessageRejectedError, "empty"),
        ({"properties": {"a": "b" * 32767}}, PropertiesTooLargeError, "32767"),
    ],
)
def test_properties_are_refused_before_anything_is_written(
    options: dict[str, object], error: type[Exception], text: str, owner: Owner
) -> None:
    """S000-72 S003-20 S004-66: typed errors, nothing stored."""
    with pytest.raises(error, match=text):
        owner.writer().put(b"body", **options)  # type: ignore[arg-type]
    assert owner.positions.wrote == 0


def test_bodies_of_every_kind(owner: Owner, writer: Writer) -> None:
    for body in (b"ab", bytearray(b"ab"), memoryview(b"xaby")[1:3]):
        assert owner.record(writer.put(body).physical_offset)["body"] == b"ab"
    with pytest.raises(TypeError, match="encode"):
        writer.put("text")
    owner.log.max_message_size_bytes = 3
    with pytest.raises(MessageTooLargeError, match="max_message_size_bytes"):
        writer.put(b"four")


def test_tags_and_keys_become_properties(owner: Owner) -> None:
    result = owner.writer(properties={"app": "shop"}).put(
        b"", tags="paid", keys=("o-1", "o-2"), properties={"region": "eu"}, flag=-3, born_time=17
    )
    record = owner.record(result.physical_offset)
    assert decode_properties(record["properties"]) == {
        "app": "shop",
        "region": "eu",
        "KEYS": "o-1 o-2",
        "TAGS": "paid",
    }
    assert (record["flag"], record["born_timestamp_ms"]) == (-3, 17)


def test_closed_log_says_what_its_owner_says(owner: Owner, writer: Writer) -> None:
    """S003-15: nothing is appended after refuse() returned."""
    writer.put(b"a")
    owner.log.refuse(True)
    with pytest.raises(StoreClosedError):
        writer.put(b"b")


def test_half_full_is_told_once(owner: Owner, writer: Writer) -> None:
    """S004-22: the owner hears in time that the next segment will be needed."""
    writer.put(b"")
    owner.log.notify_at(512)
    for _ in range(8):
        writer.put(b"")
    assert owner.halves == 1


def test_result_pickles_by_value(owner: Owner) -> None:
    result = owner.writer().put_batch([b"a", b"b"])
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result
    assert copy.physical_offsets == result.physical_offsets
    assert copy.message_id == result.message_id == "7F00000100002A9F0000000000000000"


def test_many_threads_lose_and_double_nothing() -> None:
    """Every put has its own place, records follow each other without a hole."""
    owner = Owner(size=64 * 1024)
    writers = [owner.writer(queue_id=n) for n in range(4)]
    results: list[list[tuple[int, int]]] = [[] for _ in writers]

    def work(n: int) -> None:
        for i in range(500):
            result = writers[n].put(b"%d-%d" % (n, i))
            results[n].append((result.physical_offset, result.queue_offset))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    for n, rows in enumerate(results):
        assert [offset for _, offset in rows] == list(range(500))
        for i, (place, _) in enumerate(rows):
            assert owner.record(place)["body"] == b"%d-%d" % (n, i)
    places = [place for rows in results for place, _ in rows]
    assert len(set(places)) == 2000
