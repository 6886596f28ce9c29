"""Appending: batches, both families of addresses, the end of a file, limits, light queues."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rocketstore import (
    ConfigError,
    CorruptRecordError,
    MessageRejectedError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    PutResult,
    Store,
)
from tests.support.made_store import write_at
from tests.support.small_store import (
    BLANK_MAGIC,
    SEGMENT,
    dispatched,
    everything,
    log_bytes,
    open_small,
    open_still,
)

IPV6 = "[2001:db8::7]:10911"
#: Fixed fields of a record with IPv4 hosts, a topic of 6 bytes and the record CRC as only property.
EMPTY_RECORD = 91 + 6 + 20
LIGHT: dict[str, Any] = {"multi_dispatch_enabled": True, "light_queue_enabled": True}


def plain(store: Store, body: bytes, **options: Any) -> PutResult:
    return store.put_message("orders", body, **options)


# ---- batches ----


@pytest.mark.parametrize(("host", "length"), [("127.0.0.1:10911", 32), (IPV6, 56)])
def test_each_message_of_a_batch_has_an_id_of_its_own(
    tmp_path: Path, host: str, length: int
) -> None:
    with open_small(tmp_path, store_host=host) as store:
        result = store.writer("orders").put_batch([b"body"] * 10, tags="abc")
        messages = [store.get(offset) for offset in result.physical_offsets]
        ids = [m.message_id for m in messages]
        assert len(set(ids)) == 10
        assert {len(text) for text in ids} == {length}
        assert result.message_id == ids[0]
        assert {m.store_host for m in messages} == {host}


def test_a_batch_with_ipv6_addresses_takes_24_bytes_more_for_each_message(tmp_path: Path) -> None:
    """Both hosts of a record have 20 bytes instead of 8; readers find every record behind it."""
    sizes = {}
    for name, host in (("v4", "127.0.0.1:10911"), ("v6", IPV6)):
        with open_small(tmp_path / name, store_host=host) as store:
            result = store.writer("orders").put_batch([b"body%d" % n for n in range(10)])
            sizes[name] = result.size
            bodies = [m.body for m in everything(dispatched(store))]
            assert bodies == [b"body%d" % n for n in range(10)]
            assert result.size == store.end_offset
    assert sizes == {"v4": 10 * (EMPTY_RECORD + 5), "v6": 10 * (EMPTY_RECORD + 5 + 24)}


@pytest.mark.parametrize("host", ["127.0.0.1:10911", IPV6])
def test_a_batch_that_meets_the_end_leaves_only_a_header_there(tmp_path: Path, host: str) -> None:
    """Part of it would fit: none is written, the rest of the file is a blank of eight bytes."""
    with open_small(tmp_path, store_host=host) as store:
        first = store.writer("orders").put(b"x" * (SEGMENT - 1000))
        result = store.writer("orders").put_batch([b"body"] * 12, tags="abc")
        assert (result.physical_offset, result.queue_offset) == (SEGMENT, 1)
        assert result.physical_offsets[-1] < 2 * SEGMENT
        rest = SEGMENT - first.end_offset
        assert 300 < rest < result.size
        left = log_bytes(tmp_path)[first.end_offset : SEGMENT]
        assert left[:8] == struct.pack(">i", rest) + BLANK_MAGIC
        assert left[8:] == bytes(rest - 8)


def test_one_changed_property_in_a_batch_spoils_that_message_alone(tmp_path: Path) -> None:
    with open_still(tmp_path, "os") as store:
        result = store.writer("orders").put_batch(
            [b"body"] * 5, tags="abc", properties={name: name * 8 for name in "abcdef"}
        )
        store.wait_flushed(result.end_offset)
        last = result.physical_offsets[-1]
        at = log_bytes(tmp_path).rindex(b"dddddddd")
        assert last < at < result.end_offset
        write_at(tmp_path / "commitlog" / ("0" * 20), at, b"D")
        for offset in result.physical_offsets[:-1]:
            assert store.get(offset).properties["d"] == "dddddddd"
        with pytest.raises(CorruptRecordError):
            store.get(last)


def test_a_checksum_that_comes_along_is_replaced_by_that_of_the_record(tmp_path: Path) -> None:
    """A message that was read from one store and is put into another brings the old one."""
    with open_small(tmp_path) as store:
        result = plain(store, b"x", properties={"__CRC32#": "1234567890", "a": "b"})
        message = store.get(result.physical_offset)
        assert message.properties == {"a": "b"}
        record = bytes(message)
        assert record.count(b"__CRC32#") == 1
        assert b"1234567890" not in record


# ---- addresses and the end of a file ----


@pytest.mark.parametrize(("more", "rolls"), [(0, False), (1, True)])
def test_ipv6_addresses_count_at_the_end_of_a_file(tmp_path: Path, more: int, rolls: bool) -> None:
    with open_small(tmp_path, store_host=IPV6) as store:
        fits = SEGMENT - 8 - 2 * (EMPTY_RECORD + 24)
        first = store.writer("orders").put(b"x" * 1000)
        second = store.writer("orders").put(b"y" * (fits - 1000 + more))
        assert second.physical_offset == (SEGMENT if rolls else first.end_offset)
        assert [m.queue_offset for m in everything(dispatched(store))] == [0, 1]


def test_messages_of_both_families_share_a_queue(tmp_path: Path) -> None:
    """Before, between and after: order, addresses and bodies stay each message's own."""
    hosts = ["10.0.0.1:1", "[fe80::1]:2"] * 10
    with open_small(tmp_path) as store:
        for number, host in enumerate(hosts):
            plain(store, b"%d" % number, born_host=host, store_host=host)
        found = everything(dispatched(store))
        assert [(m.queue_offset, m.body) for m in found] == [(n, b"%d" % n) for n in range(20)]
        assert [m.born_host for m in found] == [m.store_host for m in found] == hosts
        assert {a.size - b.size for a, b in zip(found[1:10:2], found[:10:2], strict=True)} == {24}
        assert plain(store, b"after").queue_offset == 20


