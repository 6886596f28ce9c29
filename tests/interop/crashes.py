"""Numbered messages, and what two recoveries of one crashed directory may make of them."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import signal
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import rocketstore
from tests.interop.messages import HOSTS, SMALL, Sent, config_of, oracle_batch
from tests.interop.oracle import OracleStore
from tests.interop.views import Fields, Tally, View, expected, of_ours
from tests.process.other_process import other_process

__all__ = [
    "HoleError",
    "Indexed",
    "Ledger",
    "copy",
    "keyed",
    "killed",
    "last_unit",
    "numbered",
    "put_theirs",
    "put_until_killed",
    "recovered_by_us",
    "run_ours_and_kill",
    "same",
    "subset",
]

#: Of a JVM, whose first put takes a tenth of a second; and of ours, from before its open on.
LONGEST_RUN_S: Final = 0.35
OUR_LONGEST_RUN_S: Final = 0.15
#: Of each 256 numbers these are put as parts of batches.
BATCHED: Final = range(240, 256)
HEADER_BYTES: Final = 40
ENTRY_BYTES: Final = 20
#: What our writer gives without being told: a batch has no more than bodies here, so it has no keys.
OWN_HOST: Final = "127.0.0.1:10911"
#: What follows from properties that are cut off.
TORN: Final = ("properties", "tags_code")
TOPICS: Final = ("Orders", "Events", "%RETRY%group")


def numbered(number: int) -> Sent:
    """The message that has this number: every field follows from it."""
    body = b"%d:" % number + bytes(number * 37 % 900)
    if number % 256 in BATCHED:
        body = body[:300]  # a batch has the limit of one message
        return Sent(topic="Batches", body=body, born_host=OWN_HOST, store_host=OWN_HOST)
    return Sent(
        topic=TOPICS[number % 3],
        queue_id=number % 2,
        body=body * (7 if number % 10 == 0 else 1),
        properties=(("TAGS", "abc"[number % 3]), ("KEYS", f"k{number}")),
        flag=number,
        sys_flag=0x8 if number % 5 == 0 else 0,
        born_host=HOSTS[number % 4],
    )


def number_of(message: Fields) -> int:
    return int(message["body"].partition(b":")[0])


class HoleError(AssertionError):
    """The served messages are not those that were sent, one behind the other; `after` is the physical
    offset of the last one before that."""

    def __init__(self, text: str, after: int) -> None:
        super().__init__(text)
        self.after = after


def last_unit(path: Path) -> int:
    """The largest physical offset in the queues, so far RocketMQ had dispatched when it died; or -1."""
    last = -1
    for file in (path / "consumequeue").glob("*/*/*"):
        data = file.read_bytes()
        units = struct.iter_unpack(">qiq", data[: len(data) - len(data) % 20])
        last = max([last, *(offset for offset, size, _ in units if size > 0)])
    return last


@dataclass
class Ledger:
    """Who was promised what. Numbers are never given twice, so a record that comes back shows."""

    #: In the order of the log: acknowledged, or found by the recovery that the next writer went on from.
    kept: list[int] = field(default_factory=list)
    #: Sent and not answered: a prefix of them may be there.
    pending: list[int] = field(default_factory=list)
    #: What the answers said.
    answers: dict[int, Fields] = field(default_factory=dict)
    next: int = 0
    #: Whether RocketMQ had the directory, whose recovery makes holes in the index.
    foreign: bool = False
    #: Those whose copy into the log RocketMQ's death broke off, behind the body.
    torn: set[int] = field(default_factory=set)

    def take(self, most: int) -> list[int]:
        """The next numbers, all of them in a batch or none."""
        batched = self.next % 256 in BATCHED
        end = self.next + 1
        while end < self.next + most and (end % 256 in BATCHED) == batched:
            end += 1
        self.pending = list(range(self.next, end))
        self.next = end
        return self.pending

    def answered(self, answers: Sequence[Fields]) -> None:
        self.answers.update(zip(self.pending, answers, strict=True))
        self.kept += self.pending
        self.pending = []

    def check(self, view: View, tally: Tally) -> list[int]:
        """Acknowledged ⊆ served ⊆ sent, field by field, every queue without a hole; what is served."""
        tally.scenarios += 1
        served = sorted(view.messages().items())
        found = [number_of(message) for _, message in served]
        wanted = self.kept + self.pending
        if found != wanted[: len(found)]:
            at = next(n for n, number in enumerate(found) if [number] != wanted[n : n + 1])
            raise HoleError(
                "a hole, another order or a message of nobody: "
                f"{found[max(0, at - 3) : at + 5]} at {served[at][0]} for "
                f"{wanted[max(0, at - 3) : at + 5]}, {len(found)} of {len(wanted)} messages",
                served[at - 1][0] if at else -1,
            )
        assert len(found) >= len(self.kept), f"acknowledged and gone: {self.kept[len(found) :]}"
        queues: dict[tuple[str, int], list[int]] = {}
        for number, (physical_offset, message) in zip(found, served, strict=True):
            sent = numbered(number)
            queue = queues.setdefault((sent.topic, sent.queue_id), [])
            fields = {**expected(sent), **self.answers.get(number, {}), "queue_offset": len(queue)}
            torn = number == found[-1] and self.broken_off(number, fields, message, tally)
            if torn or number in self.torn:
                fields = {name: fields[name] for name in fields if name not in TORN}
            tally.same_message(fields, message, f"message {number} at {physical_offset}")
            queue.append(physical_offset)
        assert view.bounds == {name: (0, len(queue)) for name, queue in queues.items()}
        for name, queue in queues.items():
            units = view.queues[name]
            assert list(units) == list(range(len(queue)))
            assert [message["physical_offset"] for message in units.values()] == queue
        return found

    def broken_off(self, number: int, sent: Fields, found: Fields, tally: Tally) -> bool:
        """Whether the last message, which RocketMQ did not answer, has properties that end in zeros: nothing
        but the body has a checksum there, so RocketMQ keeps it as well."""
        there, whole = found["properties"], sent["properties"]
        if not self.foreign or number not in self.pending or there == whole:
            return False
        assert all(whole.get(k, "").startswith(v.rstrip("\0")) for k, v in there.items())
        tally.know("properties that RocketMQ's death cut off, kept by both")
        self.torn.add(number)
        return True

    def go_on(self, found: list[int]) -> None:
        """The next writer has what a recovery found."""
        self.kept, self.pending = found, []


def keyed(view: View, indexed: Indexed, rng: random.Random, most: int) -> list[Fields]:
    """Some of the messages whose key has to be found, the last ones among them."""
    messages = [
        message
        for at, message in sorted(view.messages().items())
        if "\0" not in message["properties"].get("KEYS", "\0") and indexed.has(at)
    ]
    return messages[-3:] + rng.sample(messages, min(most, len(messages)))


@dataclass(frozen=True)
class Indexed:
    """Records that have an entry in an index file, as physical offsets.

    RocketMQ's recovery deletes index files that are younger than its checkpoint, and makes entries from
    where it begins to read the log: what lies between is in no index any more.
    """

    offsets: frozenset[int] = frozenset()
    #: Where a recovery of ours began to make entries.
    begin: int = 0

    @classmethod
    def of(cls, path: Path) -> Indexed:
        """As the files are now; `begin` is behind their last entry."""
        offsets: set[int] = set()
        for file in sorted((path / "index").glob("*")):
            data = file.read_bytes()
            first = HEADER_BYTES + 4 * int(SMALL["maxHashSlotNum"])
            count = struct.unpack_from(">i", data, 36)[0] if len(data) > first else 0
            for number in range(1, count):
                offsets.add(struct.unpack_from(">q", data, first + ENTRY_BYTES * number + 4)[0])
        return cls(frozenset(offsets), max(offsets, default=-1) + 1)

    def has(self, physical_offset: int) -> bool:
        return physical_offset in self.offsets or physical_offset >= self.begin


def subset(theirs: View, ours: View, tally: Tally) -> None:
    """What RocketMQ recovers is what we recover, at the same places; we may have more."""
    served = ours.messages()
    for physical_offset, message in theirs.messages().items():
        assert physical_offset in served, f"RocketMQ serves {physical_offset}, we do not"
        tally.same_message(message, served[physical_offset], f"at {physical_offset}")


def same(theirs: View, ours: View, tally: Tally) -> None:
    """The same messages. Where the log ends in a blank, our end is behind it and RocketMQ's before."""
    if theirs.end != ours.end:
        size = int(SMALL["mappedFileSizeCommitLog"])
        assert ours.end % size == 0, (theirs.end, ours.end)
        assert 0 < ours.end - theirs.end < size
        tally.know("the end is before a last blank, or behind it")
        theirs.end = ours.end
    tally.same(theirs, ours)


