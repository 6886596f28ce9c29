"""Options: what is refused when a config is built, and what a broker's settings become."""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import pickle
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import rocketstore
from rocketstore.config import StoreConfig
from rocketstore.config.options import Options, explain, facts_of
from rocketstore.config.typed_options import LiveOptions, StoreOptions
from rocketstore.errors import ConfigError
from rocketstore.values.durability import Durability, split_host

FIELDS = {item.name: item for item in dataclasses.fields(StoreConfig) if item.init}
NUMBERS = sorted(name for name, item in FIELDS.items() if facts_of(item).allowed is not None)
BOOLEANS = sorted(name for name, item in FIELDS.items() if isinstance(item.default, bool))
#: What a number needs beside it to be allowed at its own bounds.
COMPANIONS: dict[str, dict[str, Any]] = {
    "max_message_size_bytes": {"commit_log_file_size_bytes": 2**31 - 1, "durability": "os"},
    "write_buffer_bytes": {"max_message_size_bytes": 1, "commit_log_file_size_bytes": 4096},
}


def refusal(**options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        StoreConfig(**options)
    return caught.value


def test_defaults_are_rocketmqs() -> None:
    """S000-03 S001-37 S002-06 S002-30 S002-31 S002-32: the defaults of semantics 15."""
    config = StoreConfig()
    assert config.commit_log_file_size_bytes == 1 << 30
    assert config.consume_queue_file_size_bytes == 300_000 * 20
    assert config.max_message_size_bytes == 4 << 20
    assert (config.flush_interval_ms, config.flush_least_pages) == (500, 4)
    assert (config.flush_thorough_interval_ms, config.flush_timed) == (10_000, True)
    assert (config.commit_interval_ms, config.commit_thorough_interval_ms) == (200, 200)
    assert config.consume_queue_flush_interval_ms == 1000
    assert (config.transient_pool_buffers, config.transient_pool_fast_fail) == (5, False)
    assert (config.index_enabled, config.index_slots) == (True, 5_000_000)
    assert config.index_entries == 20_000_000
    assert config.sync_flush_timeout_ms == 5000


def test_our_own_promises_are_the_default() -> None:
    config = StoreConfig()
    assert config.durability == "disk"
    assert config.record_crc
    assert config.visible_is_flushed
    assert config.max_undispatched_bytes == 64 << 20
    assert config.write_buffer_bytes == 8 << 20


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_allowed_at_its_bounds_and_refused_beyond(name: str) -> None:
    allowed = facts_of(FIELDS[name]).allowed
    assert allowed is not None
    low, high = allowed
    companions = COMPANIONS.get(name, {})
    if name == "max_message_size_bytes":
        high = 2**31 - 1 - 8 - 92 - 20
    for value in (low, high):
        expected = -(-value // 20) * 20 if name == "consume_queue_file_size_bytes" else value
        options = companions
        if (name, value) == ("write_buffer_bytes", low):
            options = {**companions, "commit_log_file_size_bytes": 4096}
        assert getattr(StoreConfig(**{**options, name: value}), name) == expected
    for value in (low - 1, high + 1):
        error = refusal(**{**companions, name: value})
        assert (error.field, error.value) == (name, value)
        assert str(high if value > low else low) in error.allowed


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, 1.0, "4096", None])
def test_a_number_must_be_a_whole_number(name: str, value: object) -> None:
    error = refusal(**{name: value})
    assert error.field == name
    assert "whole number" in error.allowed


@pytest.mark.parametrize("name", BOOLEANS)
@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_switch_must_be_a_bool(name: str, value: object) -> None:
    assert refusal(**{name: value}).field == name


@pytest.mark.parametrize("name", ["visible", "store_host", "delay_levels", "durability"])
@pytest.mark.parametrize("value", [None, 3, b"disk", ""])
def test_texts_are_checked(name: str, value: object) -> None:
    assert refusal(**{name: value}).field == name


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    error = refusal(flush_interval=5)
    assert error.field == "flush_interval"
    assert "flush_interval_ms" in error.allowed


def test_consume_queue_files_hold_whole_units() -> None:
    """S003-03: 512 bytes become 520, as RocketMQ's getter rounds."""
    assert StoreConfig(consume_queue_file_size_bytes=512).consume_queue_file_size_bytes == 520
    assert StoreConfig(consume_queue_file_size_bytes=520).consume_queue_file_size_bytes == 520


