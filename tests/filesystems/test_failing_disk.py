"""Disks that fail to write, read or flush: what was acknowledged before is there once they work again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from rocketstore._native.format import index_file
from rocketstore._native.format.codec import tags_code
from tests.filesystems.disks import Disk
from tests.filesystems.failing_disk import BlockDevice, failing_disk
from tests.filesystems.tables import table
from tests.process.other_process import SMALL, OtherProcess, open_small, other_process

pytestmark = [pytest.mark.root, pytest.mark.proof]

KINDS: Final = ("ext4", "xfs", "btrfs")
BODY: Final = b"<body of the log>"
OTHER_BODY: Final = b"<another bodies>"
TAG, KEY = "tag-of-the-units", "key-of-the-index"
#: Bytes that only blocks of this kind of file have.
PATTERNS: Final = {
    "commit log": BODY,
    "queue": tags_code(TAG).to_bytes(8, "big", signed=True),
    "index": index_file.key_hash(b"Orders", KEY.encode()).to_bytes(4, "big"),
    "checkpoint": b"RSCP",
}
#: Told {"path", "durability"}, it opens a store; "put" puts so many, each waiting for the disk, and then
#: saves a checkpoint with all that is derived; "look" reads everything there is; "close" closes.
PROGRAM: Final = """
import gc
from collections import Counter
from rocketstore import RocketStoreError
from tests.support.small_store import engine_of, parts

store = None

def put(first, count, body, tag, key, save=True):
    done, errors = [], Counter()
    writer = store.writer(TOPIC)
    for number in range(first, first + count):
        try:
            writer.put(b"%d:" % number + body.encode() * 30, tags=tag, keys=key, durability="disk")
            done.append(number)
        except (RocketStoreError, OSError) as error:
            errors["put " + type(error).__name__] += 1
    deadline = time.monotonic() + 5
    while store.dispatched_offset < store.visible_offset and time.monotonic() < deadline:
        time.sleep(0.01)
    if save:
        errors.update(save_now())
    return done, dict(errors)

def save_now():
    write = parts(store)
    errors = Counter()
    try:
        write.checkpointer.save(derived=True)
    except (RocketStoreError, OSError) as error:
        errors["checkpoint " + type(error).__name__] += 1
    if engine_of(store)._queues.degraded:
        errors["queues degraded"] += 1
    if write.index.degraded is not None:
        errors["index degraded"] += 1
    return dict(errors)

def look(key):
    errors = Counter()
    numbers = []
    def attempt(name, action):
        try:
            return action()
        except (RocketStoreError, OSError) as error:
            errors[name + " " + type(error).__name__] += 1
    def read():
        consumer = store.consumer(TOPIC, queue_id=0)
        for offset in range(store.max_queue_offset(TOPIC, 0)):
            consumer.seek(offset)
            for message in attempt("read", lambda: consumer.poll(1)) or ():
                body = attempt("body", lambda: message.body)
                if body is not None:
                    numbers.append(int(bytes(body).partition(b":")[0]))
    attempt("queue", read)
    attempt("query", lambda: store.query(TOPIC, key=key, limit=1000))
    return numbers, dict(errors)

def open_(path, durability):
    global store
    store = rocketstore.open(path, durability=durability, **options)

def close():
    global store
    store, closing = None, store
    if closing is not None:
        closing.close()
    return None

while line := told():
    name, given_now = json.loads(line)
    try:
        answer = {"put": put, "save": save_now, "look": look, "open": open_, "close": close}[name](**given_now)
        said = [answer, None]
    except (RocketStoreError, OSError) as error:
        said = [None, type(error).__name__]
    if name == "close":
        gc.collect()
    say(json.dumps(said))
"""
OPTIONS: Final = {**SMALL, "index_slots": 100, "index_entries": 300}


class Player:
    """The store's process: what it is told and says."""

    def __init__(self, process: OtherProcess) -> None:
        self._process = process

    def do(self, name: str, **given: Any) -> tuple[Any, str | None]:
        """(answer, type of the error that came instead)."""
        self._process.hears(json.dumps([name, given]))
        line = self._process.line()
        assert line, f"the store's process ended with {self._process.process.wait(60)}"
        answer, error = json.loads(line)
        return answer, error

    def put(self, first: int, count: int, **other: Any) -> tuple[list[int], dict[str, int]]:
        """(numbers acknowledged, errors)."""
        given = {"body": BODY.decode(), "tag": TAG, "key": KEY}
        answer, error = self.do("put", first=first, count=count, **{**given, **other})
        assert error is None, error
        return answer[0], answer[1]


