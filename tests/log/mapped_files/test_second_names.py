"""Second names of segments that are being written (D-05)."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files import second_names
from rocketstore.log.mapped_files.new_file import NewFile, withdraw_file
from rocketstore.log.mapped_files.second_names import SecondNames
from tests.support.small_store import watched

SIZE = 4096


def segment(layout: StoreLayout, start: int) -> MappedFile:
    return NewFile.make(layout.commit_log, layout.tmp, start, SIZE, sparse=False).publish()


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


@pytest.fixture
def links(layout: StoreLayout) -> SecondNames:
    """Of a new store."""
    return SecondNames(layout)


@pytest.fixture
def file(layout: StoreLayout) -> MappedFile:
    """The first segment."""
    return segment(layout, 0)


def test_a_segment_has_two_names_while_it_is_written(
    layout: StoreLayout, links: SecondNames
) -> None:
    links.add(segment(layout, 0))
    links.add(segment(layout, SIZE))
    assert names(layout.live) == names(layout.commit_log)
    links.settle(SIZE)
    assert names(layout.live) == [f"{SIZE:020d}"]
    links.close()
    assert names(layout.live) == []
    assert len(names(layout.commit_log)) == 2


@pytest.mark.parametrize("lost", ["commit_log", "live"])
def test_a_name_that_is_gone_comes_back_before_anybody_is_told(
    layout: StoreLayout, lost: str, links: SecondNames, file: MappedFile
) -> None:
    """D-05: another program removed one of the names; the bytes are the same file's."""
    links.add(file)
    os.unlink(getattr(layout, lost) / f"{0:020d}")
    links.check()
    assert names(layout.live) == names(layout.commit_log) == [f"{0:020d}"]
    assert os.stat(file.path).st_ino == os.fstat(file.fd).st_ino


def test_a_name_that_was_lost_while_the_store_was_down_is_restored(
    layout: StoreLayout, links: SecondNames, file: MappedFile
) -> None:
    file.write(0, b"kept")
    links.add(file)
    os.unlink(file.path)
    assert SecondNames(layout).restore() == [f"{0:020d}"]
    assert Path(file.path).read_bytes()[:4] == b"kept"
    assert names(layout.live) == []


def test_one_that_was_prepared_asks_no_directory_when_it_is_used(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, links: SecondNames, file: MappedFile
) -> None:
    """The put that takes it would wait for the disk."""
    links.prepare(file)
    assert names(layout.live) == [f"{0:020d}"]
    calls = watched(monkeypatch, second_names)
    links.add(file)
    assert calls.made == ["link_count"]
    assert links.descriptors() == [file.fd]
    links.settle(SIZE)
    assert names(layout.live) == []


@pytest.mark.parametrize("lost", ["commit_log", "live"])
def test_one_that_lost_a_name_before_it_was_used_gets_it_back(
    layout: StoreLayout, lost: str, links: SecondNames, file: MappedFile
) -> None:
    """D-05, from the first byte on."""
    links.prepare(file)
    os.unlink(getattr(layout, lost) / f"{0:020d}")
    links.add(file)
    assert names(layout.live) == names(layout.commit_log) == [f"{0:020d}"]


def test_one_that_is_not_needed_is_not_brought_back(
    layout: StoreLayout, links: SecondNames, file: MappedFile
) -> None:
    links.prepare(file)
    links.withdraw(file)
    assert names(layout.live) == []
    assert links.descriptors() == []
    withdraw_file(file)
    assert SecondNames(layout).restore() == []
    assert names(layout.commit_log) == []


def test_one_that_cannot_be_prepared_is_not_brought_back(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it takes it away: all of it would stay on the disk, and be restored by the next open."""
    calls = watched(monkeypatch, second_names)
    calls.errors["sync_directory"] = OSError(errno.EIO, "pulled the plug")
    links = SecondNames(layout)
    file = segment(layout, 0)
    with pytest.raises(OSError, match="pulled"):
        links.prepare(file)
    withdraw_file(file)
    assert SecondNames(layout).restore() == []
    assert names(layout.live) == names(layout.commit_log) == []


def test_one_that_was_prepared_and_never_used_is_settled_by_the_next_open(
    layout: StoreLayout,
) -> None:
    """Its process died: it has its name, and the second one goes."""
    SecondNames(layout).prepare(segment(layout, 0))
    assert SecondNames(layout).restore() == []
    assert names(layout.live) == []
    assert names(layout.commit_log) == [f"{0:020d}"]


def test_a_segment_that_is_there_is_not_linked_again(
    monkeypatch: pytest.MonkeyPatch, links: SecondNames, file: MappedFile
) -> None:
    links.add(file)
    calls = watched(monkeypatch, second_names)
    links.add(file)
    assert calls.made == []
    assert links.descriptors() == [file.fd]
    links.close()


def test_a_second_name_that_cannot_be_removed_is_told_and_tried_again(
    layout: StoreLayout,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    links: SecondNames,
) -> None:
    """No put needs it to go, so no put fails by it."""
    links.add(segment(layout, 0))
    links.add(segment(layout, SIZE))

    def refused(path: str) -> None:
        raise PermissionError(errno.EACCES, "refused", path)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(second_names, "unlink_if_there", refused)
        links.settle(SIZE)
        links.settle(SIZE)
        assert len(caplog.records) == 1
        assert f"{0:020d}" in caplog.records[0].getMessage()
        start, error = links.let_go() or (-1, None)
        assert start == 0 and isinstance(error, PermissionError)
        assert len(links.descriptors()) == 1
    links.settle(SIZE)
    assert names(layout.live) == [f"{SIZE:020d}"]


def test_a_second_name_that_stays_keeps_no_other(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, links: SecondNames
) -> None:
    for number in range(4):
        links.add(segment(layout, number * SIZE))
    real = second_names.unlink_if_there

    def refused(path: str) -> None:
        if path.endswith(f"{SIZE:020d}"):
            raise PermissionError(errno.EACCES, "refused", path)
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(second_names, "unlink_if_there", refused)
        links.settle(3 * SIZE)
        assert names(layout.live) == [f"{SIZE:020d}", f"{3 * SIZE:020d}"]
        assert (links.let_go() or (-1,))[0] == SIZE
    assert links.let_go() is None


def test_a_second_name_that_goes_meanwhile_is_no_error(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, links: SecondNames
) -> None:
    """Somebody else removes it between a look and the removal."""
    links.add(segment(layout, 0))
    os.unlink(layout.live / f"{0:020d}")
    monkeypatch.setattr(os.path, "lexists", lambda path: True)
    links.settle(SIZE)
    assert links.let_go() is None
    assert links.descriptors() == []
    assert names(layout.live) == []
    links.prepare(segment(layout, SIZE))
    assert names(layout.live) == [f"{SIZE:020d}"]
