"""What must, may and must not be in a store, told by the marks that its writer left in the trace.

Messages carry their queue's number and the life of the process that sent them, so that one which an
earlier recovery cut cannot pass for the one that was sent in its place.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "AGAIN",
    "BATCH",
    "DELAYED",
    "KEYED",
    "LATE",
    "Expectation",
    "body_of",
    "keys_of",
    "tags_of",
]

#: Tags and keys of a message of a batch, which has one of each for all its messages.
BATCH: tuple[str, tuple[str, ...]] = ("batch", ("kb",))

#: The topic of delayed messages, and all that have to do with them: their copies are put when they are due.
LATE = "late"
#: The topic of a message that comes again.
AGAIN = "again"
#: The topic of which the latest message of each key is kept: the store puts messages of it again.
KEYED = "config"
DELAYED = (LATE, AGAIN, "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")


def body_of(life: int, number: int, size: int) -> bytes:
    """A body that tells where it belongs and whether all of it is there."""
    head = b"%d:%d:%d:" % (life, number, size)
    filler = bytes([1 + (life * 31 + number) % 255])
    return head + filler * max(0, size - len(head))


def tags_of(number: int) -> str:
    return f"tag{number % 3}"


def keys_of(number: int) -> tuple[str, ...]:
    return (f"k{number % 4}",)


@dataclass(slots=True)
class Expectation:
    """Grows mark by mark. Queues are named "topic/id"."""

    #: Options that the store was opened with.
    options: dict[str, Any]
    #: For each queue, by number, the life that sent the message.
    lives: dict[str, list[int]] = field(default_factory=dict)
    #: Physical offset → (queue, number, where it ends) of puts that returned.
    places: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    #: The log up to here was promised to survive a loss of power; the death of the process.
    on_disk: int = 0
    in_system: int = 0
    #: The log begins between these: what was trimmed, and what was to be.
    begin: int = 0
    begin_wanted: int = 0
    #: "group topic/id" → the offset that was committed last, and those that may have been since.
    offsets: dict[str, list[int]] = field(default_factory=dict)
    #: The same where the process dies and the machine does not.
    offsets_in_system: dict[str, list[int]] = field(default_factory=dict)
    #: "group topic/id" → offsets that were committed without waiting for the log.
    ahead: dict[str, list[int]] = field(default_factory=dict)
    #: Of each transaction: its messages, as (queue, number), and its offsets.
    transactions: list[tuple[list[tuple[str, int]], dict[str, int]]] = field(default_factory=list)
    #: Of each transaction three ids: it delays the first message, cancels the second, moves the third.
    timers: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    #: Key → bodies of its messages and where each ends, -1 before its put returned.
    keyed: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    #: Name of each compaction → what the log had then, by key; and the names of those that returned.
    compactions: dict[str, dict[str, str]] = field(default_factory=dict)
    compacted: list[str] = field(default_factory=list)
    #: Body of each delayed message → where its record ends, -1 before its put returned.
    late: dict[str, int] = field(default_factory=dict)
    #: Bodies of those that were cancelled → where the record that says so ends, -1 before that returned.
    cancelled: dict[str, int] = field(default_factory=dict)
    #: Where the first record of a message ends that comes again; None: there may be one or not.
    repeated: int | None = None

    def copy(self) -> Expectation:
        return copy.deepcopy(self)

    def note(self, mark: dict[str, Any]) -> None:
        """One mark of a writer."""
        getattr(self, f"_{mark['what']}")(mark)

    def _sending(self, mark: dict[str, Any]) -> None:
        self.lives.setdefault(mark["queue"], []).extend([mark["life"]] * mark["count"])

    def _put(self, mark: dict[str, Any]) -> None:
        places = [*mark["places"], mark["end"]]
        for n, place in enumerate(mark["places"]):
            self.places[place] = (mark["queue"], mark["first"] + n, places[n + 1])
        self._promise(mark["durability"], mark["end"])

    def _delaying(self, mark: dict[str, Any]) -> None:
        self.late[mark["body"]] = -1

    def _delayed(self, mark: dict[str, Any]) -> None:
        self.late[mark["body"]] = mark["end"]
        self._promise(mark["durability"], mark["end"])

    def _repeated(self, mark: dict[str, Any]) -> None:
        self.repeated = mark["end"] if self.repeated is None else self.repeated
        self._promise(mark["durability"], mark["end"])

    def _cancelling(self, mark: dict[str, Any]) -> None:
        self.cancelled[mark["body"]] = -1

    def _cancelled(self, mark: dict[str, Any]) -> None:
        self.cancelled[mark["body"]] = mark["end"]
        self._promise(mark["durability"], mark["end"])

    def _setting(self, mark: dict[str, Any]) -> None:
        self.keyed.setdefault(mark["key"], []).append((mark["body"], -1))

    def _set(self, mark: dict[str, Any]) -> None:
        self.keyed[mark["key"]][-1] = (mark["body"], mark["end"])
        self._promise(mark["durability"], mark["end"])

    def _compacting(self, mark: dict[str, Any]) -> None:
        self.compactions[mark["name"]] = mark["latest"]

    def _compacted(self, mark: dict[str, Any]) -> None:
        self.compacted.append(mark["name"])

    def _flushed(self, mark: dict[str, Any]) -> None:
        self._promise("disk", mark["end"])

    def _promise(self, durability: str, end: int) -> None:
        if durability == "disk":
            self.on_disk = max(self.on_disk, end)
        if durability != "memory":
            self.in_system = max(self.in_system, end)

    def _opened(self, mark: dict[str, Any]) -> None:
        """What a store shows once it is open is on disk; what it does not show is gone for good."""
        for queue, lives in self.lives.items():
            del lives[mark["queues"].get(queue, 0) :]
        end = self.on_disk = self.in_system = mark["end"]
        # One whose put did not return may have been stored all the same.
        self.late = {body: at for body, at in self.late.items() if at <= end}
        self.cancelled = {body: at for body, at in self.cancelled.items() if at <= end}
        for key, known in self.keyed.items():
            self.keyed[key] = [(body, at) for body, at in known if at <= end]
        if self.repeated is not None and self.repeated > end:
            self.repeated = None
        self.places = {at: place for at, place in self.places.items() if at < end}
        self.begin = self.begin_wanted = mark["begin"]
        self.offsets = {name: [offset] for name, offset in mark["offsets"].items()}
        self.offsets_in_system = {name: [*held] for name, held in self.offsets.items()}
        self.ahead = {}
        self.transactions, self.timers = [], []

    def _closed(self, mark: dict[str, Any]) -> None:
        self._promise("disk", mark["end"])

    def _trimming(self, mark: dict[str, Any]) -> None:
        self.begin_wanted = max(self.begin_wanted, mark["before"])

    def _trimmed(self, mark: dict[str, Any]) -> None:
        self.begin = self.begin_wanted = mark["begin"]

    def _committing(self, mark: dict[str, Any]) -> None:
        for name, offset in mark["offsets"].items():
            self.offsets.setdefault(name, [-1]).append(offset)
            self.offsets_in_system.setdefault(name, [-1]).append(offset)
            if mark["durability"] != "disk":
                self.ahead.setdefault(name, []).append(offset)

    def _committed(self, mark: dict[str, Any]) -> None:
        for name, offset in mark["offsets"].items():
            self.offsets_in_system[name] = [offset]
            if mark["durability"] == "disk":
                self.offsets[name] = [offset]
                self.ahead.pop(name, None)

    def _transacting(self, mark: dict[str, Any]) -> None:
        puts = [(queue, number) for queue, number in mark["puts"]]
        self.transactions.append((puts, mark["offsets"]))
        self.timers.append((mark["timer"], mark["ended"], mark["moved"]))
        self._committing({"offsets": mark["offsets"], "durability": "disk"})

    def _transacted(self, mark: dict[str, Any]) -> None:
        self._committed({"offsets": mark["offsets"], "durability": "disk"})

    def lose_power(self, *, killed: bool) -> None:
        """What comes next begins with what lies on the disk: that is all the system has, too."""
        if killed:
            self.on_disk, self.offsets = self.in_system, self.offsets_in_system
        self.in_system, self.offsets_in_system = self.on_disk, copy.deepcopy(self.offsets)
