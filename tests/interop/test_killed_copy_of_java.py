"""A copy of RocketMQ whose process is killed while it appends has the same bytes, and goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketstore.replication.replica.service import ReplicaService
from tests.interop.messages import OURS, SMALL
from tests.interop.oracle import Oracle
from tests.interop.test_replication_from_java import (
    assert_same_log,
    is_at,
    java_master,
    open_copy,
    put_part,
)
from tests.replication.killed_copy import assert_prefix, kill_a_copy
from tests.support.small_store import engine_of

pytestmark = pytest.mark.java

KILLS = 3
#: What `config_of(SMALL)` means for the files of the log and its queues.
FILES = {
    "commit_log_file_size_bytes": SMALL["mappedFileSizeCommitLog"],
    "consume_queue_file_size_bytes": SMALL["mappedFileSizeConsumeQueue"],
    "index_slots": SMALL["maxHashSlotNum"],
    "index_entries": SMALL["maxIndexNum"],
    "max_message_size_bytes": SMALL["maxMessageSize"],
    **OURS,
    "durability": "disk",
}


def test_a_killed_copy_goes_on(oracle: Oracle, tmp_path: Path, rng: random.Random) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with java_master(oracle, theirs) as (master, address):
        for part in range(KILLS):
            put_part(master, part, 600)
            synced = kill_a_copy(ours, address, "rocketmq", rng, FILES)
            assert_prefix(ours, theirs, synced)
        with open_copy(ours, address) as copy:
            is_at(copy, master.end())
            service = engine_of(copy).guests.made(ReplicaService)
            assert service.error is None
        assert_same_log(ours, theirs, 0, master.end())
