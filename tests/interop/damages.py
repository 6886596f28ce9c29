"""A crashed directory damaged by hand, and what of it is still read."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketstore import Store
from rocketstore.cli.commands.tail import queue_messages
from tests.interop.crashes import number_of, numbered
from tests.interop.messages import SMALL
from tests.interop.views import FIELDS, Fields, View, expected, oracle_message, our_message

__all__ = ["DAMAGES", "Damage", "Image", "Record", "readable_by_them", "readable_by_us"]

FILE: Final = int(SMALL["mappedFileSizeCommitLog"])
PAGE: Final = 4096


@dataclass(frozen=True)
class Record:
    number: int
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Image:
    """A directory and the records that were acknowledged in it, in the order of the log."""

    path: Path
    records: tuple[Record, ...]

    @classmethod
    def of(cls, path: Path, view: View) -> Image:
        served = sorted(view.messages().items())
        return cls(path, tuple(Record(number_of(m), at, m["size"]) for at, m in served))

    def copy(self, path: Path) -> Image:
        shutil.copytree(self.path, path)
        return Image(path, self.records)

    @property
    def end(self) -> int:
        return self.records[-1].end

    def file(self, start: int) -> Path:
        return self.path / "commitlog" / f"{start:020d}"

    def write(self, physical_offset: int, data: bytes) -> None:
        with open(self.file(physical_offset - physical_offset % FILE), "r+b") as file:
            file.seek(physical_offset % FILE)
            file.write(data)

    def read(self, record: Record) -> bytes:
        with open(self.file(record.start - record.start % FILE), "rb") as file:
            file.seek(record.start % FILE)
            return file.read(record.size)

    def hit(self, start: int, end: int) -> list[Record]:
        return [one for one in self.records if one.start < end and start < one.end]

    def old_file(self, rng: random.Random) -> int:
        """Where a file starts that is neither the first nor one of the last four."""
        return FILE * rng.randrange(1, self.end // FILE - 3)

    def blank(self, start: int) -> int:
        """Where the blank of a file begins."""
        return max(one.end for one in self.hit(start, start + FILE))


def zeros_at_the_end(image: Image, rng: random.Random) -> list[Record]:
    last = image.records[-1]
    # Behind the length of its properties a record without a record CRC has nothing that tells.
    cut = rng.randrange(1, image.read(last).index(b"TAGS\x01"))
    image.write(last.start + cut, bytes(last.size - cut))
    return [last]


def garbage_behind(image: Image, rng: random.Random) -> list[Record]:
    left = FILE - image.end % FILE
    image.write(image.end, rng.randbytes(rng.randrange(1, left)))
    return []


def flipped(image: Image, rng: random.Random, record: Record) -> list[Record]:
    body = numbered(record.number).body
    at = image.read(record).index(body) + rng.randrange(len(body))
    image.write(record.start + at, bytes([image.read(record)[at] ^ rng.randrange(1, 256)]))
    return [record]


def flip_in_the_last(image: Image, rng: random.Random) -> list[Record]:
    return flipped(image, rng, image.records[-1])


def size_of_the_last(image: Image, rng: random.Random) -> list[Record]:
    last = image.records[-1]
    wrong = rng.choice([0, 1, 90, last.size - 1, last.size + 1, 2**31, 2**32 - 1])
    image.write(last.start, struct.pack(">I", wrong))
    return [last]


def largest_size_of_the_last(image: Image, rng: random.Random) -> list[Record]:
    last = image.records[-1]
    image.write(last.start, struct.pack(">I", 2**31 - 1))
    return [last]


def lost_blank(image: Image, start: int) -> list[Record]:
    blank = image.blank(start)
    image.write(blank, bytes(start + FILE - blank))
    return []


def last_blank(image: Image, rng: random.Random) -> list[Record]:
    return lost_blank(image, image.end // FILE * FILE - FILE)


def old_blank(image: Image, rng: random.Random) -> list[Record]:
    return lost_blank(image, image.old_file(rng))


def flip_in_an_old_file(image: Image, rng: random.Random) -> list[Record]:
    start = image.old_file(rng)
    return flipped(image, rng, rng.choice(image.hit(start, start + FILE)))


def flip_in_the_last_file_but_one(image: Image, rng: random.Random) -> list[Record]:
    start = image.end // FILE * FILE - FILE
    return flipped(image, rng, rng.choice(image.hit(start, start + FILE)))


def page_of_an_old_file(image: Image, rng: random.Random) -> list[Record]:
    start = image.old_file(rng) + PAGE * rng.randrange(FILE // PAGE)
    image.write(start, bytes(PAGE))
    return image.hit(start, start + PAGE)


def zeros_in_an_old_file(image: Image, rng: random.Random) -> list[Record]:
    start = image.old_file(rng)
    image.write(start, bytes(FILE))
    return image.hit(start, start + FILE)


def young(damage: Callable[[Image, random.Random], list[Record]]) -> Any:
    """The same when RocketMQ's checkpoint is from behind the damage, so its recovery starts behind it."""

    def with_checkpoint(image: Image, rng: random.Random) -> list[Record]:
        damaged = damage(image, rng)
        late_ms = 4_000_000_000_000  # log, queues, index
        with open(image.path / "checkpoint", "r+b") as file:
            file.write(struct.pack(">3q", late_ms, late_ms, late_ms))
        return damaged

    return with_checkpoint


