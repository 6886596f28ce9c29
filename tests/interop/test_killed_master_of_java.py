"""A master of ours that is killed again and again while a slave of RocketMQ follows it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.interop.messages import SMALL
from tests.interop.oracle import Oracle
from tests.interop.test_replication_to_java import assert_same_log, is_at, options_of, slave_of
from tests.interop.views import Tally, of_oracle, of_ours
from tests.replication.killed_master import putting_master
from tests.replication.masters import open_master
from tests.support.ports import free_address
from tests.support.waiting import pause, wait_until

pytestmark = pytest.mark.java

#: A named run has more, and both promises.
KILLS = int(os.environ.get("ROCKETSTORE_REPLICATION_KILLS", 2))
PROMISES = ["os", "disk"] if KILLS > 2 else ["os"]
#: Longest life of a master after its slave has heard of it, seconds.
LIFE_S = 0.2


@pytest.mark.parametrize("durability", PROMISES)
def test_a_slave_of_a_killed_master_has_the_same_bytes(
    oracle: Oracle, tally: Tally, tmp_path: Path, rng: random.Random, durability: str
) -> None:
    """A process that is killed loses nothing that a slave has: the slave is never ahead of the next
    master, and goes on."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    address = free_address()
    options = options_of(SMALL, durability)
    with slave_of(oracle, theirs, address) as slave:
        for _ in range(KILLS):
            before = slave.end()
            with putting_master(ours, address, options) as end:
                assert end >= before
                wait_until(lambda before=before: slave.end() > before)  # type: ignore[misc]
                pause(rng.random() * LIFE_S)
        before = slave.end()
        with open_master(ours, options, listen=address) as (store, master):
            assert store.end_offset >= before
            assert store.recovery.lost_messages == ()
            is_at(slave, store.end_offset)
            wait_until(lambda: [one.synced for one in master.replicas] == [slave.end()])
            slave.settle()
            tally.same(of_oracle(slave.dump()), of_ours(store))
            assert_same_log(ours, theirs, store.end_offset)
