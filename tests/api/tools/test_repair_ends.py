"""Damage at the end of a queue and in the first file: records that nobody is given keep its place (format 6.3)."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Message, Store, tools
from tests.api.tools.test_repair import SHAPE, expected, fill, is_sound, read, served, write
from tests.support.small_store import SEGMENT, SMALL, open_small, store_group_offset

UNIT = struct.Struct(">qiq")
PRE_BLANK = (0, 0x7FFFFFFF, 0)
LIGHT = {"light_queue_enabled": True, "multi_dispatch_enabled": True}


def units_of(root: Path, topic: str, queue_id: int = 0) -> list[tuple[int, int, int]]:
    files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
    data = b"".join(file.read_bytes() for file in files)
    units = [UNIT.unpack_from(data, at) for at in range(0, len(data), UNIT.size)]
    return [unit for unit in units if unit[1]]


def damage(root: Path, message: Message) -> None:
    write(root, message.physical_offset + message.size - 40, b"\xff\xfe\xff")


def lasts(messages: list[Message]) -> dict[tuple[str, int], Message]:
    return {(m.topic, m.queue_id): m for m in messages}


@pytest.mark.parametrize("how", ["clean", "crashed", "moved"])
def test_the_last_records_of_all_queues(how: str, root: Path) -> None:
    """Queues go on behind what they lost, for readers, writers, verify and recovery."""
    messages = fill(root)
    hit = lasts(messages)
    before_last = [
        m for m in messages if m.queue_offset == hit[m.topic, m.queue_id].queue_offset - 1
    ]
    # Not the last record of the log: nothing behind it says that it was there.
    del hit[messages[-1].topic, messages[-1].queue_id]
    for message in (*hit.values(), *before_last):
        damage(root, message)
    report = tools.repair(root, **SHAPE)
    lost = {m.physical_offset for m in (*hit.values(), *before_last)}
    assert report.ok and report.units == len(lost)
    for (topic, queue_id), message in hit.items():
        units = units_of(root, topic, queue_id)
        assert len(units) == message.queue_offset + 1
        assert units[-2] == PRE_BLANK
        physical_offset, size, code = units[-1]
        there = Message.from_bytes(read(root, physical_offset, size))
        place = (there.topic, there.flag, there.queue_id, there.queue_offset, code)
        assert place == ("%", 1, queue_id, message.queue_offset, 0)
        assert there.sys_flag & 0xC == 0xC and len(there.body) == 1
    assert served(root) == expected(messages, lost)
    is_sound(root)

    if how == "crashed":
        (root / "abort").touch()
    elif how == "moved":
        (root / "store.json").unlink(missing_ok=True)
        (root / "checkpoint").unlink()
    with open_small(root, "r+") as store:
        for (topic, queue_id), message in hit.items():
            put = store.writer(topic, queue_id=queue_id).put(b"new")
            assert put.queue_offset == message.queue_offset + 1
            with store.consumer(topic, queue_id=queue_id) as consumer:
                consumer.seek(message.queue_offset)
                assert [m.body for m in consumer] == [b"new"]
            assert store.offset_at(topic, queue_id, messages[0].store_timestamp_ms) == 0
    is_sound(root)


def test_queues_whose_last_records_lie_in_one_range(root: Path) -> None:
    """Each has a record of its own."""
    messages = fill(root)
    ends = [m for (t, q), m in lasts(messages).items() if m is not messages[-1]]
    start = min(m.physical_offset for m in ends)
    end = messages[-1].physical_offset
    lost = {m.physical_offset for m in messages if start <= m.physical_offset < end}
    for message in messages:
        if message.physical_offset in lost:
            write(root, message.physical_offset, bytes(message.size))
    assert tools.repair(root, **SHAPE).ok
    starts = set()
    for message in ends:
        physical_offset, size, _ = units_of(root, message.topic, message.queue_id)[-1]
        there = Message.from_bytes(read(root, physical_offset, size))
        assert (there.queue_id, there.queue_offset) == (message.queue_id, message.queue_offset)
        starts.add(physical_offset)
    assert len(starts) == len(ends)
    assert served(root) == expected(messages, lost)
    is_sound(root)


def test_light_queues_share_one(root: Path) -> None:
    """A small record may be the last of more queues than records fit in its place."""
    names = [f"%LMQ%{n}" for n in range(5)]

    def put(store: Store) -> None:
        store.put_message("t", b"x", properties={"INNER_MULTI_DISPATCH": ",".join(names)})

    with open_small(root, **LIGHT) as store:
        put(store)
        put(store)
        store.put_message("u", b"behind")
        [_, lost] = store.consumer("t").poll(2)
        start, size = lost.physical_offset, lost.size
    write(root, start, bytes(size))
    report = tools.repair(root, **SHAPE)
    assert report.ok and report.units == 1 + len(names)
    for name in ("t", *names):
        units = units_of(root, name)
        assert len(units) == 2 and units[1] != PRE_BLANK
    is_sound(root)
    with open_small(root, "r+", **LIGHT) as store:
        put(store)
        for name in ("t", *names):
            with store.consumer(name) as consumer:
                assert len(list(consumer)) == 2
    is_sound(root)


def test_lost_messages_of_the_first_file(root: Path) -> None:
    """With more of that file behind them; in later files, and where its end is lost too, pre-blanks are enough."""
    messages = fill(root)
    file_size = int(SMALL["commit_log_file_size_bytes"])
    ends = {m.physical_offset for m in lasts(messages).values()}
    first = [m for m in messages if m.physical_offset < file_size]
    later = [m for m in messages if m.physical_offset >= file_size]
    inside = [m for m in first[2:-3] if m.physical_offset not in ends][:6:2]
    blanks = [first[-1], *[m for m in later if m.physical_offset not in ends][:6:2]]
    write(root, first[-1].physical_offset, bytes(file_size - first[-1].physical_offset))
    for message in (*inside, *blanks[1:]):
        damage(root, message)
    report = tools.repair(root, **SHAPE)
    assert report.ok and report.units == len(inside) + len(blanks)
    for message in inside:
        unit = units_of(root, message.topic, message.queue_id)[message.queue_offset]
        there = Message.from_bytes(read(root, unit[0], unit[1]))
        place = (there.topic, there.flag, there.queue_id, there.queue_offset, unit[2])
        assert place == ("%", 1, message.queue_id, message.queue_offset, 0)
        assert len(there.body) == 1
    for message in blanks:
        assert units_of(root, message.topic, message.queue_id)[message.queue_offset] == PRE_BLANK
    assert served(root) == expected(messages, {m.physical_offset for m in (*inside, *blanks)})
    is_sound(root)


def test_ends_that_an_older_repair_left(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Pre-blanks at the ends of queues; the records that it wrote have room for what they need."""
    messages = fill(root)
    hit = lasts(messages)
    del hit[messages[-1].topic, messages[-1].queue_id]
    for message in hit.values():
        damage(root, message)
    module = importlib.import_module("rocketstore.tools.repair")
    monkeypatch.setattr(module, "with_pointed_fillers", lambda store, ranges: ranges)
    monkeypatch.setattr(module, "with_ends", lambda store, ends: [])
    assert tools.repair(root, **SHAPE).units == len(hit)
    monkeypatch.undo()
    for topic, queue_id in hit:
        assert units_of(root, topic, queue_id)[-1] == PRE_BLANK

    assert tools.repair(root, dry_run=True).units == len(hit)
    index = [path.name for path in (root / "index").iterdir()]
    report = tools.repair(root, **SHAPE)
    assert (report.ok, report.ranges, report.units) == (True, (), len(hit))
    assert [path.name for path in (root / "index").iterdir()] == index
    for (topic, queue_id), message in hit.items():
        units = units_of(root, topic, queue_id)
        assert len(units) == message.queue_offset + 1
        there = Message.from_bytes(read(root, units[-1][0], units[-1][1]))
        place = (there.topic, there.flag, there.queue_id, there.queue_offset, units[-1][2])
        assert place == ("%", 1, queue_id, message.queue_offset, 0)
        assert units[-1][0] > units[-2][0]
    assert served(root) == expected(messages, {m.physical_offset for m in hit.values()})
    is_sound(root)
    assert tools.repair(root, **SHAPE).units == 0


