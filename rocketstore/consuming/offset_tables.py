"""What a table of stored offsets says: {"topic@group": {"queue id": offset}}.

Functions of a table alone, and one of a table and its journal: `read_together`. RocketMQ and hands
may have left anything in a table; what makes no sense is no offset, and stays.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from rocketstore.consuming.commit_journal import Journal, Moved, mark_of
from rocketstore.log.layout.state_files import checksum
from rocketstore.log.queues.units import QUEUE_OFFSET_MAX
from rocketstore.log.recovery.report import OffsetSetBack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    #: Where the queue of a topic and a queue id ends; None: there is none.
    Maximum = Callable[[str, int], int | None]

__all__ = [
    "BELIEVED_MAX",
    "MAX_OFFSET",
    "Rows",
    "beyond_queues",
    "document_in",
    "entries_without_sense",
    "floors_in",
    "groups_in",
    "loses",
    "member_of",
    "offsets_of",
    "read_together",
    "rows_of",
    "split_key",
]

logger = logging.getLogger(__name__)

#: The two files, as texts name them.
JSON: Final = "config/consumerOffset.json"
JOURNAL: Final = "rocketstore/group_offsets"
QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
# RocketMQ's own bound of a queue offset: a signed 64-bit number.
MAX_OFFSET = (1 << 63) - 1
#: Largest offset of a group at which a queue without messages begins; as many fit after it.
BELIEVED_MAX: Final = QUEUE_OFFSET_MAX // 2
#: Groups whose offsets say how far a service is, and how many messages before the end of its queue
#: it reads again where the log lost its end: of half messages and their ends all; of commits of
#: transactions the last one, since a batch has the copies of each: a cut leaves the last one alone.
HALF_MESSAGES: Final = "CID_RMQ_SYS_TRANS"
READ_AGAIN: Final = {HALF_MESSAGES: MAX_OFFSET, "CID_RMQ_SYS_rocketstore_transactions": 1}


def beyond_queues(table: dict[str, object], maximum: Maximum, *, lost: bool) -> list[OffsetSetBack]:
    """Which offsets are beyond the end of their queue, and what they become.

    Offsets of a queue that does not exist stay: its first message will come after them. But one at
    which no queue begins goes back to the largest other one. Otherwise it would count for messages
    that are put before the next open.

    `lost`: the log lost its end. Then services read again what they were done with: the log may have
    lost what they put, and still have what they put it for. An offset of a service beyond its queue
    shows the same.
    """
    floors = floors_in(table, BELIEVED_MAX)
    lost = lost or any(
        group in READ_AGAIN and offset > (offset if (end := maximum(topic, n)) is None else end)
        for topic, group, n, offset in rows_of(table)
    )
    found = []
    for topic, group, queue_id, offset in rows_of(table):
        limit = maximum(topic, queue_id)
        if lost and limit is not None:
            limit = max(0, limit - READ_AGAIN.get(group, 0))
        if limit is None and offset > BELIEVED_MAX:
            limit = floors.get(f"{topic}/{queue_id}", 0)
        if limit is not None and offset > limit:
            change = OffsetSetBack(
                group=group, topic=topic, queue_id=queue_id, was=offset, now=limit
            )
            found.append(change)
    return found


def member_of(named: Mapping[str, object]) -> dict[str, object]:
    """What our member of the JSON has, with a checksum of it."""
    said = {name: value for name, value in named.items() if value not in ([], None)}
    return {**said, "own_crc": checksum(said)}


def document_in(path: Path, found: object) -> dict[str, Any]:
    """What the JSON says; without our member if its checksum does not hold: the block that it names
    may be any."""
    if not isinstance(found, dict):
        if found is not None:
            logger.warning("%s is not an object; it counts as empty", path)
        return {}
    if not isinstance(found.get("offsetTable", {}), dict):
        logger.warning("%s: offsetTable is not an object; it counts as empty", path)
        found["offsetTable"] = {}
    said = found.get("rocketstore")
    if isinstance(said, dict) and said.pop("own_crc", None) not in (None, checksum(said)):
        del found["rocketstore"]
    return found


def read_together(
    merged: dict[str, object], said: object, journal: Journal, *, ours: bool
) -> tuple[dict[str, object], int, tuple[str, ...]]:
    """The table with the commits that it lacks; the first block of the journal whose commits it
    lacks, as the JSON says, 0 where it does not; and what shows that either file is not as
    rocketstore left it, in sentences. With such a doubt all half messages and their ends are read again.

    `merged`, `said`: table and member of the JSON. `ours`: no other program wrote the store since.
    """
    found = said.get("merged") if isinstance(said, dict) else None
    mark = found if type(found) is int and 0 < found < MAX_OFFSET else 0
    sound = isinstance(said, dict) and said.items() >= mark_of(merged, mark).items()
    first, doubts = mark or journal.merged, []
    if not mark and (ours or not merged) and journal.end > 1:  # a broker stores what it has read
        doubts.append(
            f"{JSON} is missing, empty or not the file that rocketstore wrote: groups that it "
            f"lacks begin anew, but for their last commits in {JOURNAL}"
        )
    elif mark and not sound:
        doubts.append(f"{JSON} was changed since rocketstore wrote it: what it says counts")
    elif first < journal.merged:
        doubts.append(f"{JSON} is an older copy: newer commits count as far as {JOURNAL} has them")
    whole = journal.fault if mark or journal.end > 1 else ""
    older = "it is zeroed or an older copy" if first > journal.end and not whole else ""
    if wrong := "; ".join(filter(None, (whole, older, journal.damage(first)))):
        doubts.append(f"{JOURNAL}: {wrong}: commits that {JSON} lacks may be gone")
    table = _with_commits(merged, journal.commits(first), sound=sound, ours=ours)
    if doubts:  # the two offsets of half messages and of their ends may be of two moments
        table = {key: row for key, row in table.items() if not key.endswith(f"@{HALF_MESSAGES}")}
    return table, mark, tuple(doubts)


def _with_commits(
    merged: dict[str, object], commits: Collection[Moved], *, sound: bool, ours: bool
) -> dict[str, object]:
    """The table with the commits that it lacks. `sound`: all of them are newer. Else another program
    has stored a newer offset where the table no longer holds what a commit found there, and its
    offset counts; where it holds none and the store is `ours`, it was lost."""
    table = dict(merged) if commits else merged
    base = {key: dict(offsets_of(merged.get(key))) for key in {one.key for one in commits}}
    for key, queue_id, was, now in commits:
        held = base[key].get(queue_id)
        if sound or held == was or (ours and held is None):
            row = table.get(key)
            table[key] = {**(row if isinstance(row, dict) else {}), str(queue_id): now}
    return table


def loses(before: object, after: object) -> bool:
    """Whether a row has a queue less, which the journal cannot say."""
    return (
        before is not after
        and not dict(offsets_of(before)).keys() <= dict(offsets_of(after)).keys()
    )


def split_key(key: str) -> tuple[str, str] | None:
    """Topic and group of a key; neither can hold the sign between them."""
    topic, separator, group = key.partition("@")
    return (topic, group) if separator and topic and group and "@" not in group else None


def groups_in(table: dict[str, object]) -> dict[str | None, tuple[str, ...]]:
    """Groups with stored offsets, sorted, by topic; those of any topic by None."""
    found: dict[str | None, Any] = {}
    names: dict[str, str] = {}  # one text for each group
    for topic, group in filter(None, map(split_key, table)):
        found.setdefault(topic, []).append(names.setdefault(group, group))
    found[None] = names
    for of, groups in found.items():  # in place: there may be as many topics as rows
        found[of] = tuple(sorted(groups))
    return found


def floors_in(table: dict[str, object], most: int = MAX_OFFSET) -> dict[str, int]:
    """The largest offset that any group has stored, of those up to `most`, by "topic/queue id"."""
    found: dict[str, int] = {}
    for topic, _, queue_id, offset in rows_of(table):
        if offset <= most:
            place = f"{topic}/{queue_id}"  # takes half of what a pair does
            found[place] = max(offset, found.get(place, 0))
    return found


def rows_of(table: dict[str, object]) -> Iterator[tuple[str, str, int, int]]:
    """Topic, group, queue id and offset of all that makes sense."""
    for key, row in table.items():
        pair = split_key(key)
        if pair is not None:
            for queue_id, offset in offsets_of(row):
                yield *pair, queue_id, offset


def entries_without_sense(table: Mapping[str, object], key: str | None = None) -> list[str]:
    """What a table of offsets, or the row of one topic and group, has that is no offset of a queue:
    its group starts over there."""
    found = []
    for name, row in table.items():
        if key is not None and name != key:
            continue
        if not isinstance(row, dict):
            found.append(f"{name} = {row!r:.40} is no object")
            continue
        known = {str(queue_id) for queue_id, _ in offsets_of(row)}
        found += [f"{name}: queue {q!r:.40} = {row[q]!r:.40}" for q in row if q not in known]
        if split_key(name) is None:
            found.append(f"{name!r:.80} is no topic@group")
    return found


def offsets_of(row: object) -> Iterator[tuple[int, int]]:
    """Queue ids and offsets that make sense; anything else in a row is left alone."""
    if not isinstance(row, dict):
        return
    for queue_id, offset in row.items():
        if not isinstance(queue_id, str) or QUEUE_ID.fullmatch(queue_id) is None:
            continue
        if int(queue_id) < 1 << 31 and type(offset) is int and 0 <= offset <= MAX_OFFSET:
            yield int(queue_id), offset


class Rows:
    """Offsets of the rows that were asked for, read once: a row is replaced, never changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, dict[int, int]]] = {}

    def offsets(self, key: str, table: Mapping[str, object]) -> dict[int, int]:
        """Next offsets by queue id, not to be changed."""
        row = table.get(key)
        known = self._known.get(key)
        if known is None or known[0] is not row:
            known = self._known[key] = row, dict(offsets_of(row))
        return known[1]

    def move(self, key: str, table: dict[str, object], queue_id: int, now: int) -> None:
        """Gives the table another row, which need not be read then."""
        offsets, row = self.offsets(key, table), table.get(key)
        table[key] = {**(row if isinstance(row, dict) else {}), str(queue_id): now}
        self._known[key] = table[key], {**offsets, queue_id: now}
