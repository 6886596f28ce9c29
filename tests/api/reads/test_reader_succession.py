"""Readers that outlive writers: they follow whoever writes next, or say which store is no longer there."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Store, StoreRecoveringError, StoreReplacedError, aio, completion_port
from rocketstore._native.os import syscalls
from rocketstore.engine import open as opening
from rocketstore.log.layout.positions_page import PositionsPage
from tests.conftest import SEED
from tests.support import campaign
from tests.support.follower_lives import Campaign
from tests.support.live_writer import LiveWriter

SIZE = 1 << 20

WRITER = """
import os, sys, rocketstore
store = rocketstore.open(sys.argv[1], "rw", commit_log_file_size_bytes=1 << 20)
store.writer("orders").put_batch([sys.argv[2].encode() + b"-%d" % i for i in range(10)])
store.dispatched_offset
print("up", flush=True)
how = sys.stdin.readline().strip()
os.kill(os.getpid(), 9) if how == "kill" else store.destroy() if how == "destroy" else store.close()
"""


class Life:
    """One life of a writer in a process of its own: puts ten messages, then ends as it is told."""

    def __init__(self, path: Path, name: str) -> None:
        command = [sys.executable, "-c", WRITER, str(path), name]
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "up\n"

    def end(self, how: str) -> None:
        if self._process.returncode is None:
            self._process.communicate(how + "\n", timeout=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def lives(path: Path) -> Iterator[Callable[[str], Life]]:
    started: list[Life] = []

    def start(name: str) -> Life:
        started.append(Life(path, name))
        return started[-1]

    yield start
    for life in started:
        life.end("kill")


def bodies(consumer: rocketstore.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count and (messages := consumer.poll(timeout_s=20.0)):
        found += [bytes(message.body) for message in messages]
    return found


def names(name: str) -> list[bytes]:
    return [b"%s-%d" % (name.encode(), i) for i in range(10)]


@pytest.mark.parametrize("how", ["kill", "close"])
def test_a_reader_follows_the_writers_to_come(
    path: Path, lives: Callable[[str], Life], how: str
) -> None:
    """Whatever state the store was in when it was opened, with one consumer and its positions."""
    lives("one").end(how)
    with rocketstore.open(path, "r") as reader:
        consumer = reader.consumer("orders")
        assert bodies(consumer, 10) == names("one")
        assert reader.recovery.mode == ("unclean" if how == "kill" else "clean")
        for name in ("two", "three"):
            life = lives(name)
            assert bodies(consumer, 10) == names(name)
            assert reader.recovery.mode == "following"
            life.end(how)
        assert reader.max_queue_offset("orders", 0) == 30
        assert consumer.lag() == 0


def test_a_writer_that_came_and_went_between_two_looks(
    path: Path, lives: Callable[[str], Life]
) -> None:
    lives("one").end("kill")
    with rocketstore.open(path, "r") as reader:
        consumer = reader.consumer("orders")
        assert bodies(consumer, 10) == names("one")
        lives("two").end("kill")
        assert bodies(consumer, 10) == names("two")
        lives("three").end("close")
        assert bodies(consumer, 10) == names("three")


def test_a_reader_of_a_directory_without_a_message(
    path: Path, lives: Callable[[str], Life]
) -> None:
    (path / "commitlog").mkdir(parents=True)
    with rocketstore.open(path, "r") as reader:
        consumer = reader.consumer("orders")
        assert consumer.poll() == []
        lives("one")
        assert bodies(consumer, 10) == names("one")


def test_recovery_on_disk_that_cuts_what_was_shown(
    path: Path, lives: Callable[[str], Life]
) -> None:
    """A log that is shorter than what the reader has shown is no log that it may go on with."""
    lives("one").end("kill")
    with rocketstore.open(path, "r") as reader:
        assert len(bodies(reader.consumer("orders"), 10)) == 10
        last = list(reader.consumer("orders"))[-1]
        with open(path / "commitlog" / f"{0:020}", "r+b") as log:
            log.seek(last.physical_offset)
            log.write(bytes(reader.end_offset - last.physical_offset))
        lives("two")
        with pytest.raises(StoreReplacedError, match="cut off"):
            while True:
                reader.consumer("orders").poll(timeout_s=20.0)


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("live", [False, True], ids=["opened between", "opened beside a writer"])
def test_an_older_copy_that_is_written_into_the_files(
    path: Path, lives: Callable[[str], Life], state: str, live: bool
) -> None:
    """The files are the same by their numbers, and the log grows beyond where the reader is."""
    copy, how = path.with_name("older"), "kill" if state == "killed" else "close"
    lives("one").end(how)
    shutil.copytree(path, copy)
    two = lives("two")
    if not live:
        two.end(how)
    with rocketstore.open(path, "r") as reader:
        consumer = reader.consumer("orders")
        assert bodies(consumer, 20) == names("one") + names("two")
        two.end(how)
        for file in copy.rglob("*"):
            if file.is_file():
                with open(path / file.relative_to(copy), "r+b") as over:
                    over.write(file.read_bytes())
                    over.truncate()
        for name in ("three", "four", "five"):
            last = lives(name)
            if name != "five":
                last.end(how)
        with pytest.raises(StoreReplacedError):
            while True:
                assert consumer.poll(timeout_s=20.0) != []


FACES: dict[str, Callable[[Store], object]] = {
    "topics": lambda reader: reader.topics(),
    "queues": lambda reader: reader.queues("orders"),
    "poll": lambda reader: reader.consumer("orders").poll(),
    "query": lambda reader: reader.query("orders", "key"),
    "get": lambda reader: reader.get(0),
    "bounds": lambda reader: reader.max_queue_offset("orders", 0),
    "end": lambda reader: reader.end_offset,
    "stats": lambda reader: reader.stats(),
    "scan": lambda reader: list(rocketstore.scan(reader)),
}


@pytest.mark.parametrize("state", ["live", "closed", "killed"])
@pytest.mark.parametrize("how", ["remove", "remove and make", "move", "destroy"])
def test_a_store_that_is_replaced_under_a_reader(
    path: Path, lives: Callable[[str], Life], state: str, how: str
) -> None:
    life = lives("old")
    if state != "live":
        life.end("kill" if state == "killed" else "close")
    with rocketstore.open(path, "r") as reader:
        consumer = reader.consumer("orders")
        assert bodies(consumer, 10) == names("old")
        if how == "destroy":
            life.end("destroy")
            rocketstore.open(path, "rw", commit_log_file_size_bytes=SIZE).destroy()
        elif how == "move":
            path.rename(path.with_name("moved"))
        else:
            life.end("kill")
            shutil.rmtree(path)
        if how == "remove and make":
            lives("new")
        for call in (consumer.poll, consumer.lag, lambda: next(consumer.follow(20.0))):
            with pytest.raises(StoreReplacedError):
                call()
        for face in FACES.values():
            with pytest.raises(StoreReplacedError):
                face(reader)
        assert "replaced" in repr(reader)


def test_a_reader_opened_beside_a_recovery(
    path: Path, lives: Callable[[str], Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the process; a reader that was there serves what it knew."""
    monkeypatch.setattr(opening, "RECOVERY_S", 0.05)
    lives("one").end("kill")
    with rocketstore.open(path, "r") as before:
        lock = syscalls.open(str(path / "lock"), os.O_RDWR)
        assert syscalls.lock_first_byte(lock)
        page = PositionsPage.create(path / "rocketstore" / "positions")
        page.begin()
        with pytest.raises(StoreRecoveringError, match=str(os.getpid())):
            rocketstore.open(path, "r")
        assert before.max_queue_offset("orders", 0) == 10
        assert bodies(before.consumer("orders"), 10) == names("one")
        page.end()
        page.close()
        syscalls.close(lock)
    assert rocketstore.open(path, "r").max_queue_offset("orders", 0) == 10


