"""What was delivered before this start and is not in the stored offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.services.delay.copies import Copies, copies_in
from rocketstore.services.delay.progress import WINDOW_BYTES

if TYPE_CHECKING:
    from rocketstore.engine.engine import Engine
    from rocketstore.services.delay.level import Level

__all__ = ["end_of_copies", "skip_delivered"]

#: Log after the window in which a copy can lie, since other puts pushed it on.
MARGIN_BYTES: Final = 64 << 20


def skip_delivered(
    levels: Iterable[Level],
    engine: Engine,
    known_from: int | None,
    go_on: Callable[[], None],
) -> bool:
    """Passes over the messages whose copies are in the log; whether there were any.

    `known_from`: where in the log the copies begin that the stored offsets do not know. `go_on` is
    called again and again, and raises where the work is to end; then a later call begins it again.
    """
    levels = list(levels)
    begin, end = _unknown_part(levels, engine, known_from)
    if begin >= end:
        return False
    copies, skipped = copies_in(engine.reader.source, begin, end, go_on), False
    for level in levels:
        skipped |= _skip(level, copies, go_on)
    return skipped


def end_of_copies(engine: Engine, begin: int) -> int:
    """Where copies end that a file does not know which says that they begin at `begin`. A clean stop
    stores where the log ends, so after one such a file is an older copy, and they may lie anywhere."""
    end = engine.reader.source.visible()
    clean = engine.recovery.mode == "clean"
    return end if clean else min(end, begin + WINDOW_BYTES + MARGIN_BYTES)


def _unknown_part(
    levels: Iterable[Level], engine: Engine, known_from: int | None
) -> tuple[int, int]:
    end = engine.reader.source.visible()
    # A copy lies after its source.
    first = [found for level in levels if (found := _first(level)) is not None]
    begin = min(first, default=end)
    if known_from is None or known_from > end:  # a broker wrote the file, or there is none
        return begin, end
    return max(begin, known_from), end_of_copies(engine, known_from)


def _first(level: Level) -> int | None:
    """Physical offset of the first message of a level that is not known as delivered."""
    try:
        for message in level.queue.messages(min([level.next, *level.undelivered])):
            return message.physical_offset
    except (CorruptRecordError, ReadFailedError):
        return 0
    return None


def _skip(level: Level, copies: Copies, go_on: Callable[[], None]) -> bool:
    """A level is delivered in order: what lies between its copies was left over."""
    was = level.next, set(level.undelivered)
    left = dict(level.undelivered)
    for at in level.undelivered:
        try:
            for message in level.queue.fetch(at, 1).messages:
                if copies.take(message):
                    del left[at]
        except (CorruptRecordError, ReadFailedError):
            continue  # that is why it is left over
    at, passed = level.next, list[int]()
    end = min(level.queue.bounds()[1], copies.end_of(level.queue.queue_id))
    while at < end:
        go_on()
        try:
            found = level.queue.fetch(at)
        except (CorruptRecordError, ReadFailedError):
            passed.append(at)
            at += 1
            continue
        for message in found.messages:
            if copies.take(message):
                left.update(dict.fromkeys(passed))
                if passed:  # first, as others look from which message on the log is needed
                    level.undelivered = {**left}
                passed = []
                level.next = message.queue_offset + 1
            else:
                passed.append(message.queue_offset)
        at = max(at + 1, found.next_offset)
    level.undelivered = left
    return was != (level.next, set(left))
