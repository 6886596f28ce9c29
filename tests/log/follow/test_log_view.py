"""The log's files as a follower lists them while others come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.log.follow import log_view
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.reader import Reader
from tests.support.live_writer import LiveWriter

Found = list[tuple[int, int, str]]


@pytest.mark.parametrize("missed", [(1, 2), (3,), (2, 4)])
def test_a_listing_that_misses_files_is_made_again(
    live: LiveWriter, monkeypatch: pytest.MonkeyPatch, missed: tuple[int, ...]
) -> None:
    """A directory is read in pieces: of files that came or went meanwhile it shows some."""
    live.fill(200)
    found = log_view.list_log(live.layout)
    lacking = [one for number, one in enumerate(found) if number not in missed]
    listings: Iterator[Found] = iter([lacking, lacking])

    def listed(layout: StoreLayout) -> Found:
        return next(listings, found)

    monkeypatch.setattr(log_view, "list_log", listed)
    source = Follower(live.layout, verify=3)
    try:
        starts = [segment.start_offset for segment in source.segments()]
        assert starts == [start for start, _, _ in found]
        reader = Reader(source)
        at = missed[0] * live.made.segment_size
        first = next(r.queue_offset for r in live.made.records if r.physical_offset >= at)
        assert reader.fetch("orders", 0, first, 1).messages[0].queue_offset == first
    finally:
        source.close()


def test_files_that_are_missing_are_believed_to_be_in_the_end(live: LiveWriter) -> None:
    live.fill(200)
    found = log_view.list_log(live.layout)
    Path(found[2][2]).unlink()
    source = Follower(live.layout, verify=3)
    try:
        assert len(source.segments()) == len(found) - 1
    finally:
        source.close()