def test_a_waiting_asyncio_consumer_is_told(path: Path, lives: Callable[[str], Life]) -> None:
    """The thread that watches the page ended with a traceback of its own; pytest fails for that."""
    life = lives("old")

    async def wait_for_more() -> None:
        async with await aio.open(path, "r") as reader:
            consumer = reader.consumer("orders")
            assert len(await consumer.poll()) == 10
            more = asyncio.ensure_future(consumer.poll(timeout_s=None))
            await asyncio.sleep(0.05)
            life.end("kill")
            shutil.rmtree(path)
            with pytest.raises(StoreReplacedError):
                await more

    asyncio.run(wait_for_more())


def test_an_error_of_one_look_does_not_end_the_watch(
    path: Path, lives: Callable[[str], Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    lives("one").end("kill")
    monkeypatch.setattr(completion_port, "LOOK_AGAIN_MS", 1)
    monkeypatch.setattr("rocketstore.aio.consumer.LONGEST_WAIT_S", 60.0)

    async def wait_for_more() -> None:
        async with await aio.open(path, "r") as reader:
            consumer = reader.consumer("orders")
            assert len(await consumer.poll()) == 10
            failing = [OSError(errno.EMFILE, "Too many open files")] * 3
            source = reader._store._open().reader.source.arrival
            wait = source.wait

            def fails(seen: int, timeout_ms: int | None) -> int:
                if failing:
                    raise failing.pop()
                return wait(seen, timeout_ms)

            monkeypatch.setattr(source, "wait", fails)
            more = asyncio.ensure_future(consumer.poll(timeout_s=30.0))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(lives, "two")
            assert len(await more) > 0
            assert not failing

    asyncio.run(wait_for_more())


def test_a_new_reader_sees_what_was_acknowledged(path: Path) -> None:
    """The writer dispatches in a thread of its own: the first poll() of a new reader was empty now and then."""
    live = LiveWriter(path)
    live.fill(3)
    before = live.made.end
    live.made.fill(4)
    live.move(live.made.end)
    live.page.positions.dispatched = before
    dispatcher = threading.Timer(0.2, live.move, [live.made.end])
    dispatcher.start()
    with rocketstore.open(path, "r") as reader:
        assert len(reader.consumer("orders").poll()) == 7
    dispatcher.join()
    live.close()


def test_a_dispatcher_that_stands_keeps_no_reader_from_the_rest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "RECOVERY_S", 0.05)
    live = LiveWriter(path)
    live.fill(3)
    before = live.made.end
    live.made.fill(4)
    live.move(live.made.end)
    live.page.positions.dispatched = before
    with rocketstore.open(path, "r") as reader:
        assert len(reader.consumer("orders").poll()) == 3
    live.close()


def test_a_wrong_size_beside_a_writer(path: Path, lives: Callable[[str], Life]) -> None:
    lives("one")
    with pytest.raises(rocketstore.ConfigError, match=rf"2097152.*{SIZE}"):
        rocketstore.open(path, "r", commit_log_file_size_bytes=2 * SIZE)
    with rocketstore.open(path, "r") as reader:
        assert reader.config.commit_log_file_size_bytes == SIZE


@pytest.mark.proof
def test_readers_of_random_moments(path: Path, request: pytest.FixtureRequest) -> None:
    """`python -m tests.support.follower_lives` does 200 lives."""
    lives = Campaign(path, request.config.stash[SEED])
    try:
        for _ in campaign.begin("readers beside lives of writers").rounds():
            lives.life()
    finally:
        lives.close()


def test_readers_of_a_few_moments(path: Path, request: pytest.FixtureRequest) -> None:
    lives = Campaign(path, request.config.stash[SEED])
    for _ in range(3):
        lives.life()
    lives.close()
