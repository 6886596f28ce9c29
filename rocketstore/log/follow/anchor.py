"""Whether a log still has what a reader was shown.

A recovery may cut the end of a log, an older copy may be written into the files. The log then grows
again, beyond the place where a reader is: bounds alone would let it go on in the middle of messages
that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rocketstore.log.layout.log_place import tail_bytes

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.layout.identity import StoreIdentity

__all__ = ["Anchor"]

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
        #: Of whole segments, by start: where their last bytes end, and these.
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
