"""What the lives of `tests.process.shared_kills` said, compared with what the store has at the end.

An acknowledged put is there once, at its place; one of unknown outcome at most once, with `unique_id` exactly once in
the end; one that was refused is not there. Batches and transactions are there as a whole or not at all. Messages of
one thread that were acknowledged are in their order in each queue, and queue offsets have no gap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.process.shared_life import COUNTED, IN, LATE, OUT, TOPICS

__all__ = ["Event", "Found", "faults"]

#: A line of a life; `life` is its name.
Event = dict[str, Any]
#: Topics whose places are those that a put was told.
PLACED = (*TOPICS, COUNTED, IN)


@dataclass
class Found:
    """What the store has: (topic, queue) → its messages in order, as (queue offset, body, unique id)."""

    queues: dict[tuple[str, int], list[tuple[int, str, str | None]]]
    #: Kills and stops of processes, as spans of CLOCK_MONOTONIC in ns.
    strikes: list[tuple[int, int]] = field(default_factory=list)

    def bodies(self, topics: Iterable[str]) -> Counter[str]:
        wanted = set(topics)
        return Counter(
            body
            for (topic, _), rows in self.queues.items()
            if topic in wanted
            for _, body, _ in rows
        )


@dataclass
class Put:
    """A try and what came of it; `how`: ok, unknown or refused, "" where its process died before."""

    tried: Event
    ended: Event
    how: str

    @property
    def bodies(self) -> list[str]:
        return [row[2] for row in self.tried["rows"]]


def puts_of(events: Iterable[Event]) -> Iterator[Put]:
    """In the order of each life: events of one life are in their order."""
    open_tries: dict[str, Event] = {}
    for event in events:
        if event["e"] == "try":
            if event["by"] in open_tries:
                tried = open_tries.pop(event["by"])
                yield Put(tried, {}, "")
            open_tries[event["by"]] = event
        elif event["e"] in ("ok", "unknown", "refused"):
            yield Put(open_tries.pop(event["by"]), event, event["e"])
    for tried in open_tries.values():
        yield Put(tried, {}, "")


def faults(events: list[Event], found: Found) -> list[str]:
    """What is wrong, in words; empty where all promises were kept."""
    puts = list(puts_of(events))
    return [
        *_numbers(found),
        *_outcomes(puts, found),
        *_once(puts, found),
        *_order(puts, found),
        *_unknowns(puts, found.strikes),
        *_pipe(found),
        *_groups(events),
        *_owners(events, found.strikes),
        *(f"{e['life']} broke: {e['error']}" for e in events if e["e"] == "broken"),
        *(f"{e['life']} read {e['at']} after {e['after']}" for e in events if e["e"] == "gap"),
    ]


def _numbers(found: Found) -> Iterator[str]:
    for queue, rows in found.queues.items():
        for number, (offset, _, _) in enumerate(rows):
            if number != offset:
                yield f"{queue}: offset {offset} where {number} should be"
                break


def _outcomes(puts: list[Put], found: Found) -> Iterator[str]:
    there = found.bodies((*PLACED, LATE))
    for body, times in there.items():
        if times > 1:
            yield f"twice: {body[:40]} is there {times} times"
    sent = {body for put in puts for body in put.bodies}
    yield from (f"never sent: {body[:40]}" for body in there.keys() - sent)
    at = {
        (*queue, offset): body for queue, rows in found.queues.items() for offset, body, _ in rows
    }
    refused = dict[str, Put]()
    stored = set[str]()
    for put in puts:
        weak = put.tried.get("weak", False)
        if "id" in put.tried:
            continue
        counts = [there[body] for body in put.bodies]
        if put.how == "ok" and not weak:
            stored.update(put.bodies)
            if not all(counts):
                yield f"lost: {put.tried} was acknowledged: {put.ended}"
            elif put.ended["places"]:
                for (topic, _, body), (queue, offset) in zip(
                    put.tried["rows"], put.ended["places"], strict=True
                ):
                    if at.get((topic, queue, offset)) != body:
                        is_at = [place for place, there in at.items() if there == body]
                        how = put.tried.get("how")
                        yield f"elsewhere: {how} {body[:40]}: {topic}/{queue} {offset}, not {is_at}"
        elif put.how == "refused":
            refused.update(dict.fromkeys(put.bodies, put))
        if put.tried.get("whole") and any(counts) and not all(counts):
            yield f"in part: {put.tried}: {counts}"
        expected = put.tried.get("expected")
        if put.how == "ok" and expected is not None and put.ended["places"][0][1] != expected:
            yield f"not as expected: {put.tried}: {put.ended}"
    for body, put in refused.items():
        if there[body] and body not in stored:
            yield f"refused and stored: {body[:40]}: {put.ended['error']}"


def _once(puts: list[Put], found: Found) -> Iterator[str]:
    """Of unique ids: each is there at most once, and once where a put of it was acknowledged, there."""
    places = defaultdict[tuple[str, str], list[tuple[int, int]]](list)
    for (topic, queue), rows in found.queues.items():
        for offset, _, unique_id in rows:
            if unique_id is not None and unique_id.startswith(("id ", "race ")):
                places[topic, unique_id].append((queue, offset))
    for key, where in places.items():
        if len(where) > 1:
            yield f"twice: {key} is at {where}"
    for put in puts:
        if "id" in put.tried and put.how == "ok":
            where = places[put.tried["rows"][0][0], put.tried["id"]]
            if [tuple(place) for place in put.ended["places"]] != where:
                yield f"{put.tried} was acknowledged at {put.ended['places']}, is at {where}"


def _order(puts: list[Put], found: Found) -> Iterator[str]:
    """Acknowledged messages of one thread, in each queue of application topics."""
    acknowledged = {
        body for put in puts if put.how == "ok" and "id" not in put.tried for body in put.bodies
    }
    for (topic, queue), rows in found.queues.items():
        if topic not in PLACED:
            continue
        last = dict[str, int]()
        for _, body, _ in rows:
            if body in acknowledged:
                by, number = body.split("/")[:2]
                if int(number) < last.get(by, 0):
                    yield f"order: {topic}/{queue}: {by}/{number} after {last[by]}"
                last[by] = int(number)


def _unknowns(puts: list[Put], strikes: list[tuple[int, int]]) -> Iterator[str]:
    """Only the end, or a stop, of a process makes an outcome unknown; a close in order does not."""
    for put in puts:
        if put.how == "unknown":
            began, ended = put.ended["began"], put.ended["t"]
            if not any(first <= ended and began <= last for first, last in strikes):
                yield f"unknown, and nothing was killed: {put.tried} {put.ended}"


def _pipe(found: Found) -> Iterator[str]:
    put, moved = found.bodies([IN]), found.bodies([OUT])
    yield from (f"the pipe lost {body[:40]}" for body in put - moved)
    yield from (f"the pipe moved {body[:40]} twice" for body in moved - put)


def _groups(events: list[Event]) -> Iterator[str]:
    """Each owner begins where one before committed, or asked to; none commits once another one has moved the group. One
    that has it for a moment between two hosts, and moves nothing, hinders nobody."""
    kinds = ("claimed", "committing", "committed")
    steps = sorted((e for e in events if e["e"] in kinds), key=lambda event: event["t"])
    acknowledged, asked = dict[str, int](), defaultdict[str, set[int]](lambda: {0})
    lasts = dict[int, Event]()
    for step in steps:
        at: dict[str, int] = step["at"]
        if step["e"] == "committing":
            for queue, offset in at.items():
                asked[queue].add(offset)
        elif step["e"] == "committed":
            owner = step["owner"]
            own = lasts.get(owner, step)
            for last in lasts.values():
                if (
                    own["t"] < last["asked"]
                    and last["t"] < step["asked"]
                    and last["at"] != own["at"]
                ):
                    yield f"{step['life']} committed although {last['life']} had the group: {step}"
            lasts[owner] = step
            acknowledged.update(at)
        else:
            for queue, offset in at.items():
                if offset < acknowledged.get(queue, 0) or offset not in asked[queue]:
                    known = acknowledged.get(queue, 0)
                    yield f"{step['life']} began queue {queue} at {offset}, {known} was committed"


def _owners(events: list[Event], strikes: list[tuple[int, int]]) -> Iterator[str]:
    """Nobody commits while another surely has the group: from its claim until it gives it back, its last word, or
    something happens to a process since it asked for it, as owners claim again at the next host and the first one
    wins."""
    closed = {e["life"]: e["t"] for e in events if e["e"] == "closed"}
    troubles = [
        *strikes,
        *((e["t"], closed.get(e["life"], e["t"])) for e in events if e["e"] == "closing"),
    ]
    last_words = dict[str, int]()
    released = {e["owner"]: e["t"] for e in events if e["e"] == "releasing"}
    for event in events:
        last_words[event["life"]] = max(event.get("t", 0), last_words.get(event["life"], 0))
    commits = [e for e in events if e["e"] == "committed"]
    for claim in (e for e in events if e["e"] == "claimed"):
        begin, owner = claim["t"], claim["owner"]
        end = min(
            last_words[claim["life"]],
            released.get(owner, last_words[claim["life"]]),
            *(first for first, last in troubles if last >= claim["asked"]),
        )
        for commit in commits:
            if commit["owner"] != owner and begin < commit["asked"] and commit["t"] < end:
                yield f"{commit['life']} committed while {claim['life']} had the group: {commit}"