def test_pre_blanks_in_front_of_messages_of_the_first_file(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, root: Path
) -> None:
    """RocketMQ passes over these. Those of an older repair get pointed fillers: at the end of a queue
    all of a row, while only that file is there. A gap without a record in its place stays, with a
    warning."""
    with open_small(root, "rw") as store:
        for number in range(12):
            store.writer("t").put(b"%d" % number * 20)
    with open_small(root, "r+") as store:
        store_group_offset(store, "gap", 5)
        store.writer("gap").put(b"first")
    with open_small(root, "r+") as store:
        store_group_offset(store, "gap", 9)
        store.writer("gap").put(b"next")
        messages = [m for topic in store.topics(system=True) for m in store.consumer(topic)]
        lost = [m for m in store.consumer("t") if m.queue_offset in (2, 3, 6, 10, 11)]
        assert max(m.physical_offset for m in messages) < SEGMENT
    for message in lost:
        damage(root, message)
    module = importlib.import_module("rocketstore.tools.repair")
    with monkeypatch.context() as patch:
        patch.setattr(module, "with_pointed_fillers", lambda store, ranges: ranges)
        patch.setattr(module, "with_ends", lambda store, rows: [])
        assert tools.repair(root, **SHAPE).units == len(lost)
    assert [n for n, unit in enumerate(units_of(root, "t")) if unit == PRE_BLANK] == [
        2,
        3,
        6,
        10,
        11,
    ]
    gap = units_of(root, "gap")
    assert tools.repair(root, dry_run=True).units == len(lost)
    assert tools.repair(root, **SHAPE).units == len(lost)
    assert PRE_BLANK not in units_of(root, "t")
    for queue_offset in (2, 3, 6, 10, 11):
        physical_offset, size, _ = units_of(root, "t")[queue_offset]
        there = Message.from_bytes(read(root, physical_offset, size))
        assert (there.topic, there.queue_offset) == ("%", queue_offset)
    assert units_of(root, "gap") == gap
    assert "gap/0: after offset 6, which has no message" in caplog.text
    kept = {m.physical_offset for m in messages} - {m.physical_offset for m in lost}
    assert set(served(root)) == kept
    is_sound(root)
    assert tools.repair(root, **SHAPE).units == 0


