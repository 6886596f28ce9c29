"""Second names of segments that are being written (D-05)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketstore._native.mapped_file import MappedFile
from rocketstore.log.layout import StoreLayout
from rocketstore.log.live_links import LiveLinks
from rocketstore.log.new_file import NewFile

SIZE = 4096


def segment(layout: StoreLayout, start: int) -> MappedFile:
    return NewFile.make(layout.commit_log, layout.tmp, start, SIZE, sparse=False).publish()


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_a_segment_has_two_names_while_it_is_written(layout: StoreLayout) -> None:
    links = LiveLinks(layout)
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
    layout: StoreLayout, lost: str
) -> None:
    """D-05: another program removed one of the names; the bytes are the same file's."""
    links = LiveLinks(layout)
    file = segment(layout, 0)
    links.add(file)
    os.unlink(getattr(layout, lost) / f"{0:020d}")
    links.check()
    assert names(layout.live) == names(layout.commit_log) == [f"{0:020d}"]
    assert os.stat(file.path).st_ino == os.fstat(file.fd).st_ino


def test_a_name_that_was_lost_while_the_store_was_down_is_restored(layout: StoreLayout) -> None:
    links = LiveLinks(layout)
    file = segment(layout, 0)
    file.write(0, b"kept")
    links.add(file)
    os.unlink(file.path)
    assert LiveLinks(layout).restore() == [f"{0:020d}"]
    assert Path(file.path).read_bytes()[:4] == b"kept"
    assert names(layout.live) == []
