"""What is refused is named as it was given, and what is shown has a bound."""

from __future__ import annotations

import array
import ctypes
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore import NewMessage, Store
from tests.support.small_store import open_small


def kind(value: object) -> str:
    """A name of a value that is the same in each run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with open_small(tmp_path_factory.mktemp("words") / "s") as store:
        yield store


KEYS: dict[str, Callable[[Store, Any], object]] = {
    "put": lambda store, keys: store.writer("t").put(b"x", keys=keys),
    "put_batch": lambda store, keys: store.writer("t").put_batch([b"x"], keys=keys),
    "writer": lambda store, keys: store.writer("t", keys=keys),
    "NewMessage": lambda store, keys: store.put_batch([NewMessage("t", b"x", keys=keys)]),
}


@pytest.mark.parametrize("keys", [b"a", bytearray(b"a"), memoryview(b"a")], ids=kind)
@pytest.mark.parametrize("put", list(KEYS))
def test_bytes_are_no_keys(store: Store, put: str, keys: Any) -> None:
    with pytest.raises(TypeError, match="^keys = (b'a'|bytearray|<memory).*expected a str, or"):
        KEYS[put](store, keys)


HOSTS: dict[str, Callable[[Store, str], object]] = {
    "born_host": lambda store, host: store.put_message("t", b"x", born_host=host),
    "store_host": lambda store, host: store.put_message("t", b"x", store_host=host),
    "columns": lambda _, host: rocketstore.encode_frames(
        (np.array([0, 1]), b"x"), topics=["t"], born_host=host
    ),
}


@pytest.mark.parametrize("port", ["99999", "65536", "-1", "+5", " 5", "\u0663", "1e3"])
@pytest.mark.parametrize("put", list(HOSTS))
def test_a_port_that_java_does_not_take_is_refused(store: Store, put: str, port: str) -> None:
    for address in ("1.2.3.4", "[::1]"):
        end = store.end_offset
        with pytest.raises(ValueError, match=f"_host = '{re.escape(address)}:"):
            HOSTS[put](store, f"{address}:{port}")
        assert store.end_offset == end
        HOSTS[put](store, f"{address}:65535")


TEXTS = [
    np.array(["ab"]),
    np.array(["ab", "c"])[::2],
    *([array.array("u", "ab")] if sys.version_info < (3, 13) else []),  # it goes with 3.16
    np.array([("a", 1)], dtype=[("w", "U1"), ("u", "i4")]),
    ctypes.c_wchar("a"),
]
BUFFERS = [
    np.array([b"ab"]),
    np.array([1, 2]),
    np.array([1.5]),
    np.array([(1, 2)], dtype=[("w", "u1"), ("u", "u1")]),
    array.array("i", [1]),
    memoryview(b"abcd").cast("H"),
    np.zeros((4, 4), "u1")[:, ::2],
]


@pytest.mark.parametrize("body", TEXTS, ids=kind)
def test_an_array_of_texts_is_no_body(store: Store, body: Any) -> None:
    """Its memory has four bytes a letter, which no reader would take for the text."""
    writer = store.writer("t")
    for put in (lambda: writer.put(body), lambda: writer.put_batch([b"x", body])):
        with pytest.raises(TypeError, match="array of texts.*encode its items"):
            put()


@pytest.mark.parametrize("body", BUFFERS, ids=kind)
def test_other_buffers_are_stored_as_their_memory(store: Store, body: Any) -> None:
    result = store.writer("t").put(body)
    assert bytes(store.get(result.physical_offset).body) == memoryview(body).tobytes()


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