# ---- limits ----


def test_body_topic_and_properties_may_be_at_their_limits_together(tmp_path: Path) -> None:
    topic, limit = "t" * 127, 5000
    properties = {"p": "v" * (32_767 - len("p\1\2") - 20)}
    with open_small(
        tmp_path, commit_log_file_size_bytes=1 << 16, max_message_size_bytes=limit
    ) as store:
        result = store.put_message(topic, b"x" * limit, properties=properties)
        assert result.size == 91 + limit + 127 + 32_767
        message = store.get(result.physical_offset)
        assert (message.topic, message.body, message.properties) == (
            topic,
            b"x" * limit,
            properties,
        )
        for more in (1, 65_536):
            with pytest.raises(MessageTooLargeError):
                store.put_message(topic, b"x" * (limit + more), properties=properties)
        with pytest.raises(PropertiesTooLargeError):
            store.put_message(topic, b"", properties={"p": properties["p"] + "v"})
        with pytest.raises(MessageRejectedError):
            store.put_message(topic + "t", b"")
        assert store.end_offset == result.end_offset


def test_properties_that_are_too_long_take_no_queue_offset(tmp_path: Path) -> None:
    with open_small(tmp_path, commit_log_file_size_bytes=1 << 16) as store:
        with pytest.raises(PropertiesTooLargeError) as caught:
            plain(store, b"123", properties={"p": "v" * 32_768})
        assert caught.value.status == "PROPERTIES_SIZE_EXCEEDED"
        assert dispatched(store).max_queue_offset("orders", 0) == 0
        assert plain(store, b"123", properties={"p": "v" * 100}).queue_offset == 0
        assert dispatched(store).max_queue_offset("orders", 0) == 1


