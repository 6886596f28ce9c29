"""`log.layout` and `log.state_files`: names that are safe, files that are whole, owners that stay."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore.errors import InvalidGroupError, InvalidTopicError, MessageRejectedError
from rocketstore.log.layout.paths import (
    StoreLayout,
    check_group,
    check_topic,
    is_safe_topic,
    parse_segment_name,
    segment_name,
)

pytestmark = pytest.mark.quick


# ---- names ----


def test_where_everything_lies() -> None:
    """S000-02: the names of format.md 1, and ours beside them."""
    layout = StoreLayout(Path("/data/store"))
    shown = {
        name: str(getattr(layout, name).relative_to(layout.root))
        for name in dir(StoreLayout)
        if isinstance(getattr(StoreLayout, name), cached_property)
        and name not in ("directories", "logs")
    }
    assert layout.logs == (layout.commit_log,)
    assert shown == {
        "commit_log": "commitlog",
        "consume_queue": "consumequeue",
        "batch_consume_queue": "batchconsumequeue",
        "rocksdb": "rocksdbstore",
        "index": "index",
        "checkpoint": "checkpoint",
        "abort": "abort",
        "lock": "lock",
        "config": "config",
        "consumer_offsets": "config/consumerOffset.json",
        "delay_offsets": "config/delayOffset.json",
        "own": "rocketstore",
        "own_checkpoint": "rocketstore/checkpoint",
        "positions": "rocketstore/positions",
        "store_json": "rocketstore/store.json",
        "live": "rocketstore/live",
        "host_socket": "rocketstore/host.sock",
        "quarantine": "rocketstore/quarantine",
        "recovery": "rocketstore/recovery.json",
        "queue_ends": "rocketstore/queue_ends",
        "queue_files": "rocketstore/queue_files",
        "blocked_queues": "rocketstore/blocked_queues",
        "removal": "rocketstore/removal",
        "timers": "rocketstore/timers",
        "timer_state": "rocketstore/timers/state",
        "replication": "rocketstore/replication.json",
        "cut": "rocketstore/cut.json",
        "retention": "rocketstore/retention.json",
        "compacted": "rocketstore/compacted.json",
        "holds": "rocketstore/holds.json",
        "shipped": "rocketstore/shipped.json",
        "tmp": "rocketstore/tmp",
        "journal": "rocketstore/journal",
        "group_offsets": "rocketstore/group_offsets",
    }


def test_a_later_chdir_does_not_move_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    layout = StoreLayout(Path("store"))
    monkeypatch.chdir("/")
    assert layout.root == tmp_path / "store"


def test_a_queues_directory() -> None:
    layout = StoreLayout(Path("/data"))
    assert layout.queue_directory("%RETRY%g", 7) == Path("/data/consumequeue/%RETRY%g/7")
    for queue_id in (-1, 2**31):
        with pytest.raises(ValueError, match="queue_id"):
            layout.queue_directory("t", queue_id)


@pytest.mark.parametrize(
    "topic", ["..", ".", "a/b", "", "/etc", "a\0b", "ü\n", "a" * 256, "\udcff"]
)
def test_no_topic_leaves_the_store(topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        StoreLayout(Path("/data")).queue_directory(topic, 0)


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (0, "00000000000000000000"),
        (1 << 30, "00000000001073741824"),
        (2**63 - 1, "09223372036854775807"),
    ],
)
def test_segment_names(start: int, name: str) -> None:
    """S000-04 S004-26: the start offset as 20 digits, and back."""
    assert segment_name(start) == name
    assert parse_segment_name(name) == start


@pytest.mark.parametrize("start", [-1, 2**63])
def test_offsets_without_a_name(start: int) -> None:
    with pytest.raises(ValueError, match="start_offset"):
        segment_name(start)


@pytest.mark.parametrize(
    "name",
    ["", "0", "0" * 19, "0" * 21, "0" * 19 + "x", "-" + "0" * 19, "٠" * 20, "0" * 20 + "\n",
     " " + "0" * 19, "9" * 20, "0" * 20 + ".tmp"],
)  # fmt: skip
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_segment_name(name) is None


@given(st.integers(0, 2**63 - 1))
def test_every_offset_comes_back_from_its_name(start: int) -> None:
    assert parse_segment_name(segment_name(start)) == start


@pytest.mark.parametrize(
    "topic", ["t", "a" * 127, "%RETRY%group", "A-b_c|9", "SCHEDULE_TOPIC_XXXX"]
)
def test_topics_that_are_allowed(topic: str) -> None:
    assert check_topic(topic) == topic.encode()
    assert is_safe_topic(topic.encode())


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("", "it is empty"),
        ("a" * 128, "it has 128 bytes"),
        ("a b", "' ' at position 1 is not allowed"),
        ("ab/c", "'/' at position 2 is not allowed"),
        (".", "'.' at position 0 is not allowed"),
        ("..", "'.' at position 0 is not allowed"),
        ("a\0", r"'\x00' at position 1 is not allowed"),
        ("topic\n", r"'\n' at position 5 is not allowed"),
        ("größe", "'ö' at position 2 is not allowed"),
        ("а", "'а' at position 0 is not allowed"),  # the Cyrillic letter
    ],
)
def test_a_refused_topic_says_what_is_wrong(topic: str, fault: str) -> None:
    with pytest.raises(InvalidTopicError) as caught:
        check_topic(topic)
    told = str(caught.value)
    assert told.startswith("topic = ")
    assert fault in told
    assert "% | - _ and ASCII letters and digits, 1 to 127 bytes" in told
    assert isinstance(caught.value, MessageRejectedError)
    assert caught.value.status == "MESSAGE_ILLEGAL"


def test_a_long_topic_is_shown_in_part() -> None:
    with pytest.raises(InvalidTopicError) as caught:
        check_topic("a" * 100_000)
    assert "it has 100000 bytes" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_wide_topics_need_to_be_asked_for() -> None:
    assert check_topic("a" * 255, wide=True) == b"a" * 255
    with pytest.raises(InvalidTopicError, match="1 to 255 bytes"):
        check_topic("a" * 256, wide=True)


def test_a_topic_is_text() -> None:
    with pytest.raises(TypeError, match="topic must be str, not bytes"):
        check_topic(b"topic")  # type: ignore[arg-type]


def test_groups_follow_the_same_rule() -> None:
    assert check_group("billing-2") == b"billing-2"
    for wrong in ("", "a@b", "a/b", "g" * 256):
        with pytest.raises(InvalidGroupError, match=r"^group = "):
            check_group(wrong)


@given(st.binary(max_size=300))
def test_a_safe_topic_stays_in_its_directory(raw: bytes) -> None:
    if is_safe_topic(raw):
        directory = StoreLayout(Path("/data")).queue_directory(raw.decode(), 0)
        assert os.path.normpath(directory) == str(directory)
        assert directory.parent.parent == Path("/data/consumequeue")
    else:
        with pytest.raises(InvalidTopicError):
            check_topic(raw.decode("latin-1"), wide=True)
