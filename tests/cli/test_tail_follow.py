"""tail -f beside a live writer."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.support.copies import copy_if_there
from tests.support.live_writer import LiveWriter
from tests.support.small_store import no_dispatch

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


@pytest.mark.parametrize("topic", ["orders", "later"])
def test_follow_ends_when_nobody_reads(start, store_path: Path, topic: str) -> None:
    """`tail -f | head -1`: there may be no message for ever, whose write would fail."""
    with rocketstore.open(store_path, "r+", durability="os"):
        child = start("tail", store_path, topic, "-n", 1, "-f", "--format", "%s")
        assert child.stdout is not None
        if topic == "orders":
            assert child.stdout.readline() == "second 9\n"
        child.stdout.close()
        child.stdout = None
        _, errors = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, errors) == (exit_codes.NO_READER, "")


def test_follow_waits_for_a_topic_that_is_not_there_yet(start, store_path: Path) -> None:
    with rocketstore.open(store_path, "r+", durability="os") as store:
        child = start("tail", store_path, "later", "-f", "--format", "%s")
        other = start("tail", store_path, "orders", "-n", 1, "-f", "--format", "%s")
        assert other.stdout is not None
        assert child.stdout is not None
        assert other.stdout.readline() == "second 9\n"
        store.writer("later").put(b"here")
        assert child.stdout.readline() == "here\n"


def test_follow_waits_for_a_recovery_and_goes_on(start, tmp_path: Path) -> None:
    writer = LiveWriter(tmp_path / "store")
    writer.fill(1)
    child = start("tail", tmp_path / "store", "orders", "-f", "--format", "%o")
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == "0\n"
    for number in (1, 2):
        writer.page.begin()
        assert f"process {os.getpid()} (" in (said := child.stderr.readline())
        assert said.endswith(" recovers this store; waiting for it\n")
        writer.page.go_live()
        writer.fill(1)
        assert child.stdout.readline() == f"{number}\n"
    assert child.poll() is None
    writer.close()


def test_follow_goes_on_behind_damage(start, store_path: Path) -> None:
    with rocketstore.open(store_path, "r+", durability="os") as store:
        words = ("tail", store_path, "orders", "-n", 1, "-f", "--tag", "even", "--format", "%p %s")
        child = start(*words)
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "0 first 18\n"
        first, second = (store.writer("orders", queue_id=number) for number in (0, 1))
        # Stopped: what changes below the end that it has seen is another log to a reader.
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        with no_dispatch(store):
            first.put(b"in front", tags="even")
            first.put(b"passed over", tags="odd")
            damaged = first.put(b"breaks!", tags="even").physical_offset
            strike(store_path, b"breaks!", b"broken!")
            first.put(b"behind", tags="even")
            second.put(b"beside", tags="even")
        child.send_signal(signal.SIGCONT)
        found = {child.stdout.readline() for _ in range(3)}
        assert found == {"0 in front\n", "0 behind\n", "1 beside\n"}
        assert child.stderr.readline().startswith(
            f"rocketstore: record at physical offset {damaged}: "
        )
        first.put(b"later", tags="even")
        assert child.stdout.readline() == "0 later\n"
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=PATIENCE_S)
        assert (output, errors.strip()) == ("", "")
    assert child.returncode == exit_codes.INTERRUPTED


def test_follow_goes_on_with_a_writer_that_comes_after_a_crash(start, store_path: Path) -> None:
    with rocketstore.open(store_path, "r+", durability="os") as store:
        store.writer("orders", queue_id=0).put(b"in front")
        crashed = store_path.with_name("crashed")
        shutil.copytree(store_path, crashed, copy_function=copy_if_there)
    child = start("tail", crashed, "orders", "-n", 1, "-f", "--format", "%p %s")
    assert child.stdout is not None
    assert child.stdout.readline() == "0 in front\n"
    for life in range(2):
        with rocketstore.open(crashed, "r+", durability="os") as store:
            store.writer("orders", queue_id=life).put(b"life %d" % life)
            assert child.stdout.readline() == f"{life} life {life}\n"
            store.writer("orders", queue_id=7 + life).put(b"new queue %d" % life)
            assert child.stdout.readline() == f"{7 + life} new queue {life}\n"
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=PATIENCE_S)
    assert (output, errors.strip()) == ("", "")


def test_follow_names_damage_among_the_last_messages_before_it_waits(
    start, store_path: Path
) -> None:
    strike(store_path, b"first 19", b"first 1X")
    child = start("tail", store_path, "orders", "-n", 1, "-f", "--format", "%s")
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == "second 9\n"
    assert child.stderr.readline().startswith("rocketstore: record at physical offset ")


def strike(path: Path, body: bytes, other: bytes) -> None:
    """Overwrites a body where it lies, behind the back of the store."""
    (file,) = (path / "commitlog").iterdir()
    at = file.read_bytes().index(body)
    with file.open("r+b") as log:
        log.seek(at)
        log.write(other)
