"""A copy whose process is killed while it appends has the master's bytes, and goes on."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from rocketstore.tools import verify
from tests.replication.copies import address_of, open_copy, open_master, put_some, same_log
from tests.replication.cutting_proxy import CuttingProxy
from tests.replication.killed_copy import assert_prefix, kill_a_copy
from tests.support.small_store import SMALL, everything
from tests.support.waiting import wait_until

SHAPE = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}
KILLS = 4


class Puts:
    """Puts without a pause, until the end of the block."""

    def __init__(self, master: Store) -> None:
        self._master = master
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Puts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.001):
            put_some(self._master, 4)


@pytest.mark.proof
@pytest.mark.parametrize("cuts", [0, 40])
@pytest.mark.parametrize("protocol", ["rocketmq", "rocketstore"])
def test_a_killed_copy_goes_on(
    tmp_path: Path, rng: random.Random, protocol: Any, cuts: int
) -> None:
    """Through connections that break within frames as well. At each death it has a prefix of the
    master's log, with all that was on its disk, and the whole log once that has come."""
    ours, theirs = tmp_path / "c", tmp_path / "m"
    with open_master(theirs, protocol=protocol) as master:
        put_some(master, 20)
        with CuttingProxy(address_of(master), rng, cuts, 8000) as proxy:
            for _ in range(KILLS):
                with Puts(master):
                    synced = kill_a_copy(ours, proxy.address, protocol, rng)
                assert_prefix(ours, theirs, synced)
            with open_copy(ours, proxy.address, protocol=protocol) as copy:
                wait_until(
                    lambda: copy.flushed_offset == master.visible_offset,
                    lambda: str(copy.replication),
                )
                assert copy.replication.error is None
                assert [m.body for m in everything(copy)] == [m.body for m in everything(master)]
            assert bool(proxy.cut) == bool(cuts)
    same_log(theirs, ours)
    assert verify(ours, **SHAPE).faults == ()
