"""Small stores that hold all that a store can hold, closed, killed, trimmed and copied, as images in memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Message, RocketStoreError, Store
from rocketstore.replication import Master, Replica
from tests.support.copies import copy_if_there
from tests.support.small_store import dispatched

__all__ = [
    "SHAPE",
    "SIZES",
    "Base",
    "Image",
    "Place",
    "content_of",
    "make_whole_stores",
    "offsets_of",
    "served_by",
]

SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 8192,
    "consume_queue_file_size_bytes": 400,
    "index_slots": 31,
    "index_entries": 120,
    "max_message_size_bytes": 2048,
    "multi_dispatch_enabled": True,
    "light_queue_enabled": True,
}
#: The same for commands, which need the shape of the index only.
SHAPE = ("--index-slots", 31, "--index-entries", 120)
DAY = timedelta(days=1)
#: Topic, queue id, queue offset.
Place = tuple[str, int, int]


@dataclass
class Image:
    """All files of a store by relative path; of several names of one file, `links` leads to the first."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Image:
        found = cls()
        known: dict[int, str] = {}
        for path in sorted(root.rglob("*")):
            if path.is_file():
                name, inode = str(path.relative_to(root)), path.stat().st_ino
                if inode in known:
                    found.links[name] = known[inode]
                else:
                    found.files[name] = path.read_bytes()
                known.setdefault(inode, name)
        return found

    def write(self, root: Path) -> None:
        for name, data in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(data.rstrip(b"\0"))
                file.truncate(len(data))
        for name, first in self.links.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(root / first, root / name)


@dataclass
class Base:
    """A sound store. `older`: it some time ago. `held`: physical offset and content of each message that
    it serves. `offsets`: of groups. `delayed` and `half`: how many messages wait for their time, or to be
    settled."""

    name: str
    image: Image
    older: Image
    held: dict[Place, tuple[int, bytes]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    delayed: int = 0
    half: int = 0


def _put(store: Store, begin: int, end: int) -> None:
    """Messages of every kind, with a group that commits, and commits."""
    orders, moves = store.writer("orders", queues=2), store.writer("moves")
    for number in range(begin, end):
        body = b"%d:" % number + b"x" * (number * 37 % 90)
        writer = moves if number % 3 == 0 else orders
        writer.put(body, keys=f"k{number}", tags=f"t{number % 3}", properties={"amount": "100"})
        if number % 10 == 5:
            store.put_message(
                "light",
                b"light %d" % number,
                queue_id=0,
                properties={"INNER_MULTI_DISPATCH": "%LMQ%b"},
            )
            half = store.transactions.prepare("orders", b"half %d" % number, group="p")
            if number % 20 == 5:
                half.commit()
        if number % 10 == 7:
            orders.put(b"level %d" % number, delay_level=18)
            orders.put(b"timer %d" % number, deliver_after=DAY)
            for group in ("g", "h"):
                with store.consumer("orders", group=group) as consumer:
                    consumer.poll(6 if group == "g" else 3)
                    consumer.commit()


def offsets_of(store: Store) -> dict[tuple[str, str, int], int]:
    return {
        (group, topic, queue_id): offset
        for topic in store.topics(system=True)
        for group in store.groups(topic, system=True)
        for queue_id, offset in store.committed(topic, group).items()
    }


def content_of(message: Message) -> bytes:
    """Body, tags and the property that the stores have."""
    amount = message.properties.get("amount", "")
    return f"{message.tags} {amount} ".encode(errors="replace") + bytes(message.body)


def served_by(
    store: Store,
) -> tuple[dict[Place, tuple[int, bytes]], dict[tuple[str, int], str]]:
    """Physical offset and content of each message that consumers get, and what they raise, by queue."""
    found: dict[Place, tuple[int, bytes]] = {}
    errors = {}
    for topic in store.topics(system=True):
        for queue_id in store.queues(topic):
            try:
                with store.consumer(topic, queue_id=queue_id) as consumer:
                    # The messages of a light queue have the queue offsets of another one.
                    while batch := consumer.poll(1 if topic.startswith("%LMQ%") else 100):
                        for one in batch:
                            number = (
                                one.queue_offset
                                if one.topic == topic
                                else consumer.positions[queue_id] - 1
                            )
                            found[topic, queue_id, number] = one.physical_offset, content_of(one)
            except (RocketStoreError, OSError) as error:
                errors[topic, queue_id] = f"{type(error).__name__}: {error}"
    return found, errors


def _copy(root: Path, to: Path) -> None:
    """Of a store at work, which has second names for its segments."""
    shutil.copytree(root, to, copy_function=copy_if_there)
    for path in (to / "rocketstore" / "live").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            os.link(to / "commitlog" / path.name, to / "between")
            (to / "between").replace(path)


def _caught_up(copy: Store, end: int) -> None:
    """Waits for the copy; its own progress wakes this."""
    wake = threading.Event()
    while copy.end_offset < end:
        wake.wait(0.01)


def make_whole_stores(root: Path, **options: Any) -> dict[str, Base]:
    """Makes the stores below `root`."""
    shots: dict[str, Path] = {}

    def shoot(name: str, of: Path) -> None:
        shots[name] = root / "shots" / name
        _copy(of, shots[name])

    for trimmed in (False, True):
        name = "trimmed" if trimmed else "closed"
        with rocketstore.open(root / name, durability="os", **SIZES, **options) as store:
            _put(store, 0, 40)
            store.flush()
        shoot(f"{name}-older", root / name)
        with rocketstore.open(root / name, "r+", durability="os", **SIZES, **options) as store:
            _put(store, 40, 100)
            if trimmed:
                store.flush()
                store.trim(before_offset=store.end_offset // 2)
            dispatched(store)  # of a message that no queue has yet, nobody can say that it is lost
            shoot(f"killed-{name}", root / name)
        shoot(name, root / name)
    address = "127.0.0.1:0"
    with rocketstore.open(
        root / "master", durability="os", replication=Master(listen=address), **SIZES, **options
    ) as master:
        to = Replica(
            master=str(master.replication.address), reconnect_every=timedelta(milliseconds=20)
        )
        for begin, end, name in ((0, 40, "copy-older"), (40, 100, "copy")):
            _put(master, begin, end)
            master.flush()
            with rocketstore.open(root / "copy", replication=to, **SIZES) as copy:
                _caught_up(copy, master.end_offset)
                copy.flush()  # nor of an end that nothing else knows yet
                dispatched(copy)
                shoot(f"killed-{name}", root / "copy")
            shoot(name, root / "copy")
    found = {}
    for name in ("closed", "killed-closed", "trimmed", "killed-trimmed", "copy", "killed-copy"):
        older = "killed-copy" if name == "killed-copy" else name.removeprefix("killed-")
        images = Image.of(shots[name]), Image.of(shots[f"{older}-older"])
        found[name] = Base(name, *images)
    for base in found.values():
        _look(base, root / "look")
    return found


def _look(base: Base, root: Path) -> None:
    """What the sound store serves."""
    base.image.write(root)
    with rocketstore.open(root, "r", index_slots=31, index_entries=120) as store:
        base.held, errors = served_by(store)
        assert not errors
        base.offsets = offsets_of(store)
    if "copy" not in base.name:
        with rocketstore.open(root, "r+", deliver_delayed=False, **SIZES) as store:
            base.delayed, base.half = len(store.delayed), len(store.transactions.open())
    shutil.rmtree(root)