def copy(path: Path, name: str) -> Path:
    """What another one recovers."""
    image = path.with_name(name)
    shutil.copytree(path, image)
    return image


def put_theirs(theirs: OracleStore, ledger: Ledger, most: int) -> None:
    """One request and its answer."""
    numbers = ledger.take(most)
    sent = [numbered(number) for number in numbers]
    if numbers[0] % 256 in BATCHED:
        answer = theirs.put_batch(oracle_batch(sent))
        answers = [{"queue_offset": answer["queue_offset"] + n} for n in range(len(sent))]
        statuses = {answer["status"]}
    else:
        answers = theirs.put([one.for_oracle() for one in sent])
        statuses = {answer.pop("status") for answer in answers}
    assert statuses == {"PUT_OK"}, statuses
    ledger.answered(answers)


def killed(work: Callable[[], object], delay_s: float, kill: Callable[[], None]) -> bool:
    """Kills a JVM a while after `work` with it began; whether it was still at work."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(delay_s)
    kill()
    thread.join()
    for error in failures:
        half_an_answer = isinstance(error, json.JSONDecodeError)
        if not half_an_answer and "is gone" not in str(error):
            raise error
    return bool(failures)


def put_until_killed(
    theirs: OracleStore, ledger: Ledger, rng: random.Random, kill: Callable[[], None]
) -> float:
    """One writer's life; the delay after which it was killed."""
    delay_s = rng.uniform(0.0, LONGEST_RUN_S)
    sizes = random.Random(rng.getrandbits(64))  # how many are drawn depends on time

    def put() -> None:
        while True:
            put_theirs(theirs, ledger, sizes.randrange(1, 100))

    assert killed(put, delay_s, kill), "nothing ended the writer"
    return delay_s


