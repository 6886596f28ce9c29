"""Something else stands where a file of the store belongs: a link, a FIFO, a device, a directory.

Whatever it is, nothing outside the store is read as a part of it or changed, no call hangs, and what is
raised says which path is meant.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import RocketStoreError
from rocketstore._native.format.codec import encode_record
from rocketstore.tools import verify
from tests.corruption.reference import INDEX, SEGMENT, make_reference
from tests.support.made_store import MadeStore, Record

SECRET = b"outside of every store"

PLACES = [
    "commitlog/00000000000000000000",
    "commitlog/00000000000000016384",
    "consumequeue/orders/0/00000000000000000000",
    "index/*",
    "checkpoint",
    "lock",
    "abort",
    "config/consumerOffset.json",
    "rocketstore/checkpoint",
    "rocketstore/positions",
    "rocketstore/store.json",
    # Directories.
    "commitlog",
    "consumequeue",
    "consumequeue/orders",
    "consumequeue/orders/0",
    "index",
    "config",
    "rocketstore",
    "rocketstore/live",
    "rocketstore/tmp",
    "rocketstore/quarantine",
]
#: A second name of these is how snapshots are made: it changes with the first.
MAY_HAVE_NAMES = ("commitlog/", "consumequeue/", "index/")


def to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "secret")


def to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "made-through-a-link")


def to_itself(path: Path, outside: Path) -> None:
    path.symlink_to(path)


def second_name(path: Path, outside: Path) -> None:
    os.link(outside / "secret", path)


def fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def socket(path: Path, outside: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFSOCK)


def device(path: Path, outside: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero: never ends
    except PermissionError:
        pytest.skip("devices are made by root only")


def directory(path: Path, outside: Path) -> None:
    path.mkdir()


def empty_file(path: Path, outside: Path) -> None:
    path.write_bytes(b"")


INTRUDERS = [
    to_file, to_nothing, to_itself, second_name, fifo, socket, device, directory, empty_file,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.getLogger("rocketstore").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("rocketstore").setLevel(logging.NOTSET)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_bytes(SECRET)
    return directory


def swapped(
    tmp_path: Path, outside: Path, place: str, intruder: Callable[[Path, Path], None]
) -> Path:
    root = make_reference(tmp_path / "s", record_crc=True, size=2 * SEGMENT).root
    path = next(root.glob(place), root / place)
    if path.is_dir() or path.exists():
        path.rename(outside / "moved")
    intruder(path, outside)
    return path


def untouched(outside: Path) -> None:
    assert (outside / "secret").read_bytes() == SECRET
    assert {path.name for path in outside.iterdir()} <= {"secret", "moved"}


def use(root: Path, mode: Any) -> str:
    """Opens and reads all; the error's text, or "" without one. SECRET is never among the bodies."""
    try:
        with rocketstore.open(root, mode) as store:
            for topic in store.topics(system=True):
                for queue_id in store.queues(topic):
                    try:
                        bodies = [m.body for m in store.consumer(topic, queue_id=queue_id)]
                    except RocketStoreError:
                        continue
                    assert SECRET not in bodies
            if mode == "rw":
                store.writer("orders", queue_id=0).put(b"after the swap")
    except (RocketStoreError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.proof
@pytest.mark.timeout(60, method="thread")  # a call that hangs in native code, too
@pytest.mark.parametrize("intruder", INTRUDERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_what_stands_in_place_of_a_file_is_never_followed(
    tmp_path: Path, outside: Path, place: str, intruder: Callable[[Path, Path], None]
) -> None:
    path = swapped(tmp_path, outside, place, intruder)
    root = tmp_path / "s"
    for mode in ("r", "rw"):
        said = use(root, mode)
        print(mode, said)
        if intruder is not second_name or not place.startswith(MAY_HAVE_NAMES):
            untouched(outside)
        assert not said or str(path) in said or os.path.dirname(path) in said, said
    with contextlib.suppress(RocketStoreError, OSError):
        verify(root, **INDEX)


@pytest.mark.parametrize("intruder", [fifo, socket, directory], ids=lambda one: one.__name__)
@pytest.mark.parametrize("place", ["rocketstore/positions", "checkpoint", "rocketstore/checkpoint"])
def test_what_is_no_file_is_named_with_the_remedy(
    tmp_path: Path, outside: Path, place: str, intruder: Callable[[Path, Path], None]
) -> None:
    """A reader's error named no remedy, a writer's said "Illegal seek" or "No such device"."""
    path = swapped(tmp_path, outside, place, intruder)
    for mode in ("r", "r+", "rw"):
        said = use(tmp_path / "s", mode)
        assert "not a plain file" in said, said
        assert f"move it away: {str(path)!r}" in said, said
    path.rmdir() if path.is_dir() else path.unlink()
    (outside / "moved").rename(path)
    assert not use(tmp_path / "s", "r")


@pytest.mark.parametrize(
    "place",
    [
        *("lock", "abort", "checkpoint", "rocketstore/checkpoint"),
        *("rocketstore/positions", "rocketstore/group_offsets"),
    ],
)
def test_a_file_that_is_overwritten_in_place_has_no_second_name(
    tmp_path: Path, outside: Path, place: str
) -> None:
    swapped(tmp_path, outside, place, second_name)
    with pytest.raises(rocketstore.ConfigError, match="hard links"):
        rocketstore.open(tmp_path / "s")
    with rocketstore.open(tmp_path / "s", "r") as store:
        assert store.topics(system=True)
    untouched(outside)


def test_segments_may_have_a_second_name(tmp_path: Path) -> None:
    """Snapshots are made of hard links: a put behind the old end changes nothing in front of it."""
    root = make_reference(tmp_path / "s", record_crc=True, size=2 * SEGMENT).root
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for segment in (root / "commitlog").iterdir():
        os.link(segment, snapshot / segment.name)
    before = {path.name: path.read_bytes() for path in snapshot.iterdir()}
    assert len(before) == 2
    with rocketstore.open(root) as store:
        end = store.end_offset
        put = store.writer("orders", queue_id=0).put(b"more")
        assert put.physical_offset >= end
        assert store.get(put.physical_offset).body == b"more"
    for name, data in before.items():
        kept = max(0, min(SEGMENT, end - int(name)))
        assert (snapshot / name).read_bytes()[:kept] == data[:kept], name


NAMES = [
    b"../escape", b"..", b".", b"a/b", b"/etc", b"a\0b", b"\xff\xfe", b"%2e%2e/x", b"-", b"\n",
    b"con fig", "ä".encode(), b"x" * 127, b"..\\..\\x", b"~root", b"$HOME", b"a" * 120 + b"/../..",
]  # fmt: skip


@pytest.mark.parametrize("wide", [False, True])
def test_names_of_stored_records_never_leave_the_store(tmp_path: Path, wide: bool) -> None:
    """Records that name such topics are readable by offset, get no directory, and hold nobody up."""
    root = tmp_path / "inner" / "s"
    made = MadeStore(root, segment_size=16 * SEGMENT)
    names = [name + b"w" * 128 if wide else name for name in NAMES]
    for number, name in enumerate(names):
        _put_raw(made, name, b"body %d" % number)
        made.put(body=b"sound %d" % number)
    before = {path for path in tmp_path.rglob("*") if root not in path.parents}
    with rocketstore.open(root) as store:
        bodies = [message.body for message in store.consumer("orders")]
        assert bodies == [b"sound %d" % number for number in range(len(names))]
        offsets = [one.physical_offset for one in made.records if one.topic == "?"]
        assert [store.get(at).body for at in offsets] == [b"body %d" % n for n in range(len(names))]
        topics = store.topics(system=True)
    assert {path for path in tmp_path.rglob("*") if root not in path.parents} == before
    inside = {path.name for path in (root / "consumequeue").iterdir()}
    assert inside == set(topics)
    assert all(name.isprintable() and name not in (".", "..") for name in inside)
    for mode in ("r", "rw"):
        with rocketstore.open(root, mode) as store:
            assert sorted(store.topics()) == sorted(topics)
    assert verify(root, **INDEX).ok


def _put_raw(made: MadeStore, topic: bytes, body: bytes) -> None:
    """A record whose topic is any bytes."""
    data = encode_record(
        topic=topic, body=body, physical_offset=made.end, store_timestamp_ms=1_700_000_000_000,
        record_crc=True,
    )  # fmt: skip
    made.write_log(made.end, data)
    made.records.append(Record("?", 0, 0, made.end, len(data), "", body))
    made.end += len(data)