def test_message_limit_follows_a_small_file_unless_it_was_given() -> None:
    """K-20: a message that could not fit any file is refused before it burns two of them."""
    small = StoreConfig(commit_log_file_size_bytes=512)
    assert small.max_message_size_bytes == 512 - 8 - 92 - 20
    assert small.record_limit_bytes == 512 - 8
    without_crc = StoreConfig(commit_log_file_size_bytes=512, record_crc=False)
    assert without_crc.max_message_size_bytes == 512 - 8 - 92
    given = StoreConfig(commit_log_file_size_bytes=512, max_message_size_bytes=392)
    assert given.max_message_size_bytes == 392
    error = refusal(commit_log_file_size_bytes=512, max_message_size_bytes=393)
    assert error.field == "max_message_size_bytes"
    assert "392" in error.allowed


def test_sizes_are_settable() -> None:
    """S003-02 S003-04: a log file of 512 bytes, 100 hash slots, 1000 index entries."""
    config = StoreConfig(commit_log_file_size_bytes=512, index_slots=100, index_entries=1000)
    assert config.commit_log_file_size_bytes == 512
    assert (config.index_slots, config.index_entries) == (100, 1000)


def test_the_write_buffer_of_a_disk_store_holds_the_largest_record() -> None:
    body = (8 << 20) - (64 << 10)
    assert StoreConfig(max_message_size_bytes=body).record_limit_bytes == 8 << 20
    assert StoreConfig(max_message_size_bytes=body + 1).write_buffer_bytes == (8 << 20) + 1
    assert StoreConfig(max_message_size_bytes=body).write_buffer_bytes == 8 << 20
    error = refusal(max_message_size_bytes=body + 1, write_buffer_bytes=8 << 20)
    assert error.field == "write_buffer_bytes"
    error = refusal(max_message_size_bytes=1 << 30, commit_log_file_size_bytes=(1 << 31) - 1)
    assert error.field == "write_buffer_bytes"  # its most is 1 GiB
    assert StoreConfig(max_message_size_bytes=body + 1, durability="os", write_buffer_bytes=1 << 16)
    assert StoreConfig(max_message_size_bytes=body + 1, write_buffer_bytes=16 << 20)


@pytest.mark.parametrize("text", ["memory", "os", "disk"])
def test_durability_is_a_plain_text(text: Durability) -> None:
    class Promise(enum.StrEnum):
        GIVEN = text

    given: Any = Promise.GIVEN
    assert StoreConfig(durability=text).durability == text
    assert type(StoreConfig(durability=given).durability) is str


@pytest.mark.parametrize("text", ["replicas(1)", "replicas(10)", "replicas(2", "replicas()"])
def test_a_promise_of_other_machines_names_how_many(text: str) -> None:
    error = refusal(durability=text)
    assert error.field == "durability"
    assert "n 2 … 9" in error.allowed


def test_replicas_alone_are_two() -> None:
    """K-73: this machine and another one."""
    config = StoreConfig(durability="replicas")
    assert config.durability == "replicas(2)"
    assert config.promises_disk and config.visible_is_flushed


def test_visible_end_follows_the_durability_unless_said() -> None:
    """K-09: readers of a disk store see durable messages."""
    assert StoreConfig(durability="disk").visible_is_flushed
    assert not StoreConfig(durability="os").visible_is_flushed
    assert not StoreConfig(durability="disk", visible="committed").visible_is_flushed
    assert StoreConfig(durability="memory", visible="flushed").visible_is_flushed


def test_store_host_in_both_families() -> None:
    assert split_host(StoreConfig().store_host) == (b"\x7f\0\0\1", 10911)
    assert split_host("[::1]:0") == (b"\0" * 15 + b"\1", 0)


@pytest.mark.parametrize(
    "host",
    [
        "localhost:1",
        "1.2.3.4",
        "1.2.3.4:65536",
        "1.2.3.4:-1",
        "::1:10911",
        "[1.2.3.4]:5",
        "1.2.3.4:٣",
    ],
)
def test_a_store_host_that_is_no_address_is_refused(host: str) -> None:
    assert refusal(store_host=host).field == "store_host"