class Cell:
    """One kind of file on one file system, and one kind of failure."""

    def __init__(
        self, made: Disk, device: BlockDevice, player: Player, path: Path, file: str
    ) -> None:
        self.made, self.device, self.player, self.path, self.file = made, device, player, path, file
        self.heard: dict[str, int] = {}
        self.failed_requests = 0

    def writing(self, what: str) -> None:
        """The disk fails while messages are put: log and checkpoint latch, the rest goes on."""
        player = self.player
        assert player.do("open", path=str(self.path), durability="os") == (None, None)
        acknowledged, errors = player.put(0, 20)
        assert errors == {}
        if what == "flush" and self.file != "commit log":
            # What is derived, and the checkpoint, are what is synced when the flush fails.
            more, errors = player.put(50, 20, save=False)
            acknowledged += more
        self.device.fail(what, PATTERNS[self.file] if what == "write" else b"")
        if what == "flush" and self.file != "commit log":
            self.heard, _ = player.do("save")
        more, errors = player.put(100, 20)
        self.heard |= errors
        player.do("close")
        self.failed_requests = self.device.heal()
        self.made.remount()
        self.check([*acknowledged, *more], range(100, 120))
        if what == "write" and self.file in ("queue", "index"):
            assert len(more) == 20, f"puts did not go on: {self.heard}"

    def reading(self) -> None:
        """The disk does not give some blocks back: an error for them, and everything else goes on."""
        player = self.player
        assert player.do("open", path=str(self.path), durability="disk") == (None, None)
        acknowledged, errors = player.put(0, 60)
        later, later_errors = player.put(60, 90, body=OTHER_BODY.decode(), tag="other")
        acknowledged += later
        assert errors == later_errors == {}
        assert player.do("close") == (None, None)
        self.made.remount()
        self.device.fail("read", PATTERNS[self.file])
        _, error = player.do("open", path=str(self.path), durability="disk")
        if error is None:
            (found, self.heard), _ = player.do("look", key=KEY)
            assert set(found) <= set(acknowledged)
            if self.file == "commit log":
                assert len(found) >= 60, f"only {len(found)} could be read: {self.heard}"
            more, put_errors = player.put(200, 5)
            acknowledged += more
            self.heard |= put_errors
        else:
            self.heard = {f"open {error}": 1}
        player.do("close")
        self.failed_requests = self.device.heal()
        self.made.remount()
        self.check(acknowledged, range(200, 205))

    def check(self, acknowledged: list[int], maybe: range) -> None:
        """Once the disk works again: acknowledged ⊆ recovered ⊆ sent, in order, by queue and by key."""
        for _ in range(2):
            with open_small(self.path, **OPTIONS) as store:
                bodies = [bytes(m.body) for m in store.consumer("Orders", queue_id=0)]
                found = [int(body.partition(b":")[0]) for body in bodies]
                by_key = store.query("Orders", key=KEY, limit=1000)
                keyed = sorted(int(bytes(m.body).partition(b":")[0]) for m in by_key)
            wholes = (b":" + BODY * 30, b":" + OTHER_BODY * 30)
            assert all(body.endswith(wholes) for body in bodies)
            assert found == sorted(set(found))
            assert set(acknowledged) <= set(found) <= {*acknowledged, *maybe}
            assert keyed == found


def outcome(cell: Cell, play: Callable[[], None]) -> str:
    try:
        play()
    except AssertionError as error:
        return f"WRONG: {str(error).splitlines()[0]}"
    if not cell.failed_requests:
        return "WRONG: nothing failed"
    return ", ".join(f"{count} {name}" for name, count in cell.heard.items()) or "heard nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_failing_disks(tmp_path: Path, kind: str) -> None:
    """{write, read, flush} × {commit log, queue, index, checkpoint}: typed errors, nothing lost."""
    rows = []
    with other_process(PROGRAM, tmp_path, **OPTIONS) as process:
        player = Player(process)
        for file in PATTERNS:
            for what in ("write", "read", "flush"):
                started = time.monotonic()
                root = tmp_path / f"{file.replace(' ', '-')}-{what}"
                with failing_disk(root, kind) as (made, device):
                    cell = Cell(made, device, player, made.path / "store", file)
                    play = cell.reading if what == "read" else lambda c=cell, w=what: c.writing(w)
                    said = outcome(cell, play)
                    if said.startswith("WRONG"):
                        player.do("close")
                took = f"{time.monotonic() - started:.1f} s"
                rows.append((kind, file, what, cell.failed_requests, said, took))
    head = ("file system", "file", "fails", "requests", "heard", "time")
    table("A failing disk", head, rows)
    assert [row[:5] for row in rows if "WRONG" in str(row[4])] == []
