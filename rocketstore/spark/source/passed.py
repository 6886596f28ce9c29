"""What a stream passes by: the log after its offset, as long as no message there is wanted.

Messages of other topics give no micro-batch, so the offset stays where it is. A stream remembers in
memory how far it has looked, and reads nothing twice. The memory is of one history of the log.
"""

from __future__ import annotations

from typing import Any, Final

from rocketstore import Store
from rocketstore.spark.source.history import not_this_history, record_before
from rocketstore.spark.source.microbatch import first_wanted, record_start
from rocketstore.spark.source.options import ReadOptions

__all__ = ["PASSED_BYTES", "PASSED_S", "PassedBy"]

#: Bytes of other messages, and seconds with such, after which an empty micro-batch moves the offset
#: on. A restart reads these bytes once more, at about 1 GB/s; a batch costs Spark some 0.1 s.
PASSED_BYTES: Final = 256 << 20
PASSED_S: Final = 60.0


class PassedBy:
    """[begin, end) of the log, in which nothing is wanted; used by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._begin = self._end = -1
        self._uuid = ""
        #: As a stream's offset, by which another history is noticed.
        self._mark: dict[str, Any] = {}

    def after(self, store: Store, uuid: str, begin: int) -> int:
        """`begin`, or a later place before which nothing is wanted."""
        if not self._begin <= begin < self._end:
            return begin
        if uuid != self._uuid or not_this_history(store, self._mark):
            self._begin = self._end = -1
            return begin
        return self._end

    def look(self, store: Store, uuid: str, begin: int, end: int) -> tuple[int, bool]:
        """Looks on in [begin, end), at most PASSED_BYTES.

        Returns:
            A place before which nothing is wanted, and whether something is wanted there or soon
            after it. Damage counts as wanted, and so does what was removed: the reader reports it.
        """
        options = self._options
        place = self.after(store, uuid, begin)
        if place < store.begin_offset:
            return place, True
        place = record_start(store, place)
        last = min(end, max(place, begin + PASSED_BYTES))
        if place < last:
            found = first_wanted(store, place, last, options.wanted, options.verify)
            if found is not None:
                return found, True
            place = last if last == end else record_start(store, last)
            before = record_before(store, place)
            if before is not None:  # else nothing would show another history
                self._begin, self._end, self._uuid = begin, place, uuid
                self._mark = {"phys": place, "last": before}
        return place, False