def test_the_limit_of_a_message_can_be_raised_and_lowered_while_running(tmp_path: Path) -> None:
    """K-20: raised no further than a file of the log can hold."""
    with open_small(tmp_path, max_message_size_bytes=100) as store:
        with pytest.raises(MessageTooLargeError):
            plain(store, b"x" * 110)
        store.configure(max_message_size_bytes=110)
        assert plain(store, b"x" * 110).queue_offset == 0
        store.configure(max_message_size_bytes=10)
        with pytest.raises(MessageTooLargeError):
            plain(store, b"x" * 110)
        with pytest.raises(ConfigError, match="max_message_size_bytes"):
            store.configure(max_message_size_bytes=SEGMENT)
        assert plain(store, b"x" * 10).queue_offset == 1


def test_the_limit_counts_each_message_of_a_batch_by_itself(tmp_path: Path) -> None:
    with open_small(tmp_path, max_message_size_bytes=100) as store:
        writer = store.writer("orders")
        assert writer.put_batch([b"x" * 100] * 5).count == 5
        end = store.end_offset
        with pytest.raises(MessageTooLargeError):
            writer.put_batch([b"x" * 100, b"x" * 101])
        with pytest.raises(MessageTooLargeError):
            writer.put_batch([b"x" * 100] * (SEGMENT // 100))
        assert store.end_offset == end


# ---- light queues ----


def test_a_light_queue_counts_a_message_that_rolled_once(tmp_path: Path) -> None:
    with open_small(tmp_path, **LIGHT) as store:
        for _ in range(3):
            plain(store, b"x" * 2500, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        offsets = [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in everything(dispatched(store))]
        assert offsets == ["0", "1", "2"]
        assert store.max_queue_offset("%LMQ%a", 0) == 3


def test_ordinary_and_light_names_in_one_list_each_have_their_offset(tmp_path: Path) -> None:
    """Q-34: RocketMQ 5 leaves the ordinary name's item empty, and then no queue gets the message."""
    listed = {"INNER_MULTI_DISPATCH": "%LMQ%a,plain,%LMQ%b"}
    with open_small(tmp_path, **LIGHT) as store:
        plain(store, b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%b"})
        result = plain(store, b"y", queue_id=2, properties=listed)
        properties = store.get(result.physical_offset).properties
        assert properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0,1"
        dispatched(store)
        assert [m.body for m in everything(store, "plain")] == [b"y"]
        assert (store.queues("plain"), store.queues("%LMQ%a")) == ([2], [0])
        assert [m.body for m in everything(store, "%LMQ%b")] == [b"x", b"y"]


def test_light_queues_have_a_highest_number(tmp_path: Path) -> None:
    """K-23: the limit holds; queues that are there already go on."""
    with open_small(tmp_path, max_light_queues=2, **LIGHT) as store:
        for name in ("%LMQ%a", "%LMQ%b"):
            plain(store, b"x", properties={"INNER_MULTI_DISPATCH": name})
        end = store.end_offset
        with pytest.raises(MessageRejectedError, match="max_light_queues"):
            plain(store, b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%c"})
        assert store.end_offset == end
        plain(store, b"y", properties={"INNER_MULTI_DISPATCH": "%LMQ%b"})
        assert dispatched(store).max_queue_offset("%LMQ%b", 0) == 2
        assert store.queues("%LMQ%c") == []
    # It is the store that has them, and not the process: neither does a restart make room, nor does a lower
    # number shut out those that there are.
    for limit in (2, 1):
        with open_small(tmp_path, max_light_queues=limit, **LIGHT) as store:
            for name in ("%LMQ%c", "%LMQ%b,%LMQ%c"):
                with pytest.raises(MessageRejectedError, match="there are 2 already"):
                    plain(store, b"x", properties={"INNER_MULTI_DISPATCH": name})
            plain(store, b"z", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
    with open_small(tmp_path, max_light_queues=3, **LIGHT) as store:
        with pytest.raises(MessageRejectedError, match="there are 2 already"):
            plain(store, b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%c,%LMQ%d"})
        plain(store, b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%c"})
