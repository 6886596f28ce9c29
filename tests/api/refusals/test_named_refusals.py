"""Refusals name what was meant: the argument to use, the queue, the words that are allowed."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import rocketstore.aio
import rocketstore.tools
from rocketstore import ConfigError, OffsetOutOfRangeError, StoreConfig
from tests.support.small_store import open_small


def test_an_offset_out_of_range_names_its_queue(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("t", queue_id=3).put(b"x")
        with (
            pytest.raises(OffsetOutOfRangeError) as polled,
            store.consumer("t", queue_id=3, offset=7) as consumer,
        ):
            consumer.poll()
        with pytest.raises(OffsetOutOfRangeError) as committed:
            store.consumer("t", group="g").commit({3: 9})
        with pytest.raises(OffsetOutOfRangeError) as got:
            store.get(10_000)
    for caught, asked in ((polled, 7), (committed, 9)):
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == (
            f"topic 't', queue 3: offset {asked} is outside 0 … 1 (OFFSET_OVERFLOW_BADLY)"
        )
        assert (again.topic, again.queue_id) == ("t", 3)
        assert copy.copy(caught.value).queue_id == 3
    assert got.value.topic is None
    assert str(got.value).startswith("offset 10000 is outside ")


@pytest.mark.parametrize("wrong", [True, None, 1, b"disk"])
def test_an_option_of_a_few_words_names_them(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r'durability = .*: must be "memory", "os", "disk" or'):
        StoreConfig(durability=wrong)
    with pytest.raises(ConfigError, match=r'visible = .*: must be "auto", "flushed" or "committed'):
        StoreConfig(visible=wrong)
    with pytest.raises(ConfigError, match="delay_levels = .*: must be text"):
        StoreConfig(delay_levels=wrong)


def test_completion_shows_no_inner_modules() -> None:
    for package in (rocketstore.aio, rocketstore.tools):
        assert set(dir(package)) == set(package.__all__)


def test_flags_show_what_they_are(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        assert repr(store.flags) == "<rocketstore.RunningFlags running>"
