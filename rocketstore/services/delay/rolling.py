"""Rolls timers: puts again, at the end of the log, those that hold what retention wants to remove.

RocketMQ's wheel rolls what is due too late for it; here the log decides. A message that is put again
keeps its id and its time, and the record ends the one before it, as that of another time does
(`timers.put_again`). It is there as a whole or not at all, and a trim first flushes what was put
before it. So a stop at any point leaves one of the two to be delivered.
"""

from __future__ import annotations

import bisect
import contextlib
from typing import Final

import numpy as np

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.services.delay.timer_topic import due_of
from rocketstore.services.delay.timers import drop, put_again, see_all, timers_of

__all__ = ["roll"]

#: What goes has at least this many bytes for each byte that is put again for it. So the log shrinks,
#: and a store that has little but timers is not written again and again.
SHARE: Final = 2


def roll(engine: WritingEngine, below: int, most: int) -> int | None:
    """Puts again at most `most` messages that wait below a physical offset; gives how many are left
    there, those included that cannot be read. None: they are too large a part of it.

    Raises:
        BackpressureError, DiskFullError, StoreFailedError: no room. The others are where they were.
        DurabilityTimeoutError: they are put again, but the disk takes long.
    """
    timers = timers_of(engine)
    with timers.lock():
        timers.catch_up()
        table, queue = timers.table, timers.queue
        offsets = range(queue.bounds(catch_up=False)[0], table.next)
        end = offsets.start + bisect.bisect_left(
            offsets, below, key=lambda at: queue.physical_offset(at) or 0
        )
        left = np.array([at for at in timers.troubles.undelivered if at < end], np.int64)
        first, count, size = left[:0], 0, 0
        for part in (left, *table.offsets(end)):
            at = np.sort(part)
            count, size = count + len(at), size + queue.size_of(at)
            first = np.sort(np.concatenate([first, at[:most]]))[:most]
        if size * SHARE > below - engine.begin_offset:
            return None
        for number in first.tolist():
            timers.go_on()
            # What cannot be read holds the log: `undelivered` has it once it is due. So does what comes
            # again and has its copy: it is put again with its next time alone.
            with contextlib.suppress(CorruptRecordError, ReadFailedError):
                message = None if number in table.copied else queue.message(number)
                if message is not None:
                    put_again(engine, message)
                    drop(timers, message)
                    engine.delayed_puts.note_due(due_of(message.properties))
                    count -= 1
        if most:
            see_all(engine, timers)
        return count
