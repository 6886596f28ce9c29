"""What is refused is named as it was given, and what is shown has a bound."""

from __future__ import annotations

import array
import copy
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore.aio
import rocketstore.tools
from rocketstore import OffsetOutOfRangeError, Store
from tests.support.small_store import open_small


def kind(value: object) -> str:
    """A name of a value that is the same in each run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with open_small(tmp_path_factory.mktemp("words") / "s") as store:
        yield store


BUFFERS = [
    np.array([b"ab"]),
    np.array([1, 2]),
    np.array([1.5]),
    np.array([(1, 2)], dtype=[("w", "u1"), ("u", "u1")]),
    array.array("i", [1]),
    memoryview(b"abcd").cast("H"),
    np.zeros((4, 4), "u1")[:, ::2],
]


@pytest.mark.parametrize("body", BUFFERS, ids=kind)
def test_other_buffers_are_stored_as_their_memory(store: Store, body: Any) -> None:
    result = store.writer("t").put(body)
    assert bytes(store.get(result.physical_offset).body) == memoryview(body).tobytes()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.consumer("t", group="g").commit(5), "upto = 5: expected a Message, or {queue"),
        (lambda s: s.consumer("t").seek("x", queue_id=0), "'latest', and for seek 'committed'"),
        (lambda s: s.writer("t").put(b"", deliver_at=1 << 60), f"deliver_at = {1 << 60}: "),
        (
            lambda s: s.writer("t").put(b"", deliver_after=1e12),
            "deliver_after = 1000000000000000 ms",
        ),
        (
            lambda s: s.writer("t").put(b"", deliver_after=9, expected_queue_offset=0),
            "expected_queue_offset = 0 with deliver_after = 9000 ms: ",
        ),
    ],
)
def test_the_argument_is_named_as_it_was_given(store: Store, call: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        call(store)


def test_a_repr_has_a_bound(store: Store) -> None:
    assert repr(store.writer("t", queues=3)) == ("Writer('t', queues=[0, 1, 2], durability='disk')")
    many = repr(store.writer("t", queues=65536))
    assert "queues=[0, 1, 2, 3, 4, 5, 6, 7, ...]" in many and len(many) < 100


@pytest.mark.parametrize("own", ["lost+found", ".snapshot", ".gitkeep", ".DS_Store"])
def test_what_a_file_system_or_desktop_leaves_is_no_obstacle(tmp_path: Path, own: str) -> None:
    (tmp_path / own).mkdir()
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")


def test_an_empty_directory_is_no_obstacle_and_one_with_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
    (tmp_path / "other" / "full").mkdir(parents=True)
    (tmp_path / "other" / "link").symlink_to(tmp_path / "data")
    (tmp_path / "other" / "full" / "letter").touch()
    with pytest.raises(rocketstore.ConfigError, match="no store: 'full', 'link'; name"):
        rocketstore.open(tmp_path / "other")
    assert sorted(os.listdir(tmp_path / "other")) == ["full", "link"]


def test_the_files_that_are_in_the_way_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", ".hidden", "c", "d", "lost+found"):
        (tmp_path / name).touch()
    with pytest.raises(rocketstore.ConfigError, match="no store: 'a', 'b', 'c' and 1 more; name"):
        rocketstore.open(tmp_path)


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


def test_completion_shows_no_inner_modules() -> None:
    for package in (rocketstore.aio, rocketstore.tools):
        assert set(dir(package)) == set(package.__all__)


def test_flags_show_what_they_are(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        assert repr(store.flags) == "<rocketstore.RunningFlags running>"