def test_pre_blanks_that_fill_the_last_file_of_a_queue(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """What stands for them lies behind the message in front, which is in the file before."""
    names = [f"%LMQ%{n}" for n in range(5)]
    with open_small(root, **LIGHT) as store:
        lost = [store.writer("u").put(bytes(500))]
        for _ in range(12):
            lost.append(
                store.put_message("t", b"x", properties={"INNER_MULTI_DISPATCH": ",".join(names)})
            )
        store.writer("u").put(b"behind")
    for put in (lost[0], *lost[-2:]):
        write(root, put.physical_offset, bytes(put.size))
    module = importlib.import_module("rocketstore.tools.repair")
    with monkeypatch.context() as patch:
        patch.setattr(module, "with_pointed_fillers", lambda store, ranges: ranges)
        patch.setattr(module, "with_ends", lambda store, rows: [])
        assert tools.repair(root, **SHAPE).ok
    assert units_of(root, names[0])[10:] == [PRE_BLANK] * 2
    assert tools.repair(root, **SHAPE).ok
    for name in names:
        before, last = units_of(root, name)[9], units_of(root, name)[-1]
        assert last != PRE_BLANK and last[0] > before[0]
    is_sound(root)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_stand_ins_of_delayed_messages_are_dropped(topic: str, root: Path) -> None:
    """What delivers them goes on: it has a topic, and a time where it needs one. In the middle it passes over
    pre-blanks."""
    with open_small(root) as store:
        properties = {"REAL_TOPIC": "t", "REAL_QID": "0", "TIMER_OUT_MS": "5"}
        puts = [store.put_message(topic, b"x" * 90, properties=properties) for _ in range(4)]
        store.writer("t").put(b"behind")
    for put in puts[1::2]:
        write(root, put.physical_offset + 100, b"\xff" * 9)
    assert tools.repair(root, **SHAPE).ok
    units = units_of(root, topic)
    assert [unit == PRE_BLANK for unit in units] == [False, True, False, False]
    there = Message.from_bytes(read(root, units[-1][0], units[-1][1]))
    assert there.topic == "%"
    found = {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}
    if topic == "rmq_sys_wheel_timer":
        found |= {"TIMER_OUT_MS": str(there.store_timestamp_ms), "TIMER_DEL_UNIQKEY": "%"}
    assert there.properties == found
    is_sound(root)


def test_the_smallest_records_have_stand_ins_of_their_own(root: Path) -> None:
    with open_small(root, record_crc=False) as store:
        for _ in range(12):
            store.writer("t").put(b"")
        records = list(store.consumer("t"))
    assert {record.size for record in records} == {92}
    lost = records[1:11]
    write(root, lost[0].physical_offset, bytes(92 * len(lost)))
    report = tools.repair(root, **SHAPE)
    assert report.ok and report.units == len(lost)
    assert [unit[:2] for unit in units_of(root, "t")] == [(m.physical_offset, 92) for m in records]
    with open_small(root, "r+") as store:
        assert [m.queue_offset for m in store.consumer("t")] == [0, 11]
    is_sound(root)


def test_a_unit_of_another_size_is_damage(root: Path) -> None:
    messages = fill(root)
    last = next(m for m in lasts(messages).values() if m is not messages[-1])
    damage(root, last)
    assert tools.repair(root, **SHAPE).ok
    [*_, (physical_offset, size, _)] = units_of(root, last.topic, last.queue_id)
    queue = sorted((root / "consumequeue" / last.topic / str(last.queue_id)).iterdir())
    position = last.queue_offset * UNIT.size
    file = next(f for f in reversed(queue) if int(f.name) <= position)
    with file.open("r+b") as opened:
        opened.seek(position - int(file.name))
        opened.write(UNIT.pack(physical_offset, size + 1, 0))
    with open_small(root, "r") as store:
        consumer = store.consumer(last.topic, queue_id=last.queue_id)
        consumer.seek(last.queue_offset)
        with pytest.raises(rocketstore.ReadFailedError):
            consumer.poll(1)  # a reader takes such a unit off the end
    with open_small(root, "r+") as store:
        consumer = store.consumer(last.topic, queue_id=last.queue_id)
        consumer.seek(last.queue_offset)
        with pytest.raises(rocketstore.CorruptRecordError):
            consumer.poll(1)
    [fault] = tools.verify(root, **SHAPE).faults
    assert f"says {size + 1} bytes" in fault.reason