def test_delay_levels() -> None:
    levels = StoreConfig().delay_level_ms
    assert len(levels) == 18
    assert (levels[0], levels[4], levels[17]) == (1000, 60_000, 7_200_000)
    assert StoreConfig(delay_levels=" 2d  1s").delay_level_ms == (172_800_000, 1000)
    for wrong in ("5", "5x", "s", "-1s", "1.5s", " "):
        assert refusal(delay_levels=wrong).field == "delay_levels"


def test_light_queues_need_multi_dispatch() -> None:
    assert refusal(light_queue_enabled=True).field == "light_queue_enabled"
    assert StoreConfig(light_queue_enabled=True, multi_dispatch_enabled=True).light_queue_enabled


def test_a_config_cannot_be_changed() -> None:
    """K-84: threads that read it need no lock."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        StoreConfig().flush_interval_ms = 3  # type: ignore[misc]


def test_given_names_only_what_the_caller_set() -> None:
    """Sizes of an existing store come from its files: only a given one can disagree."""
    assert StoreConfig().given == frozenset()
    assert StoreConfig(index_slots=5_000_000).given == {"index_slots"}
    assert StoreConfig(index_slots=5_000_000) == StoreConfig()


def test_replace_keeps_defaults_alive() -> None:
    config = StoreConfig(flush_interval_ms=7)
    small = config.replace(commit_log_file_size_bytes=512)
    assert (small.flush_interval_ms, small.max_message_size_bytes) == (7, 392)
    assert small.given == {"flush_interval_ms", "commit_log_file_size_bytes"}
    assert config.commit_log_file_size_bytes == 1 << 30
    with pytest.raises(ConfigError):
        config.replace(flush_interval_ms=0)


def test_copies_and_pickles_are_equal() -> None:
    config = StoreConfig(durability="os", index_slots=10)
    for twin in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
        assert twin == config
        assert twin.given == config.given
    assert hash(config) == hash(StoreConfig(durability="os", index_slots=10))


def test_to_dict_is_plain_and_complete() -> None:
    config = StoreConfig(durability="memory", commit_log_file_size_bytes=4096)
    options = config.to_dict()
    assert set(options) == set(FIELDS)
    assert {type(value) for value in options.values()} == {int, bool, str, type(None)}
    assert StoreConfig(**options) == config


def test_live_options_are_flush_timings_and_the_message_limit() -> None:
    assert set(FIELDS) > StoreConfig.LIVE
    assert {name for name in StoreConfig.LIVE if not re.search("flush|commit", name)} == {
        "max_message_size_bytes"
    }


def test_type_checkers_see_the_fields_as_keyword_arguments() -> None:
    hints = get_type_hints(Options)
    assert get_type_hints(StoreOptions) == {name: hints[name] for name in FIELDS}
    assert set(get_type_hints(LiveOptions)) == StoreConfig.LIVE


def test_every_option_is_explained() -> None:
    told = {one.name: one for one in explain()}
    assert list(told) == list(FIELDS)
    for name, item in FIELDS.items():
        one, facts = told[name], facts_of(item)
        assert one.text.endswith("."), name
        unit = {"bytes": "bytes", "ms": "ms", "pages": "pages"}.get(name.rsplit("_", 1)[-1], "")
        assert facts.unit == unit, name
        assert (facts.allowed is not None) == (type(item.default) is int), name
        assert (name in StoreConfig.LIVE) == ("may change while" in one.where), name


def test_help_explains_every_option() -> None:
    text = inspect.getdoc(StoreConfig) or ""
    assert [name for name in FIELDS if f"    {name}: " not in text] == []
    assert "Default 1 GiB; allowed 256 … 2,147,483,647 bytes" in re.sub(r"\s+", " ", text)
    assert "RocketMQ: mappedFileSizeCommitLog" in re.sub(r"\s+", " ", text)


def test_what_a_store_keeps_needs_not_be_given_again(tmp_path: Path) -> None:
    sizes = {"commit_log_file_size_bytes": 1 << 16, "consume_queue_file_size_bytes": 2000}
    given: dict[str, Any] = {**sizes, "record_crc": False, "index_tags": True}
    assert {name for name, item in FIELDS.items() if facts_of(item).kept} == set(given)
    with rocketstore.open(tmp_path, **given) as store:
        first = store.writer("orders").put(b"x")
    with rocketstore.open(tmp_path) as store:
        kept = store.config.to_dict()
        assert {name: kept[name] for name in sizes} == sizes  # type: ignore[literal-required]
        assert kept["index_tags"] is True
        assert store.writer("orders").put(b"x").size == first.size
