"""Stored offsets: RocketMQ's file, D-17, and one owner for each group and topic."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from rocketstore.consuming import consumer_offsets, offset_tables
from rocketstore.consuming.consumer_offsets import (
    ConsumerOffsets,
)
from rocketstore.consuming.followed_offsets import FollowerOffsets
from rocketstore.consuming.group_claims import GroupClaimedError
from rocketstore.errors import StoreReadOnlyError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery.report import OffsetSetBack

SET_BACK = OffsetSetBack(group="billing", topic="orders", queue_id=0, was=100, now=80)


class Owner:
    """Something that can hold a claim."""


def durable(_: int) -> None:
    """A log in which everything is flushed already."""


def loaded(layout: StoreLayout, *, read_only: bool = False) -> ConsumerOffsets:
    offsets = ConsumerOffsets(layout, read_only=read_only)
    offsets.load()
    return offsets


def write(layout: StoreLayout, text: str) -> None:
    layout.consumer_offsets.write_text(text)


@pytest.fixture
def offsets(layout: StoreLayout) -> ConsumerOffsets:
    """Those of a store that has none yet."""
    return loaded(layout)


def test_a_store_without_the_file_has_no_offsets(layout: StoreLayout) -> None:
    assert loaded(layout).get("orders", "billing") == {}


def test_what_rocketmq_wrote_is_read(layout: StoreLayout) -> None:
    """Its map keys of integer type are not quoted (format 1.4)."""
    write(layout, '{\n\t"offsetTable":{"orders@billing":{0:5,1:7\n\t},"a@b":{2:1\n\t}\n\t}\n}')
    offsets = loaded(layout)
    assert offsets.get("orders", "billing") == {0: 5, 1: 7}
    assert offsets.groups("orders") == ("billing",)
    assert offsets.groups("payments") == ()


def test_a_commit_is_there_after_the_next_load(layout: StoreLayout) -> None:
    loaded(layout).commit("orders", "billing", {0: 5, 3: 1}, 1000, durable)
    assert loaded(layout).get("orders", "billing") == {0: 5, 3: 1}


def test_the_file_is_valid_json_with_quoted_queue_ids(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:
    offsets.commit("orders", "billing", {0: 5}, 1000, durable)
    offsets.merge()
    document = json.loads(layout.consumer_offsets.read_text())
    assert set(document.pop("rocketstore")) == {"merged", "crc", "own_crc"}
    assert document == {"offsetTable": {"orders@billing": {"0": 5}}}


def test_a_commit_changes_only_its_own_queues(layout: StoreLayout) -> None:
    write(
        layout,
        '{"dataVersion":{"counter":3},"offsetTable":{"orders@billing":{0:5,1:7},"x@y":{0:9}}}',
    )
    offsets = loaded(layout)
    offsets.commit("orders", "billing", {1: 8}, 1000, durable)
    offsets.close()
    document = json.loads(layout.consumer_offsets.read_text())
    assert set(document.pop("rocketstore")) == {"merged", "crc", "own_crc"}
    assert document == {
        "dataVersion": {"counter": 3},
        "offsetTable": {"orders@billing": {"0": 5, "1": 8}, "x@y": {"0": 9}},
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[1, 2]",
        '{"offsetTable": 5}',
        '{"offsetTable": {"orders@billing": [1]}}',
        '{"offsetTable": {"orders@billing": {"0": "five", "-1": 2, "x": 1, "00": 4, "1": -3}}}',
        '{"offsetTable": {"orders": {"0": 1}, "@billing": {"0": 1}, "orders@": {"0": 1}}}',
    ],
)
def test_what_makes_no_sense_counts_as_nothing(layout: StoreLayout, text: str) -> None:
    write(layout, text)
    offsets = loaded(layout)
    assert offsets.get("orders", "billing") == {}
    offsets.commit("orders", "billing", {0: 1}, 0, durable)
    assert loaded(layout).get("orders", "billing") == {0: 1}


def test_the_backup_of_rocketmq_is_read_when_its_file_is_no_use(layout: StoreLayout) -> None:
    write(layout, '{"offsetTable":{"orders@bil')
    backup = layout.consumer_offsets.with_name("consumerOffset.json.bak")
    backup.write_text('{"offsetTable":{"orders@billing":{0:4}}}')
    assert loaded(layout).get("orders", "billing") == {0: 4}


def test_an_offset_is_stored_behind_the_flush_that_covers_it(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:
    """D-17: after a power cut a stored offset never points beyond the log."""
    asked: list[tuple[int, bool]] = []

    def wait(physical_end: int) -> None:
        asked.append((physical_end, layout.group_offsets.exists()))

    offsets.commit("orders", "billing", {0: 5}, 1234, wait)
    assert asked == [(1234, False)]


def test_nothing_is_stored_when_the_flush_fails(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:

    def wait(physical_end: int) -> None:
        raise TimeoutError(physical_end)

    with pytest.raises(TimeoutError):
        offsets.commit("orders", "billing", {0: 5}, 1234, wait)
    assert offsets.get("orders", "billing") == {}
    assert not layout.consumer_offsets.exists()
    assert not layout.group_offsets.exists()


def test_what_cannot_be_written_does_not_count(
    monkeypatch: pytest.MonkeyPatch, offsets: ConsumerOffsets
) -> None:
    offsets.commit("orders", "billing", {0: 1}, 0, durable)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rocketstore.consuming.consumer_offsets.write_state_file", refuse)
    monkeypatch.setattr("rocketstore.consuming.commit_journal.JOURNAL_BYTES", 0)
    with pytest.raises(OSError, match="No space"):
        offsets.commit("orders", "billing", {0: 2}, 0, durable)
    assert offsets.get("orders", "billing") == {0: 1}


@pytest.mark.parametrize("bad", [{0: -1}, {0: 1 << 63}, {-1: 0}])
def test_offsets_that_no_queue_can_have_are_refused(
    layout: StoreLayout, bad: dict[int, int]
) -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        loaded(layout).commit("orders", "billing", bad, 0, durable)


def test_a_store_open_for_reading_stores_nothing(layout: StoreLayout) -> None:
    with pytest.raises(StoreReadOnlyError):
        loaded(layout, read_only=True).commit("orders", "billing", {0: 1}, 0, durable)
    assert not layout.consumer_offsets.exists()


def test_a_reader_beside_a_writer_sees_what_was_stored_since(layout: StoreLayout) -> None:
    reader, writer = FollowerOffsets(layout), loaded(layout)
    assert reader.get("orders", "billing") == {}
    for offset in (7, 8, 9):
        writer.commit("orders", "billing", {0: offset}, 700, durable)
        assert reader.get("orders", "billing") == {0: offset}
    writer.commit("orders", "audit", {0: 1}, 700, durable)
    assert reader.groups("orders") == ("audit", "billing")
    with pytest.raises(StoreReadOnlyError):
        reader.commit("orders", "billing", {0: 10}, 700, durable)


def test_a_reader_beside_rocketmq_reads_what_it_replaces(layout: StoreLayout) -> None:
    """It keeps the file before as `.bak`, and there is none for a moment."""
    reader = FollowerOffsets(layout)
    write(layout, '{"offsetTable":{"orders@billing":{0:5}}}')
    assert reader.get("orders", "billing") == {0: 5}
    path = layout.consumer_offsets
    path.rename(path.with_name(path.name + ".bak"))
    assert reader.get("orders", "billing") == {0: 5}
    write(layout, '{"offsetTable":{"orders@billing":{0:6}}}')
    assert reader.get("orders", "billing") == {0: 6}


def offsets_in(text: str) -> object:
    return json.loads(text)["offsetTable"]["orders@billing"]


@pytest.mark.parametrize("writes", [0, 1])
def test_the_copy_of_a_broker_is_one_step_behind(
    writes: int, layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a merge stops, a broker finds the file whole, and offsets as new in its `.bak`."""
    path = layout.consumer_offsets
    copy = path.with_name(path.name + ".bak")
    write(layout, '{"offsetTable":{"orders@billing":{"0":5}}}')
    copy.write_text('{"offsetTable":{"orders@billing":{"0":1}}}')
    offsets = loaded(layout)
    for offset in (6, 7):
        offsets.commit("orders", "billing", {0: offset}, 0, durable)
        offsets.merge()
    assert offsets_in(path.read_text()) == {"0": 7}
    assert offsets_in(copy.read_text()) == {"0": 6}
    left, real = [writes], consumer_offsets.write_state_file

    def stops(*arguments: Any) -> None:
        if not left[0]:
            raise OSError(5, "stopped")
        left[0] -= 1
        real(*arguments)

    monkeypatch.setattr(consumer_offsets, "write_state_file", stops)
    offsets.commit("orders", "billing", {0: 8}, 0, durable)
    with pytest.raises(OSError, match="stopped"):
        offsets.merge()
    assert offsets_in(path.read_text()) == {"0": 7}
    assert offsets_in(copy.read_text()) == {"0": 6 + writes}
    path.write_text("{")
    assert loaded(layout).get("orders", "billing")[0] >= 6


