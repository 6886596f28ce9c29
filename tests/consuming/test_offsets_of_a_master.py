"""A copy has the offsets of its master's groups, and groups of its own beside these."""

from __future__ import annotations

import errno
import json

import pytest

from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.consuming.offset_tables import BELIEVED_MAX
from rocketstore.errors import ReplicaStoreError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.values.bounded_json import LIMITS, Limits


@pytest.fixture
def layout(tmp_path):
    found = StoreLayout(tmp_path)
    for directory in (found.config, found.own, found.tmp):
        directory.mkdir(exist_ok=True)
    return found


def copy_at(layout: StoreLayout) -> ConsumerOffsets:
    offsets = ConsumerOffsets(layout)
    offsets.load()
    offsets.master = "store-1:10912"
    return offsets


def commit(offsets: ConsumerOffsets, group: str, offset: int, topic: str = "orders") -> None:
    offsets.commit(topic, group, {0: offset}, 0, lambda end: None)


def rows_of(offsets: ConsumerOffsets) -> dict[str, object]:
    return dict(offsets.table)


@pytest.fixture
def offsets(layout: StoreLayout) -> ConsumerOffsets:
    """Those of a copy."""
    return copy_at(layout)


def test_a_whole_state_replaces_all_groups_but_own_ones(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:
    offsets.take_from_master({"orders@a": {0: 5, 1: 7}, "orders@b": {0: 1}}, whole=True)
    commit(offsets, "mine", 3)
    offsets.take_from_master({"orders@a": {0: 6}, "paid@c": {2: 9}}, whole=True)
    expected = {"orders@a": {"0": 6}, "paid@c": {"2": 9}, "orders@mine": {"0": 3}}
    assert rows_of(offsets) == rows_of(copy_at(layout)) == expected


def test_changes_set_back_and_remove(layout: StoreLayout, offsets: ConsumerOffsets) -> None:
    offsets.take_from_master({"orders@a": {0: 5}, "orders@b": {0: 1}}, whole=True)
    offsets.take_from_master({"orders@a": {0: 2}}, whole=False)
    assert rows_of(copy_at(layout)) == {"orders@a": {"0": 2}, "orders@b": {"0": 1}}
    offsets.take_from_master({"orders@b": {}}, whole=False)
    assert rows_of(copy_at(layout)) == {"orders@a": {"0": 2}}


def test_a_table_that_could_not_be_read_again_is_not_stored(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next open would begin with no offset at all, of own groups neither."""
    monkeypatch.setitem(LIMITS, layout.consumer_offsets.name, Limits(2000, 1000))
    offsets = copy_at(layout)
    commit(offsets, "mine", 3)
    offsets.take_from_master({"orders@a": {0: 5}}, whole=True)
    before = rows_of(offsets)
    with pytest.raises(OSError, match=r"more than 2,000 bytes.*consumerOffset\.json") as refused:
        offsets.take_from_master({f"orders@g{n}": {0: n} for n in range(100)}, whole=True)
    assert refused.value.errno == errno.EFBIG
    assert rows_of(offsets) == rows_of(copy_at(layout)) == before


def test_changes_of_offsets_alone_go_to_the_journal(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:
    offsets.take_from_master({"orders@a": {0: 5}}, whole=True)
    offsets.merge()
    before = layout.consumer_offsets.stat().st_ino
    offsets.take_from_master({"orders@a": {0: 6}, "orders@b": {0: 1}}, whole=False)
    assert layout.consumer_offsets.stat().st_ino == before
    assert rows_of(copy_at(layout)) == {"orders@a": {"0": 6}, "orders@b": {"0": 1}}
    offsets.take_from_master({"orders@a": {0: 6}, "orders@b": {0: 1}}, whole=True)
    assert layout.consumer_offsets.stat().st_ino == before  # nothing to do


def test_a_group_of_the_master_commits_there_only(offsets: ConsumerOffsets) -> None:
    offsets.take_from_master({"orders@a": {0: 5}}, whole=True)
    with pytest.raises(ReplicaStoreError, match="'a' of topic 'orders'.*store-1:10912"):
        commit(offsets, "a", 9)
    assert offsets.get("orders", "a") == {0: 5}
    commit(offsets, "a", 1, topic="paid")  # another topic is another matter
    commit(offsets, "a", 2, topic="paid")
    assert offsets.get("paid", "a") == {0: 2}


def test_a_group_that_the_master_gets_is_no_own_one_any_more(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:
    commit(offsets, "a", 9)
    assert offsets.own == copy_at(layout).own == {"orders@a"}
    offsets.take_from_master({"orders@a": {0: 5}}, whole=False)
    assert copy_at(layout).own == set()
    assert copy_at(layout).get("orders", "a") == {0: 5}
    with pytest.raises(ReplicaStoreError):
        commit(offsets, "a", 9)


def test_own_groups_are_known_after_a_kill(layout: StoreLayout, offsets: ConsumerOffsets) -> None:
    commit(offsets, "mine", 3)
    commit(offsets, "mine", 4)  # into the journal
    killed = copy_at(layout)
    killed.take_from_master({}, whole=True)
    assert rows_of(killed) == {"orders@mine": {"0": 4}}


def test_what_makes_no_sense_is_left_alone(layout: StoreLayout) -> None:
    layout.consumer_offsets.write_text(
        '{"offsetTable":{"nonsense":{"0":1},"orders@a":{"0":1}},"rocketstore":{"own":[3,"x@y"]}}'
    )
    offsets = copy_at(layout)
    assert offsets.own == {"x@y"}
    offsets.take_from_master({"orders@b": {0: 2}}, whole=True)
    assert rows_of(copy_at(layout)) == {"nonsense": {"0": 1}, "orders@b": {"0": 2}}


def test_a_file_without_own_groups_says_nothing_of_them(layout: StoreLayout) -> None:
    """RocketMQ's form, and how far the journal has come, in a store that never was a copy."""
    offsets = ConsumerOffsets(layout)
    offsets.load()
    commit(offsets, "a", 9)
    offsets.close()
    document = json.loads(layout.consumer_offsets.read_text())
    assert set(document.pop("rocketstore")) == {"merged", "crc", "own_crc"}
    assert document == {"offsetTable": {"orders@a": {"0": 9}}}


class KilledError(Exception):
    """Stands for a kill."""


def test_a_kill_between_the_files_leaves_the_old_state_or_the_new_one(
    layout: StoreLayout, offsets: ConsumerOffsets
) -> None:
    """Also where groups go back to what the file has of them, while another one is removed."""
    offsets.take_from_master({"orders@a": {0: 7}, "orders@b": {0: 1}}, whole=True)
    offsets.merge()
    offsets.take_from_master({"orders@a": {0: 9}, "orders@c": {0: 5}}, whole=False)
    old = rows_of(offsets)

    def die(merged: int) -> None:
        raise KilledError

    offsets._journal.after_merge = die  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        offsets.take_from_master({"orders@a": {0: 7}, "orders@b": {}, "orders@c": {}}, whole=False)
    assert rows_of(copy_at(layout)) in (old, {"orders@a": {"0": 7}})


def test_an_offset_at_which_no_queue_begins_goes_back_to_the_other_groups(
    layout: StoreLayout,
) -> None:
    """A queue without messages begins after the offsets that stay."""
    far = BELIEVED_MAX + 1
    rows = {"t@far": {0: far, 1: far, 2: BELIEVED_MAX}, "t@a": {0: 5}, "t@b": {0: 7}}
    copy_at(layout).take_from_master(rows, whole=True)
    opened = copy_at(layout)
    moved = opened.clamp(lambda topic, queue_id: None)
    assert [(one.group, one.queue_id, one.was, one.now) for one in moved] == [
        ("far", 0, far, 7),
        ("far", 1, far, 0),
    ]
    assert copy_at(layout).get("t", "far") == {0: 7, 1: 0, 2: BELIEVED_MAX}
    assert copy_at(layout).get("t", "b") == {0: 7}
