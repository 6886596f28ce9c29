"""tail -f beside a live writer."""

from __future__ import annotations

import signal
from pathlib import Path

import rocketstore
from rocketstore.cli import exit_codes

PATIENCE_S = 60.0


def test_follow_shows_new_messages_of_a_live_writer(start, store_path: Path) -> None:
    with rocketstore.open(store_path, "r+", durability="os") as store:
        child = start("tail", store_path, "orders", "-n", 1, "-f", "--format", "%p %s")
        assert child.stdout is not None
        assert child.stdout.readline() == "1 second 9\n"
        for number in range(3):
            store.writer("orders", queue_id=0).put(b"new %d" % number)
            assert child.stdout.readline() == f"0 new {number}\n"
        store.writer("orders", queue_id=5).put(b"in a new queue")
        assert child.stdout.readline() == "5 in a new queue\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == exit_codes.INTERRUPTED
    assert errors.strip() == ""


def test_follow_waits_for_a_topic_that_is_not_there_yet(start, store_path: Path) -> None:
    with rocketstore.open(store_path, "r+", durability="os") as store:
        child = start("tail", store_path, "later", "-f", "--format", "%s")
        other = start("tail", store_path, "orders", "-n", 1, "-f", "--format", "%s")
        assert other.stdout is not None
        assert child.stdout is not None
        assert other.stdout.readline() == "second 9\n"
        store.writer("later").put(b"here")
        assert child.stdout.readline() == "here\n"
