"""Tests wait for conditions and events. A sleep is an exception that says why."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import TESTS

pytestmark = pytest.mark.quick

SLEEP = re.compile(r"\b(?:time|asyncio)\.sleep\((?!0\))")
#: File → why it may sleep.
ALLOWED = {
    "aio/loops.py": "the loop that waits for a condition",
    "aio/test_life.py": "tries again until the lock is free, in a loop with a deadline",
    "api/puts/test_completion_port.py": "lets the time limit of a put pass",
    "api/reads/test_reader_succession.py": "gives the loop to its watcher, until an event ends it",
    "cli/test_mending.py": "a process that is to be interrupted where it stands still",
    "filesystems/disks.py": "asks the kernel again, with a deadline",
    "filesystems/failing_disk.py": "asks the kernel again, with a deadline",
    "filesystems/test_failing_disk.py": "a program without the tests' modules, with a deadline",
    "filesystems/test_full_disk.py": "a program without the tests' modules, with a deadline",
    "filesystems/test_power_cut.py": "puts slowly once it has put much, until it is cut off",
    "log/commitlog/test_group_commit.py": "a slow disk; and a thread that must not wake meanwhile",
    "process/test_exit.py": "a slow close; and a fork beside threads that want the GIL",
    "process/test_follow_latency.py": "puts at a rate",
    "process/test_signals_in_close.py": "a signal in the middle of a call",
    "power_loss/oracle.py": "looks again for deliveries, with a deadline",
    "power_loss/writer.py": "looks again for deliveries, with a deadline",
    "replication/test_open.py": "an answer that takes its time; what gets due; what is lacked",
    "replication/peers/hostile_peers.py": "a peer that was refused, before it connects again",
    "replication/peers/test_floods.py": "looks again until a reader is paused, with a deadline",
    "replication/role/etcd_machine.py": "puts at a rate, until it is killed",
    "replication/role/test_etcd_failover.py": "asks for a lease again, until it has it",
    "replication/test_first_contact.py": "an interrupt in the middle of a wait",
    "replication/test_transport.py": "counts the waits of a loop meanwhile; and what comes late",
    "replication/test_draining_master.py": "a write that must not have begun meanwhile",
    "replication/test_syncs_of_copies.py": "an acknowledgement that must not come meanwhile",
    "replication/test_travelling_offsets.py": "what must not be stored meanwhile",
    "replication/protocol/test_hostile_slaves.py": "a peer that sends slowly",
    "replication/histories/faulty_link.py": "a link that is slow",
    "replication/histories/node.py": "puts at a rate; and looks at its store, until it is killed",
    "spark/cluster_job.py": "rows that come slowly",
    "spark/putting_master.py": "puts at a rate, until it is killed",
    "spark/processes.py": "looks again for processes that are being started",
    "support/follower_lives.py": "a life that ends at a random moment",
    "support/forking.py": "a fork beside threads that want the GIL",
    "corruption/hostile_faces.py": "looks at the memory of a child until it ends",
    "support/waiting.py": "the loop that waits for a condition",
    "support/whole_run.py": "looks at the parts that run",
    "syscall_faults/injecting.py": "a slow disk",
    "unit/test_populating.py": "a thread that must not wake meanwhile",
}


def test_tests_wait_for_conditions() -> None:
    found = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("*.py")
        if SLEEP.search(path.read_text(encoding="utf-8"))
    }
    assert found == ALLOWED.keys()