def test_the_copy_of_a_broker_is_set_back_with_the_file(layout: StoreLayout) -> None:
    path = layout.consumer_offsets
    copy = path.with_name(path.name + ".bak")
    for each in (path, copy):
        each.write_text('{"offsetTable":{"orders@billing":{"0":100}}}')
    loaded(layout).clamp(lambda topic, queue_id: 80)
    assert offsets_in(path.read_text()) == offsets_in(copy.read_text()) == {"0": 80}


def test_a_store_without_a_copy_gets_none(layout: StoreLayout, offsets: ConsumerOffsets) -> None:
    offsets.commit("orders", "billing", {0: 1}, 0, durable)
    offsets.merge()
    assert [file.name for file in layout.config.iterdir()] == ["consumerOffset.json"]


def test_offsets_beyond_their_queue_are_set_back_at_open(layout: StoreLayout) -> None:
    """D-17: the clamp is on disk before the first put can use the numbers again."""
    write(layout, '{"offsetTable":{"orders@billing":{0:100,1:7},"orders@audit":{0:80}}}')
    maximum = {("orders", 0): 80, ("orders", 1): 9}
    old = layout.consumer_offsets.read_bytes()
    clamped = loaded(layout).clamp(lambda topic, queue_id: maximum.get((topic, queue_id)))
    assert clamped == [SET_BACK]
    assert loaded(layout).get("orders", "billing") == {0: 80, 1: 7}
    assert loaded(layout).get("orders", "audit") == {0: 80}
    assert (layout.quarantine / "consumerOffset.json-0").read_bytes() == old


