"""`rocketstore.ship`: copies sealed segments to an archive, and swaps its manifest when each is there."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from rocketstore.api import open_store
from rocketstore.archive.manifest import NAME, TOPICS_MAX, Manifest, Piece, Segment
from rocketstore.archive.object_store import Place
from rocketstore.errors import ConfigError
from rocketstore.log.layout.paths import parse_segment_name
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.log.read.column_reader import LogFiles
from rocketstore.scanning.parallel import is_foreign
from rocketstore.scanning.scan import CHUNK_BYTES, Scan
from rocketstore.store import Store

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore.engine.open_options import Progress
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["ShipReport", "ship", "ship_store"]

#: What a reader fetches at once, about: a piece ends where a record begins, behind so many bytes.
PIECE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class ShipReport:
    """What `ship` did. `segments` of `bytes` were copied in `seconds`; the archive holds `archived_segments`
    now, and ends at physical offset `end_offset`. `missing_bytes` below that are not in it: their segments
    were removed before they were shipped, or are not there."""

    segments: int
    bytes: int
    seconds: float
    archived_segments: int
    end_offset: int
    missing_bytes: int


def ship(
    source: str | os.PathLike[str] | Store,
    uri: str,
    *,
    commit_log_dir: str = "",
    progress: Progress | None = None,
) -> ShipReport:
    """Copies the sealed segments of a store, a path or an open one, to the archive at `uri`: those that no
    message can be added to any more, and that are on the disk as a whole.

    Each is read and checked record by record, copied under its name, and then named in `manifest.json`, so
    that readers never see a part. What the manifest names is not copied again, and stays when the store
    trims it. A call that was stopped is finished by the next one. No lock is taken; writers go on.

    Args:
        uri: what `pyarrow.fs` knows: s3://bucket/prefix, gs://…, hdfs://…, file:///directory.
        commit_log_dir: All directories of the log, with "," between them, where it has several.
        progress: called with ("ship", done_bytes, total_bytes).

    Raises:
        ConfigError: no such place, or the archive of another store, or of another log of this one.
        CorruptRecordError: a segment is damaged; it and what follows is not shipped before it is repaired.
        ReadFailedError: the disk, or the place, does not give back what is there.
        OSError: the place does not take an object; `filename` says which.
        ImportError: there is no pyarrow (`rocketstore[arrow]`).
    """
    if isinstance(source, Store):
        if commit_log_dir:
            raise ValueError(f"commit_log_dir = {commit_log_dir!r}: an open store knows its own")
        return ship_store(source, uri, progress)
    with open_store(source, "r", index_enabled=False, commit_log_dir=commit_log_dir) as store:
        return ship_store(store, uri, progress)


def ship_store(store: Store, uri: str, progress: Progress | None = None) -> ShipReport:
    """`ship` of an open store."""
    began = time.monotonic()
    layout, begin, _ = store._log_bounds()
    durable = store.flushed_offset
    place = Place(uri)
    files = LogFiles(layout)
    try:
        archive = _Archive(place, layout, files)
        size = files.size
        named = {segment.start_offset for segment in archive.manifest.segments}
        sealed = [s for s in files.starts() if s + size > begin and s + size <= durable]
        wanted = [start for start in sealed if start not in named]
        count = 0

        def tell(done: int) -> None:
            if progress is not None:
                progress("ship", count * size + done, len(wanted) * size)

        tell(0)
        for start in wanted:
            file = files.at(start)
            if file is not None:  # else it was trimmed meanwhile
                archive.add(_copied(place, file, _surveyed(layout, files, file), tell))
                count += 1
        manifest = archive.manifest
    finally:
        files.close()
    present = sum(segment.size for segment in manifest.segments)
    return ShipReport(
        segments=count,
        bytes=count * size,
        seconds=time.monotonic() - began,
        archived_segments=len(manifest.segments),
        end_offset=manifest.end_offset,
        missing_bytes=manifest.end_offset - manifest.begin_offset - present,
    )


def _surveyed(layout: StoreLayout, files: LogFiles, file: MappedFile) -> Segment:
    """What the records of a segment tell, checked one by one; its pieces have no checksums yet."""
    end = files.segment_end(file.start_offset)
    scan = Scan(
        path=str(layout.root),
        begin_offset=file.start_offset,
        end_offset=end,
        columns=("topic", "store_timestamp_ms"),
        limit_offset=end,
        whole=True,
        chunk_bytes=min(CHUNK_BYTES, PIECE_BYTES),
        log_directories=tuple(map(str, layout.log_directories)),
    )
    topics: set[str] = set()
    times: list[int] = []
    ends: list[int] = []
    for columns in scan._read(files):
        begin = columns.begin_offset - file.start_offset
        if begin - (ends[-1] if ends else 0) >= PIECE_BYTES:
            ends.append(begin)
        found = columns["topic"]
        topics |= {found.values[code] for code in np.unique(found.codes).tolist()}
        stored = columns["store_timestamp_ms"]
        times += [int(stored.min()), int(stored.max())]
    ends.append(file.size)
    return Segment(
        start_offset=file.start_offset,
        size=file.size,
        crc32=0,
        records=scan.report.records,
        store_times_ms=(min(times), max(times)) if times else None,
        topics=None if len(topics) > TOPICS_MAX else tuple(sorted(topics)),
        foreign=is_foreign(layout),
        pieces=tuple((end, 0) for end in ends),
    )


def _copied(
    place: Place, file: MappedFile, segment: Segment, tell: Callable[[int], None]
) -> Segment:
    """Puts a segment to its place; gives it with the checksums of what was put."""
    pieces: list[Piece] = []
    crc32 = 0

    def chunks() -> Iterator[bytes]:
        nonlocal crc32
        begin = 0
        for end, _ in segment.pieces:
            data = file.read(begin, end - begin)
            crc32 = zlib.crc32(data, crc32)
            pieces.append((end, zlib.crc32(data)))
            yield data
            tell(end)
            begin = end

    place.put(segment.name, chunks())
    return replace(segment, crc32=crc32, pieces=tuple(pieces))


class _Archive:
    """The manifest at a place, which grows by one segment at a time. Found, or made empty, when this is."""

    def __init__(self, place: Place, layout: StoreLayout, files: LogFiles) -> None:
        state = load_store_state(layout)
        self._place = place
        self._store = "" if state is None else state.uuid
        place.finish()
        found = self._found()
        self.manifest = found or Manifest(self._store)
        if found is not None and found.segments:
            self._check_log(files)
        if found is None:
            self._check_place()
            self._swap(self.manifest)

    def _check_place(self) -> None:
        """ConfigError for a place without a manifest that holds a log already: it would be written over."""
        for name in self._place.names():
            if parse_segment_name(name) is not None or name == "commitlog":
                text = f"holds {name!r} and no manifest, so a log that was not shipped"
                raise ConfigError("uri", self._place.name, f"{text}: choose another place")

    def add(self, segment: Segment) -> None:
        """Names a segment that is there. What another call has added meanwhile stays."""
        found = self._found() or Manifest(self._store)
        self._swap(replace(found.with_segment(segment), store=self._store))

    def _swap(self, manifest: Manifest) -> None:
        self._place.put(NAME, [manifest.dump()])
        self.manifest = manifest

    def _found(self) -> Manifest | None:
        """None: nothing was shipped here yet. ConfigError: another store was."""
        try:
            found = self._place.manifest()
        except FileNotFoundError:
            return None
        if found.store not in ("", self._store):
            text = (
                f"holds store {found.store}, this one is {self._store or 'without a name'}: "
                "ship to another place"
            )
            raise ConfigError("uri", self._place.name, text)
        return found

    def _check_log(self, files: LogFiles) -> None:
        """ConfigError unless the newest segment that both have is the same: the last piece of it tells."""
        manifest = self.manifest
        starts = set(files.starts())
        common = [s for s in manifest.segments if s.start_offset in starts]
        if not common:
            if manifest.store:
                return
            # Only a uuid could tell that the log goes on what RocketMQ wrote and has removed since.
            text = (
                "has no segment in common with this log, which has no name: ship to another place"
            )
            raise ConfigError("uri", self._place.name, text)
        newest = common[-1]
        begin, end, crc32 = newest.piece(newest.size - 1)
        file = files.at(newest.start_offset)
        same = file is not None and newest.size == file.size
        if file is None or not same or zlib.crc32(file.read(begin, end - begin)) != crc32:
            text = (
                f"its segment {newest.name} is not the one of this log, which was cut or replaced "
                "since: ship to another place"
            )
            raise ConfigError("uri", self._place.name, text)
