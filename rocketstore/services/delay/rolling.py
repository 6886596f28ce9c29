"""Rolls timers: puts again, at the end of the log, those that hold what retention wants to remove.

RocketMQ's wheel rolls what is due too late for it; here the log decides. A message that is put again
keeps its id and its time, and the record ends the one before it, as that of another time does
(`timers.put_again`). It is there as a whole or not at all, and a trim first flushes what was put
before it. So a stop at any point leaves one of the two to be delivered.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

import numpy as np

from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.services.delay.timer_topic import due_of
from rocketstore.services.delay.timers import drop, put_again, see_all, timers_of

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["roll"]

#: What goes has at least this many bytes for each byte that is put again for it. So the log shrinks,
#: and a store that has little but timers is not written again and again.
SHARE: Final = 2


def roll(engine: WritingEngine, below: int, most: int) -> int | None:
    """Puts again at most `most` messages that wait below a physical offset; gives how many are left
    there, those included that cannot be read. None: they are too large a part of it, or the store
    is a copy, which puts nothing.

    Raises:
        BackpressureError, DiskFullError, StoreFailedError: no room. The others are where they were.
        DurabilityTimeoutError: they are put again, but the disk takes long.
    """
    timers = timers_of(engine)
    with timers.lock():
        timers.catch_up()
        table, queue, end = timers.table, timers.queue, timers.table.next
        begin = queue.bounds(catch_up=False)[0]
        offsets = range(begin, end)
        end = begin + bisect.bisect_left(
            offsets, below, key=lambda at: queue.physical_offset(at) or 0
        )
        left = np.array([at for at in timers.troubles.undelivered if at < end], np.int64)
        first, count, size = left[:0], 0, 0
        for part in (left, *table.below(end)):
            at = np.sort(part)
            count, size = count + len(at), size + queue.size_of(at)
            first = np.sort(np.concatenate([first, at[:most]]))[:most]
        if engine.copy_of or size * SHARE > below - engine.begin_offset:
            return None
        for number in first.tolist():
            timers.go_on()
            # The copy of one that comes again is there: it is put again with its next time alone.
            if number not in table.copied and _again(engine, number):
                count -= 1
        if most:
            see_all(engine, timers)
        return count


def _again(engine: WritingEngine, at: int) -> bool:
    timers = timers_of(engine)
    try:
        message = timers.queue.message(at)
    except (CorruptRecordError, ReadFailedError):
        return False  # it holds the log, and `undelivered` has it once it is due
    if message is None:
        return False
    put_again(engine, message)
    drop(timers, message)
    engine.delayed_puts.note_due(due_of(message.properties))
    return True
