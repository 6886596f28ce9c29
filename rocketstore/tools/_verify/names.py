"""Records whose topic or queue id can be no directory: no dispatcher makes a queue for them, and
only their physical offset leads to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rocketstore._native.format.constants import MAGIC_V2
from rocketstore._native.format.message import Message
from rocketstore.log.layout.paths import StoreLayout, is_safe_name
from rocketstore.tools._verify.facts import LogFacts
from rocketstore.tools._verify.queues import QueueSeen
from rocketstore.tools.report import Findings, WithoutQueue
from rocketstore.values.plural import counted

__all__ = ["has_queue", "name_without_queue", "note_without_queue"]

#: Replaces bytes that are no UTF-8 in what is shown.
MARK: Final = "\N{REPLACEMENT CHARACTER}"
#: A topic follows the body, and that these bytes, where both hosts are IPv4 (format.md 2.1).
BEFORE_BODY: Final = 88
#: What a host has more as IPv6, by its bit of the system flag.
WIDER: Final = {0x10: 12, 0x20: 12}


def has_queue(message: Message, topic: str, queue_id: int) -> bool:
    """Whether a dispatcher makes a queue of this name for a message: its own, or a light one."""
    if queue_id < 0 or not is_safe_name(topic):
        return False
    return MARK not in topic or topic != message.topic or _topic_bytes(message) == topic.encode()


def _topic_bytes(message: Message) -> bytes:
    """The topic of a message as its record has it."""
    record = bytes(message)
    wider = sum(more for bit, more in WIDER.items() if message.sys_flag & bit)
    place = BEFORE_BODY + wider + len(message.body_view)
    width = 2 if int.from_bytes(record[4:8]) == MAGIC_V2 else 1
    start = place + width
    return record[start : start + int.from_bytes(record[place:start])]


def note_without_queue(facts: LogFacts, message: Message, topic: str, queue_id: int) -> None:
    known = facts.without_queue.setdefault((topic, queue_id), [message.physical_offset, 0])
    known[1] += 1


def name_without_queue(
    layout: StoreLayout, queues: Iterable[QueueSeen], facts: LogFacts, findings: Findings
) -> None:
    """Says which records no queue can have. RocketMQ makes queues of names that are not UTF-8, by
    what its decoder makes of them: what has a unit there is not named."""
    served = {(queue.topic, queue.queue_id): queue.matching for queue in queues}
    for place, (first, count) in sorted(facts.without_queue.items()):
        left = count - served.get(place, 0)
        if left <= 0:
            continue
        found = WithoutQueue(*place, left, first)
        findings.without_queue += (found,)
        text = (
            f"{counted(left, 'record')} of {place[0]}/{place[1]}, the first at {first}: no queue "
        )
        text += "can have this name; `get` and `scan` read them by physical offset"
        findings.notice("log", str(layout.commit_log), text, code="name")
