"""The objects of an archive as the files of a log: pieces are fetched into memory as a walk comes
to them."""

from __future__ import annotations

import logging
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.archive.manifest import Manifest, Segment
from rocketstore.archive.object_store import ObjectStore, RemoteObject, shown_uri
from rocketstore.errors import CorruptRecordError
from rocketstore.log.read.column_reader import SegmentFiles
from rocketstore.values.record_filter import RecordFilter

__all__ = ["ArchivePart", "ObjectFiles"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """What a scan has to know of an archive: its segments that may hold a wanted message, and the
    ranges of those that cannot, which are not fetched."""

    uri: str
    segments: tuple[Segment, ...]
    passed: tuple[tuple[int, int], ...] = ()
    #: The uuid of the store that was shipped; empty where only RocketMQ wrote it.
    store: str = ""

    @classmethod
    def of(cls, uri: str, manifest: Manifest, wanted: RecordFilter) -> ArchivePart:
        kept, passed = [], []
        accept = wanted.acceptance()
        for segment in manifest.segments:
            if segment.store_times_ms is None:
                needed = False
            else:
                first, last = segment.store_times_ms
                needed = first < wanted.end_ms and last >= wanted.start_ms
            if needed and accept is not None and segment.topics is not None:
                needed = any(accept(topic) is not False for topic in segment.topics)
            if needed:
                kept.append(segment)
            else:
                passed.append((segment.start_offset, segment.end_offset))
        return cls(uri, tuple(kept), tuple(passed), manifest.store)

    def within(self, begin: int, end: int) -> ArchivePart:
        """The same without what lies outside of [begin, end)."""
        segments = (s for s in self.segments if s.start_offset < end and s.end_offset > begin)
        passed = ((low, high) for low, high in self.passed if low < end and high > begin)
        return replace(self, segments=tuple(segments), passed=tuple(passed))

    def ranges(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """[begin, end) without what is passed over."""
        for low, high in self.passed:
            if begin < low:
                yield begin, min(low, end)
            begin = max(begin, high)
            if begin >= end:
                return
        if begin < end:
            yield begin, end

    @property
    def foreign(self) -> bool:
        return any(segment.foreign for segment in self.segments)


class ObjectFiles(SegmentFiles):
    """Pieces of objects in memory, one at a time; each begins and ends where a record or a segment
    does.

    A piece whose bytes are not those that were shipped raises `CorruptRecordError` when it is
    fetched; with `skip_damage` that is logged, and its records are judged by themselves. `check`
    False: nothing is compared.
    """

    def __init__(self, part: ArchivePart, *, check: bool, skip_damage: bool) -> None:
        first = part.segments[0] if part.segments else None
        self.size = 0 if first is None else first.tail_of or first.size
        self._uri = part.uri
        self._segments = part.segments
        self._starts = [segment.start_offset for segment in part.segments]
        self._check = check
        self._skip_damage = skip_damage
        self._objects: ObjectStore | None = None
        self._segment: Segment | None = None
        self._object: RemoteObject | None = None
        self._piece: MappedFile | None = None

    def at(self, offset: int) -> MappedFile | None:
        piece = self._piece
        if piece is not None and piece.start_offset <= offset < piece.end_offset:
            return piece
        segment = self._find(offset)
        if segment is None:
            return None
        begin, end, crc32 = segment.piece(offset - segment.start_offset)
        data = self._opened(segment).read(begin, end - begin)
        if self._check and zlib.crc32(data) != crc32:
            self._differs(segment, begin, end)
        piece = MappedFile.anonymous(segment.start_offset + begin, end - begin)
        piece.write(0, data)
        self._drop_piece()
        self._piece = piece
        return piece

    def next_start(self, offset: int) -> int | None:
        return next((start for start in self._starts if start > offset), None)

    def may_end_in_zeros(self, file: MappedFile) -> bool:
        """A segment was sealed because another one followed."""
        segment = self._find(file.start_offset)
        whole = segment is not None and not segment.tail_of
        return segment is not None and whole and file.end_offset == segment.end_offset

    def cut(self, offset: int, end: int) -> int:
        """Where pieces begin is known without a look into the objects."""
        segment = self._find(offset)
        if segment is None:
            following = self.next_start(offset)
            return end if following is None else min(following, end)
        return min(segment.start_offset + segment.cut(offset - segment.start_offset), end)

    def close(self) -> None:
        self._drop_piece()
        if self._object is not None:
            self._object.close()
            self._object = self._segment = None

    def _find(self, offset: int) -> Segment | None:
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or self._segments[number].end_offset <= offset:
            return None
        return self._segments[number]

    def _opened(self, segment: Segment) -> RemoteObject:
        if self._object is None or self._segment is not segment:
            self.close()
            if self._objects is None:
                self._objects = ObjectStore(self._uri)
            self._object = self._objects.open(segment.name)
            self._segment = segment
        return self._object

    def _differs(self, segment: Segment, begin: int, end: int) -> None:
        where = f"{shown_uri(self._uri)}/{segment.name}"
        text = f"bytes {begin} … {end - 1} of {where} are not those that were shipped"
        if not self._skip_damage:
            raise CorruptRecordError(segment.start_offset + begin, text)
        logger.warning("%s", text)

    def _drop_piece(self) -> None:
        if self._piece is not None:
            self._piece.close()
            self._piece = None
