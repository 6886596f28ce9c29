"""The log's files as a follower sees them: which are there, and where the last record ends."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Final

from rocketstore._native.format.scanner import (
    VERIFY_LENIENT,
    SearchBudget,
    resynchronise,
    scan_segment,
)
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.listing import usual_size
from rocketstore.log.layout.log_dirs import NAME_THEM, has_segment, list_log
from rocketstore.log.layout.store_json import has_stale_checksums

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["LogView"]

#: Size field at the begin of a record, bytes; zeros there mean that no record was written.
SIZE_BYTES: Final = 4
#: Longest age of a listing, seconds; retention takes files away without a word.
LISTING_S: Final = 1.0
#: Listings in a row, until files are believed to be missing.
LISTINGS_MOST: Final = 5


class LogView:
    """The mapped segments of a log that another process writes.

    Any thread may read the attributes; only the thread that holds the follower's lock calls methods
    that change them. `segments` is replaced as a whole.
    """

    def __init__(self, layout: StoreLayout, verify: int) -> None:
        self.segments: tuple[MappedFile, ...] = ()
        self.segment_size = 0
        #: VERIFY_LENIENT while RocketMQ may have left stale record checksums in the log, else 0.
        self.lenient = 0
        self._layout = layout
        self._verify = verify
        self._listed_at = 0.0
        #: Where the last walk ended, a physical offset; -1: no walk yet.
        self._walked = -1

    @property
    def begin(self) -> int:
        return self.segments[0].start_offset if self.segments else 0

    @property
    def end(self) -> int:
        """End of the last file, whether records fill it or not."""
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def listing_due(self) -> bool:
        return time.monotonic() >= self._listed_at + LISTING_S

    def lacks(self, begin: int, end: int) -> list[str]:
        """A sentence for the first part of [begin, end) that no file has; none where all is
        there."""
        for file in self.segments:
            if file.start_offset <= begin < file.end_offset:
                begin = file.end_offset
        if begin >= end:
            return []
        text = f"the process that writes shows [{begin}, {end}), for which no file is here"
        return [f"segments of the commit log are missing: {text}; {NAME_THEM}"]

    def next_exists(self) -> bool:
        """Whether the writer has made a file that was not listed yet."""
        return has_segment(self._layout, self.end)

    def is_written_at(self, offset: int) -> bool:
        """Whether a record was appended at a physical offset where the log ended."""
        for file in self.segments:
            if file.start_offset <= offset < file.end_offset:
                count = min(SIZE_BYTES, file.end_offset - offset)
                return any(file.read(offset - file.start_offset, count))
        return self.next_exists()

    def list(self, *, replace: bool = False) -> None:
        """Maps new files, or with `replace` all of them, and lets removed ones go. Files of another
        length than the first are left out."""
        self._listed_at = time.monotonic()
        self.lenient = VERIFY_LENIENT if has_stale_checksums(self._layout) else 0
        size, good = self._listed()
        known = {} if replace else {segment.start_offset: segment for segment in self.segments}
        segments: list[MappedFile] = []
        for start, path in good.items():
            segment = known.pop(start, None) or _open_segment(path, start, size)
            if segment is None:
                segments.clear()  # It was removed while we looked: so were all before it.
            else:
                segments.append(segment)
        self.segment_size = size
        self.segments = tuple(segments)

    def _listed(self) -> tuple[int, dict[int, str]]:
        """The length of a file, and the path of each by its start. While a directory is read, files
        come and go, and the listing may lack some: after a gap the view lists the log again."""
        size, good = self._list_once()
        for _ in range(LISTINGS_MOST - 1):
            if not good or max(good) - min(good) == (len(good) - 1) * size:
                break
            size, good = self._list_once()
        return size, good

    def _list_once(self) -> tuple[int, dict[int, str]]:
        found = list_log(self._layout)
        size = self.segment_size or usual_size(found) or 0
        return size, {
            s: path for s, length, path in found if length == size and size and s % size == 0
        }

    def start_walk(self, known: int | None) -> None:
        """`known`: a physical offset where a record ended; None if none is known."""
        self._walked = -1 if known is None else known

    def last_record_end(self) -> int:
        """The end of the last record; there is one segment at least. Walks the newest segments from
        record to record, from where the last walk ended. Passes over bytes that are no record if
        one follows in the same segment."""
        verify = self._verify | self.lenient
        if self._walked < self.segments[0].start_offset:
            used = [file for file in self.segments if any(file.read(0, SIZE_BYTES))]
            self._walked = used[-1].start_offset if used else self.segments[0].start_offset
        for file in self.segments:
            budget = SearchBudget()
            while file.start_offset <= self._walked < file.end_offset:
                position = self._walked - file.start_offset
                found = scan_segment(file, position, file.size, verify=verify)
                position = file.size if found.status == "blank" else found.end_position
                self._walked = file.start_offset + position
                if position == file.size:
                    break
                if not any(file.read(position, min(SIZE_BYTES, file.size - position))):
                    return self._walked
                after = resynchronise(file, position + 1, file.size, budget=budget, verify=verify)
                if after is None:
                    return self._walked
                self._walked = file.start_offset + after
        return self._walked

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


def _open_segment(path: str, start: int, size: int) -> MappedFile | None:
    """None for a file that was removed meanwhile."""
    try:
        file = MappedFile.open(path, start, size, "read")
        file.close_descriptor()
        return file
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
