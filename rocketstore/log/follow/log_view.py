"""The log's files as a follower sees them: which are there, and where the last record ends."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from typing import Final

from rocketstore._native.format.scanner import (
    VERIFY_LENIENT,
    SearchBudget,
    resynchronise,
    scan_segment,
)
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.identity import StoreIdentity
from rocketstore.log.layout.listing import usual_size
from rocketstore.log.layout.log_dirs import NAME_THEM, has_segment, list_log
from rocketstore.log.layout.log_place import tail_bytes
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import has_stale_checksums

__all__ = ["Anchor", "LogView"]


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


# Whether a log still has what a reader was shown.
#
# A recovery may cut the end of a log, an older copy may be written into the files. The log then grows
# again, beyond the place where a reader is: bounds alone would let it go on in the middle of messages
# that it never saw.

#: Bytes that are compared: a record checksum, unique key and body are among the last of a record.
TAIL_BYTES: Final = 256
#: Whole segments that are compared, the newest ones, and the bytes at their ends where their last
#: record is looked for: after a large gap it is not.
SEGMENTS_MAX: Final = 32
SEARCHED_BYTES: Final = 1 << 20


class Anchor:
    """The last bytes below the end of a log, and the last ones of its newest whole segments: a copy
    that is older differs where it ended, and leaves later files as they are. The caller guards
    it."""

    def __init__(self) -> None:
        self._end = 0
        self._tail = b""
        #: End of the segment where the log ended when whole segments were last noted.
        self._until = 0
        #: For each whole segment, by its start: the offset where its last bytes end, and the bytes.
        self._whole: dict[int, tuple[int, bytes]] = {}

    def note(self, segments: Sequence[MappedFile], end: int) -> None:
        """`end`: where the last record that readers may see ends."""
        tail = tail_bytes(segments, end, TAIL_BYTES)
        if tail.strip(b"\0"):  # else the rest of a segment, after its last record
            self._end, self._tail = end, tail
        if end > self._until:
            whole = [file for file in segments[-SEGMENTS_MAX - 1 :] if file.end_offset < end]
            self._until = min((f.end_offset for f in segments if f.end_offset >= end), default=end)
            self._whole = {
                file.start_offset: self._whole.get(file.start_offset) or _last_bytes(file)
                for file in whole
            }

    def check(
        self,
        identity: StoreIdentity,
        segments: Sequence[MappedFile],
        end: int | None,
        *,
        whole: bool = True,
    ) -> None:
        """Raises StoreReplacedError where the log is not the one that was noted; not where
        retention has removed the place. `end`: where it ends now; None: not known. `whole`: looks
        at whole segments, too."""
        if why := self._lost(segments, end) or (self._changed(segments) if whole else ""):
            identity.refuse(f"{why}: a recovery cut it, or a copy has its place")

    def _lost(self, segments: Sequence[MappedFile], end: int | None) -> str:
        if not self._tail or not segments or segments[0].start_offset >= self._end:
            return ""
        if end is not None and end < self._end:
            return f"the log ends at {end}, and this reader has shown it up to {self._end}"
        if tail_bytes(segments, self._end, TAIL_BYTES) != self._tail:
            return f"the log has other records below {self._end}, up to where this reader showed it"
        return ""

    def _changed(self, segments: Sequence[MappedFile]) -> str:
        for file in segments:
            end, last = self._whole.get(file.start_offset, (0, b""))
            if last and tail_bytes((file,), end)[-len(last) :] != last:
                return f"the log has other records below {end}, where this reader saw its segment"
        return ""


def _last_bytes(file: MappedFile) -> tuple[int, bytes]:
    """Where the last bytes of a segment end that are not zeros, and these; none are found after a
    large gap."""
    size = min(SEARCHED_BYTES, file.size)
    step = 4096
    for behind in range(0, size, step):
        count = min(step, size - behind)
        found = bytes(file.read(file.size - behind - count, count)).rstrip(b"\0")
        if found:
            end = file.end_offset - behind - count + len(found)
            return end, found[-TAIL_BYTES:]
    return file.start_offset, b""