def recovered_by_us(path: Path, ledger: Ledger, tally: Tally, rng: random.Random) -> View:
    """What we serve of a crashed directory, which is closed cleanly then."""
    indexed = Indexed.of(path) if ledger.foreign else Indexed()
    with rocketstore.open(path, "r", config=config_of(SMALL)) as store:
        in_memory = of_ours(store)
    with rocketstore.open(path, config=config_of(SMALL)) as store:
        view = of_ours(store)
        ledger.check(view, tally)
        if ledger.foreign:
            indexed = dataclasses.replace(indexed, begin=store.recovery.index_start)
        for message in keyed(view, indexed, rng, 20):
            found = store.query(message["topic"], message["properties"]["KEYS"])
            offsets = [m.physical_offset for m in found]
            assert offsets == [message["physical_offset"]], message["properties"]
    tally.same(in_memory, view)
    return view


#: Puts numbers from given[0] on, in singles and batches; says after each answer where it stands.
PUT_ENDLESSLY: Final = """
from tests.interop.crashes import BATCHED, numbered
from tests.interop.messages import SMALL, config_of
at = given
say("start")
store = rocketstore.open(path, config=config_of(SMALL))
batches = store.writer("Batches")
while True:
    if at % 256 in BATCHED:
        parts = [numbered(at)]
        while (at + len(parts)) % 256 in BATCHED:
            parts.append(numbered(at + len(parts)))
        batches.put_batch([part.body for part in parts], born_time=parts[0].born_timestamp_ms)
        say(json.dumps([{}] * len(parts)))
        at += len(parts)
    else:
        result = numbered(at).put(store)
        say(json.dumps([{
            "physical_offset": result.physical_offset,
            "queue_offset": result.queue_offset,
            "size": result.size,
            "store_timestamp_ms": result.store_timestamp_ms,
            "message_id": result.message_id,
        }]))
        at += 1
"""


def run_ours_and_kill(path: Path, ledger: Ledger, rng: random.Random) -> float:
    """The same with a program of ours; what it said before its death was acknowledged."""
    delay_s = rng.uniform(0.0, OUR_LONGEST_RUN_S)
    with other_process(PUT_ENDLESSLY, path, given=ledger.next) as writer:
        assert writer.line() == "start"
        killer = threading.Timer(delay_s, writer.process.kill)
        killer.start()
        said = writer.rest()  # until the kill closes the pipe
        killer.join()
        assert writer.process.wait() == -signal.SIGKILL
    for line in said.decode().splitlines():
        answers = json.loads(line)
        ledger.take(len(answers))
        ledger.answered(answers)
    ledger.take(len(BATCHED) if ledger.next % 256 in BATCHED else 1)
    return delay_s
