"""A log that is shipped, and loses its tail; or the begin that is in its archive."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.support.retention_tools import ALL
from tests.support.small_store import dispatched, open_small, segments


@dataclass
class Case:
    root: Path
    #: URIs of archives: of sealed segments, and with a tail.
    uri: str
    with_tail: str
    #: Where scans and a stream had come.
    bookmark: rocketstore.Bookmark | None = None
    offset: dict[str, Any] = field(default_factory=dict)
    #: What the log has noted of its archives.
    note: str = ""
    #: Bodies of messages that came after the cause.
    new: list[bytes] = field(default_factory=list)

    def put(self, what: bytes, count: int) -> list[bytes]:
        bodies = [b"%s %02d" % (what, number) * 40 for number in range(count)]
        with open_small(self.root) as store:
            for body in bodies:
                store.writer("orders").put(body)
        return bodies

    def open(self) -> rocketstore.Store:
        return dispatched(open_small(self.root))

    def stream(self) -> Progress:
        options = {"path": str(self.root), "startingOffsets": "earliest"}
        return Progress(ReadOptions.parse(options, stream=True))

    def kept(self) -> list[bytes]:
        """New messages that lie in the log or in an archive."""
        found = set()
        for place in (self.root, self.uri):
            for chunk in rocketstore.scan(place, columns=("body",)):
                found |= set(chunk["body"].tolist())
        return [body for body in self.new if body in found]


def note_of(case: Case) -> Path:
    return case.root / "rocketstore/shipped.json"


def taken_back(case: Case) -> None:
    """As an open does it that finds a log without its end."""
    note_of(case).write_text("{}\n")


def rows(source: str, **given: Any) -> list[bytes]:
    scan = rocketstore.scan(source, columns=("body",), **given)
    return [body for chunk in scan for body in chunk["body"].tolist()]


def trim(case: Case) -> None:
    with case.open() as store:
        store.retention.run(ALL)


def shipped_and_trimmed(tmp_path: Path, *, tail: bool = False) -> Case:
    """All that is sealed was shipped, and removed; the log goes on."""
    case = Case(tmp_path / "s", (tmp_path / "archive").as_uri(), "")
    case.put(b"first", 40)
    end = rocketstore.ship(case.root, case.uri, tail=tail).end_offset
    if tail:
        case.put(b"more", 20)
    trim(case)
    assert segments(case.root)[0].name >= f"{end:020}"
    case.put(b"later", 30)
    return case