def test_offsets_of_a_store_that_is_only_read_are_set_back_in_memory(layout: StoreLayout) -> None:
    text = '{"offsetTable":{"orders@billing":{0:100,1:7}}}'
    write(layout, text)
    offsets = loaded(layout, read_only=True)
    assert offsets.clamp(lambda topic, queue_id: 80) == [SET_BACK]
    assert offsets.get("orders", "billing") == {0: 80, 1: 7}
    assert layout.consumer_offsets.read_text() == text


def test_offsets_of_a_queue_of_which_nothing_is_known_stay(layout: StoreLayout) -> None:
    write(layout, '{"offsetTable":{"gone@billing":{0:100}}}')
    assert loaded(layout).clamp(lambda topic, queue_id: None) == []
    assert loaded(layout).get("gone", "billing") == {0: 100}


def test_a_clamp_without_effect_writes_nothing(layout: StoreLayout) -> None:
    write(layout, '{"offsetTable":{"orders@billing":{0:5}}}')
    before = layout.consumer_offsets.stat()
    loaded(layout).clamp(lambda topic, queue_id: 5)
    after = layout.consumer_offsets.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_highest_offset_is_a_floor_for_the_next_message(layout: StoreLayout) -> None:
    write(layout, '{"offsetTable":{"orders@a":{0:5,1:9},"orders@b":{0:8},"other@c":{0:99}}}')
    offsets = loaded(layout)
    assert [offsets.highest("orders", n) for n in (0, 1, 2)] == [8, 9, 0]
    offsets.commit("orders", "a", {0: 12, 1: 4}, 0, lambda end: None)
    assert [offsets.highest("orders", n) for n in (0, 1, 2)] == [12, 4, 0]
    write(layout, '{"offsetTable":{"orders@b":{0:8}}}')
    offsets.load()
    assert [offsets.highest("orders", n) for n in (0, 1, 2)] == [8, 0, 0]


