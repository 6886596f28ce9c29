"""The demo's data: every line of the Python library's sources, stored, read back and compared."""

from __future__ import annotations

import bisect
import io
import os
import re
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketstore.cli.demo.results import Row

if TYPE_CHECKING:
    from rocketstore import Message, Store

__all__ = [
    "SourceFile",
    "Stored",
    "check_groups",
    "check_keys",
    "check_times",
    "find_sources",
    "ingest",
]

GROUP: Final = "demo"
#: Puts of which one is timed, count.
SAMPLE: Final = 16
#: Topics that are read from a point in time, and points for each.
TIMES: Final = 4
Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file whose lines are one topic's messages with one key."""

    path: Path
    topic: str
    key: str

    def lines(self) -> Iterator[bytes]:
        """Its lines with their newlines: put together they are the file."""
        return iter(io.BytesIO(self.path.read_bytes()))


@dataclass(slots=True)
class Stored:
    """What was stored of one topic: its files in order, and when each message was."""

    files: list[SourceFile] = field(default_factory=list)
    store_times_ms: list[int] = field(default_factory=list)

    def lines(self) -> Iterator[bytes]:
        for source in self.files:
            yield from source.lines()


def find_sources(root: Path | None = None, limit: int | None = None) -> list[SourceFile]:
    """Python files below `root`, by default of the library of the Python that runs this."""
    base = root or Path(sysconfig.get_path("stdlib"))
    found: list[SourceFile] = []
    for directory, names, files in os.walk(base):
        names[:] = sorted(set(names) - {"site-packages", "dist-packages", "__pycache__"})
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(directory, name)
                relative = path.relative_to(base)
                topic = re.sub(r"[^%|a-zA-Z0-9_-]", "_", relative.parts[0].removesuffix(".py"))
                found.append(SourceFile(path, topic[:127], re.sub(r"\s", "_", str(relative))))
                if limit is not None and len(found) == limit:
                    return found
    return found


def ingest(
    store: Store, sources: Iterable[SourceFile], advance: Advance
) -> tuple[Row, dict[str, Stored]]:
    """Puts every line, one put a line."""
    row = Row("ingest source lines", "os")
    topics: dict[str, Stored] = {}
    clock = time.perf_counter_ns
    began = time.monotonic()
    for source in sources:
        topic = topics.setdefault(source.topic, Stored())
        topic.files.append(source)
        times = topic.store_times_ms
        put = store.writer(source.topic, queue_id=0).put
        key = source.key
        for number, line in enumerate(source.lines()):
            if number % SAMPLE:
                result = put(line, keys=key)
            else:
                before = clock()
                result = put(line, keys=key)
                row.latencies_ns.append(clock() - before)
            times.append(result.store_timestamp_ms)
            row.messages += 1
            row.bytes += len(line)
        advance(1)
    row.seconds = time.monotonic() - began
    return row, topics


def check_groups(store: Store, topics: dict[str, Stored], advance: Advance) -> Row:
    """Reads each topic by a consumer group that commits, and compares every body with its file."""
    row = Row("read by group")
    began = time.monotonic()
    for topic, stored in topics.items():
        with store.consumer(topic, group=GROUP) as consumer:
            _compare(row, topic, consumer, stored.lines())
            consumer.commit()
            if consumer.lag():
                row.differ(1, f"{topic}: a lag of {consumer.lag()} after the last message")
        advance(1)
    row.seconds = time.monotonic() - began
    return row


def check_keys(store: Store, topics: dict[str, Stored], advance: Advance) -> Row:
    """Asks for the lines of each file by its key."""
    row = Row("read by key")
    began = time.monotonic()
    for topic, stored in topics.items():
        by_key: dict[str, list[SourceFile]] = {}
        for source in stored.files:
            by_key.setdefault(source.key, []).append(source)
        for key, sources in by_key.items():
            messages = store.query(topic, key, order="oldest")
            lines = (line for source in sources for line in source.lines())
            _compare(row, f"{topic}, key {key}", messages, lines)
            advance(1)
    row.seconds = time.monotonic() - began
    return row


def check_times(store: Store, topics: dict[str, Stored], advance: Advance) -> Row:
    """Looks up points in time in each topic; reads the topic from the middle one on."""
    row = Row("read by time")
    began = time.monotonic()
    for topic, stored in topics.items():
        times = stored.store_times_ms
        for number in range(TIMES if times else 0):
            moment = times[len(times) * number // TIMES]
            expected = bisect.bisect_left(times, moment)
            offset = store.offset_at(topic, 0, moment)
            if offset != expected:
                row.differ(1, f"{topic}: {moment} ms is at {offset}, not at {expected}")
            if number == TIMES // 2:
                lines = list(stored.lines())[expected:]
                with store.consumer(topic, queue_id=0, offset=offset) as consumer:
                    _compare(row, f"{topic} from {moment} ms", consumer, iter(lines))
        advance(1)
    row.seconds = time.monotonic() - began
    return row


def _compare(row: Row, what: str, messages: Iterable[Message], lines: Iterator[bytes]) -> None:
    """Counts messages that are missing, too many, or have another body than their line."""
    missing = extra = wrong = 0
    for message, line in zip_longest(messages, lines):
        if message is None:
            missing += 1
        elif line is None:
            extra += 1
        else:
            row.messages += 1
            row.bytes += len(line)
            wrong += message.body != line
    if missing:
        row.lose(missing, f"{what}: {missing} messages are missing")
    if extra or wrong:
        row.differ(extra + wrong, f"{what}: {wrong} bodies differ, {extra} messages too many")