@dataclass(frozen=True)
class Damage:
    id: str
    make: Callable[[Image, random.Random], list[Record]]
    #: Whether RocketMQ serves all that is not hurt.
    harmless: bool = False
    #: Whether its recovery dies: it makes an array of as many bytes as a record says.
    stops_java: bool = False


DAMAGES: Final = (
    Damage("zeros from within the last record on", zeros_at_the_end, harmless=True),
    Damage("garbage behind the last record", garbage_behind, harmless=True),
    Damage("a body byte of the last record", flip_in_the_last, harmless=True),
    Damage("the size of the last record", size_of_the_last, harmless=True),
    Damage("2 GiB as the size of the last record", largest_size_of_the_last, stops_java=True),
    Damage("the last blank lost", last_blank),
    Damage("an old blank lost", old_blank),
    Damage("a body byte in the last file but one", flip_in_the_last_file_but_one),
    Damage("a body byte in an old file", flip_in_an_old_file),
    Damage("a page of zeros in an old file", page_of_an_old_file),
    Damage("an old file of zeros", zeros_in_an_old_file),
    Damage("a body byte below the checkpoint", young(flip_in_an_old_file)),
    Damage("a page of zeros below the checkpoint", young(page_of_an_old_file)),
    Damage("a file of zeros below the checkpoint", young(zeros_in_an_old_file)),
)


def readable_by_us(store: Store) -> dict[int, Fields]:
    """What consumers get, damaged records passed over."""
    return {
        message.physical_offset: our_message(message)
        for topic in store.topics(system=True)
        for queue_id in store.queues(topic)
        for _, message in queue_messages(store, topic, queue_id, lambda error: None)
    }


def readable_by_them(dump: dict[str, Any]) -> tuple[dict[int, Fields], int]:
    """What RocketMQ gives as it was sent, and how many of a queue it gives otherwise or not at all.

    It reads as many bytes as the unit says, and looks at neither TOTALSIZE nor MAGICCODE: a record
    whose first bytes alone are zeros comes out whole but for its size.
    """
    found, wrong = {}, 0
    for queue in dump["queues"]:
        for raw in queue["messages"]:
            message = {} if "missing" in raw else oracle_message(raw)
            if (
                message
                and raw["unit_physical_offset"] == message["physical_offset"]
                and raw["unit_size"] == message["size"]
                and sound(message)
            ):
                found[message["physical_offset"]] = message
            else:
                wrong += 1
    return found, wrong


def sound(message: Fields) -> bool:
    """Whether it is a message that was sent."""
    text = message["body"].partition(b":")[0]
    if not text.isdigit():
        return False
    sent = expected(numbered(int(text)))
    return all(message[name] == sent[name] for name in FIELDS if name in sent)