def test_the_floors_of_all_queues_take_one_look_at_the_table(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first put of each queue asks."""
    write(layout, '{"offsetTable":{"orders@a":{0:5,1:9},"orders@b":{0:8}}}')
    offsets = loaded(layout)
    looks = []
    offsets_of = offset_tables.offsets_of
    monkeypatch.setattr(
        offset_tables, "offsets_of", lambda row: looks.append(row) or offsets_of(row)
    )
    assert [offsets.highest("orders", n) for n in range(1000)][:3] == [8, 9, 0]
    assert len(looks) == 2


def test_a_second_live_consumer_of_a_group_is_refused(offsets: ConsumerOffsets) -> None:
    first, second = Owner(), Owner()
    offsets.claim("orders", "billing", first)
    with pytest.raises(GroupClaimedError, match=r"billing.*orders"):
        offsets.claim("orders", "billing", second)
    offsets.claim("payments", "billing", second)
    offsets.claim("orders", "audit", second)


def test_readers_own_no_group(layout: StoreLayout) -> None:
    """Two of them may look at one group; none of them may commit, and the file stays as it is."""
    writer = loaded(layout)
    writer.commit("orders", "billing", {0: 3}, 0, lambda end: None)
    writer.merge()
    before = layout.consumer_offsets.read_bytes()
    offsets = ConsumerOffsets(layout, read_only=True)
    offsets.load()
    first, second = Owner(), Owner()
    for owner in (first, second):
        offsets.claim("orders", "billing", owner)
        with pytest.raises(StoreReadOnlyError, match="mode='r'"):
            offsets.commit("orders", "billing", {0: 4}, 0, lambda end: None, owner)
    assert offsets.get("orders", "billing") == {0: 3}
    assert layout.consumer_offsets.read_bytes() == before


def test_a_released_group_can_be_claimed(offsets: ConsumerOffsets) -> None:
    first, second = Owner(), Owner()
    offsets.claim("orders", "billing", first)
    offsets.release("orders", "billing", second)
    with pytest.raises(GroupClaimedError):
        offsets.claim("orders", "billing", second)
    offsets.release("orders", "billing", first)
    offsets.claim("orders", "billing", second)


def test_a_consumer_that_was_forgotten_holds_no_claim(offsets: ConsumerOffsets) -> None:
    first, second = Owner(), Owner()
    offsets.claim("orders", "billing", first)
    del first
    gc.collect()
    offsets.claim("orders", "billing", second)


def test_a_group_name_that_rocketmq_refuses_is_refused(layout: StoreLayout) -> None:
    with pytest.raises(ValueError, match="group"):
        loaded(layout).claim("orders", "bil@ling", Owner())


def test_a_reader_may_look_at_a_group_of_any_name(layout: StoreLayout) -> None:
    offsets = ConsumerOffsets(layout, read_only=True)
    offsets.claim("orders", "bil@ling", Owner())


def test_the_groups_of_all_topics_take_one_look_at_the_table(
    monkeypatch: pytest.MonkeyPatch, offsets: ConsumerOffsets
) -> None:
    for number in range(20):
        offsets.commit(f"topic{number}", f"group{number}", {0: 0}, 0, lambda end: None)
    looked = []
    real = offset_tables.split_key
    monkeypatch.setattr(offset_tables, "split_key", lambda key: looked.append(key) or real(key))
    for number in range(20):
        assert offsets.groups(f"topic{number}") == (f"group{number}",)
    assert len(offsets.groups()) == 20
    assert len(looked) == 20
    offsets.commit("topic0", "another", {0: 0}, 0, lambda end: None)
    assert offsets.groups("topic0") == ("another", "group0")


def test_half_of_a_surrogate_pair_keeps_no_commit_from_the_file(layout: StoreLayout) -> None:
    """JSON names it by an escape, and UTF-8 has none for it: neither a commit nor the next open for
    writing got by."""
    write(layout, '{"offsetTable":{"orders@g":{"0":99},"\\ud800@g":{"0":1},"Größe@g":{"0":2}}}')
    offsets = loaded(layout)
    [moved] = offsets.clamp(lambda topic, _: 5 if topic == "orders" else None)
    assert moved.now == 5
    offsets.commit("orders", "g", {0: 7}, 0, durable)
    offsets.commit("\ud800", "g", {0: 3}, 0, durable)
    assert loaded(layout).get("\ud800", "g") == {0: 3}  # by the journal
    offsets.close()
    rows = json.loads(layout.consumer_offsets.read_bytes())["offsetTable"]
    assert rows == {"orders@g": {"0": 7}, "\ud800@g": {"0": 3}, "Größe@g": {"0": 2}}
