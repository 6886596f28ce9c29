"""Where a log ends for a reader to which no process says it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rocketstore._native.os import syscalls
from rocketstore.log.follow.follower import Follower
from rocketstore.log.follow.views import FollowerPositions
from tests.support.live_writer import LiveWriter


def test_it_is_that_of_the_last_record_while_a_writer_recovers(tmp_path: Path) -> None:
    """It was that of the last file, which is made ahead, as soon as the next writer had the lock."""
    with contextlib.closing(LiveWriter(tmp_path / "store")) as live:
        live.fill(7)
        with contextlib.closing(Follower(live.layout, verify=3)) as source:
            live.die()
            source.catch_up()
            assert (source.writer, source.end()) == ("none", live.made.end)
            assert syscalls.lock_first_byte(live.lock_fd)
            live.page.begin()
            source.catch_up()
            assert (source.writer, source.end()) == ("recovering", live.made.end)
            positions = FollowerPositions(source)
            assert positions.flushed == positions.visible == live.made.end
