"""A few images of every workload, and what the recorder and the model of a disk rest on."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power_loss.campaign import Batch, run_batch
from tests.power_loss.disk import PAGE, Disk
from tests.power_loss.expectation import Expectation
from tests.power_loss.images import Image, take_image
from tests.power_loss.recording import Recorder
from tests.power_loss.trace import Event, Kind
from tests.power_loss.workloads import WORKLOADS

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

FILE, OTHER, FOLDER = 11, 12, 2
END = 1 << 62


@pytest.mark.proof
def test_images_of_every_workload(tmp_path: Path, random_seed: int) -> None:
    """D-06 D-17 D-18 D-20 D-21 D-22 D-23 D-27 D-29: nothing acknowledged is lost, nothing comes back,
    there are no holes, and every image opens."""
    seed = random_seed % (1 << 31)
    tally = run_batch(Batch(seed, 4 * 4 * len(WORKLOADS), tuple(WORKLOADS), str(tmp_path / "kept")))
    assert set(tally.images) == set(WORKLOADS)
    assert tally.failures == []


@pytest.mark.parametrize(("end", "expected"), [(100, 90), (90, 90), (80, None)])
def test_what_an_open_does_not_show_is_expected_no_more(end: int, expected: int | None) -> None:
    """A loss of power may take what was promised of the system only, and the log goes on there."""
    store = Expectation(options={})
    store.note({"what": "repeated", "end": 90, "durability": "os"})
    store.note({"what": "opened", "queues": {}, "end": end, "begin": 0, "offsets": {}})
    assert store.repeated == expected


def test_the_last_state_of_a_trace_is_what_lies_there(tmp_path: Path, random_seed: int) -> None:
    """The recorder has missed no change of a file, a mapping or a name."""
    with Recorder(tmp_path) as recorder:
        for number, workload in enumerate(WORKLOADS, 1):
            (trace,) = recorder.record(workload, random_seed % 1000, 0)
            image = newest([disk for disk, _ in trace.states()][-1])
            root = tmp_path / str(number)
            there = {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}
            image.write(str(make(tmp_path / "image")))
            told = tree(tmp_path / "image")
            assert told.keys() == there.keys(), workload
            assert [path for path in told if told[path] != there[path]] == [], workload
            shutil.rmtree(tmp_path / "image")


def make(path: Path) -> Path:
    path.mkdir()
    return path


def tree(root: Path) -> dict[Path, bytes]:
    return {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def images(disk: Disk, count: int = 400) -> Iterator[Image]:
    rng = random.Random(5)
    return (take_image(disk, rng) for _ in range(count))


def newest(disk: Disk) -> Image:
    return next(image for image in images(disk) if image.killed)


def events(disk: Disk, *given: tuple[Kind, int, int, int, bytes]) -> Disk:
    for event in given:
        disk.apply(Event(*event))
    return disk


@pytest.fixture
def disk() -> Disk:
    """A directory with a file of two pages of zeros, all on disk."""
    disk = Disk()
    disk.directories[1] = ""
    return events(
        disk,
        (Kind.MAKE_DIRECTORY, FOLDER, 0, 0, b"d"),
        (Kind.CREATE, FILE, 0, 0, b"d/file"),
        (Kind.SIZE, FILE, 2 * PAGE, 0, b""),
        (Kind.SYNC_ALL, 0, 0, 0, b""),
    )


def pages(disk: Disk, page: int) -> set[bytes]:
    """What the images have in one page of the file: first and last byte of it."""
    data = [image.pages[FILE].get(page, bytes(PAGE)) for image in images(disk)]
    return {found[:1] + found[-1:] for found in data}


def test_what_is_not_synced_may_be_old_new_or_torn(disk: Disk) -> None:
    write = (Kind.WRITE, FILE, 0, 0, b"a" * PAGE)
    assert pages(events(disk, write), 0) == {b"\0\0", b"aa", b"\0a", b"a\0"}
    events(disk, (Kind.WRITE, FILE, 0, 0, b"b" * PAGE))
    assert {b"\0\0", b"aa", b"bb"} <= pages(disk, 0)
    events(disk, (Kind.SYNC_FILE, FILE, 0, END, b""))
    assert pages(disk, 0) == {b"bb"}


def test_a_sync_of_a_range_is_one_of_its_pages_only(disk: Disk) -> None:
    events(
        disk,
        (Kind.WRITE, FILE, 0, 0, b"a" * 2 * PAGE),
        (Kind.SYNC_RANGE, FILE, PAGE + 10, PAGE + 20, b""),
    )
    assert pages(disk, 1) == {b"aa"}
    assert b"\0\0" in pages(disk, 0)


def test_a_failed_sync_is_not_made_good_by_the_next_one(disk: Disk) -> None:
    """The kernel takes the page for clean; only writing it again helps."""
    events(
        disk,
        (Kind.WRITE, FILE, 0, 0, b"a" * PAGE),
        (Kind.SYNC_FAILED, FILE, 0, END, b""),
        (Kind.SYNC_FILE, FILE, 0, END, b""),
    )
    assert {b"\0\0", b"aa"} <= pages(disk, 0)
    events(
        disk,
        (Kind.WRITE, FILE, 0, 0, b"a" * PAGE),
        (Kind.SYNC_FILE, FILE, 0, END, b""),
    )
    assert pages(disk, 0) == {b"aa"}


def test_a_length_is_durable_with_its_file_only(disk: Disk) -> None:
    events(disk, (Kind.WRITE, FILE, 2 * PAGE, 0, b"a"))
    assert {image.sizes[FILE] for image in images(disk)} == {2 * PAGE, 2 * PAGE + 1}
    events(disk, (Kind.SYNC_FILE, FILE, 0, END, b""))
    assert {image.sizes[FILE] for image in images(disk)} == {2 * PAGE + 1}


def test_a_name_is_durable_with_its_directory_only(disk: Disk) -> None:
    events(
        disk,
        (Kind.CREATE, OTHER, 0, 0, b""),
        (Kind.SYNC_FILE, OTHER, 0, END, b""),
        (Kind.LINK, OTHER, 0, 0, b"d/other"),
        (Kind.UNLINK, 0, 0, 0, b"d/file"),
    )
    assert {tuple(image.names) for image in images(disk)} == {
        (), ("d/file",), ("d/other",), ("d/file", "d/other"),
    }  # fmt: skip
    events(disk, (Kind.SYNC_DIRECTORY, FOLDER, 0, 0, b""))
    assert {tuple(image.names) for image in images(disk)} == {("d/other",)}


def test_a_rename_never_loses_both_names(disk: Disk) -> None:
    events(
        disk,
        (Kind.CREATE, OTHER, 0, 0, b"d/new"),
        (Kind.SYNC_DIRECTORY, FOLDER, 0, 0, b""),
        (Kind.RENAME, OTHER, 0, 0, b"d/new"),
        (Kind.RENAME, OTHER, 0, 0, b"d/file"),
    )
    found = {tuple(sorted(image.names.items())) for image in images(disk)}
    assert found == {
        (("d/file", FILE), ("d/new", OTHER)),
        (("d/file", OTHER),),
        (("d/file", OTHER), ("d/new", OTHER)),
    }
