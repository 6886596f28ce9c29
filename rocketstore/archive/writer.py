"""Writes the manifest of an archive, and checks that the archive is of this log."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from dataclasses import replace

from rocketstore.archive.manifest import MANIFEST_NAME, TAIL, Manifest, Segment
from rocketstore.archive.object_store import ObjectStore
from rocketstore.archive.shipped import is_noted
from rocketstore.errors import ConfigError
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.log.read.column_reader import LogFiles

__all__ = ["ArchiveWriter"]

logger = logging.getLogger(__name__)


class ArchiveWriter:
    """The manifest of an archive, which grows by one segment at a time. Found or made empty by the
    constructor. `end`: gives the end of the log; `force`: also where nothing shows that the log goes on it."""

    def __init__(
        self,
        objects: ObjectStore,
        layout: StoreLayout,
        files: LogFiles,
        end: Callable[[], int],
        *,
        force: bool,
    ) -> None:
        state = load_store_state(layout)
        self._objects = objects
        self._store = "" if state is None else state.uuid
        objects.finish()
        found = self._found()
        self.manifest = found or Manifest(self._store)
        if found is None:
            self._check_empty()
            self._swap(self.manifest)
        elif found.segments and not self._check_log(files, end()) and (why := self._doubt(layout)):
            if not force:
                text = f"{why}: ship to another place, or with force=True (--force)"
                raise ConfigError("uri", objects.name, text)
            self._swap(replace(found, parted=(*found.parted, found.end_offset)))

    def _check_empty(self) -> None:
        """ConfigError where segments are without a manifest: shipping would write over them."""
        for name in self._objects.names():
            if parse_segment_name(name) is not None or name == "commitlog":
                text = f"holds {name!r} and no manifest, so a log that was not shipped"
                raise ConfigError("uri", self._objects.name, f"{text}: choose another place")

    def add(self, segment: Segment) -> None:
        """Names a segment that is there. What another call has added meanwhile stays."""
        found = self._found() or Manifest(self._store)
        self._swap(replace(found.with_segment(segment), store=self._store))

    def drop_tails(self) -> None:
        """Removes tails of segments that the manifest found at the begin of this call has as a
        whole: readers of the manifest before had the time of a call to read them."""
        whole = {s.start_offset for s in self.manifest.segments if not s.tail_of}
        for name in self._objects.names():
            start = parse_segment_name(name.removesuffix(TAIL))
            if name.endswith(TAIL) and start in whole:
                try:
                    self._objects.remove(name)
                except OSError as error:
                    logger.warning("%s stays there: %s", self._objects.object_name(name), error)

    def _swap(self, manifest: Manifest) -> None:
        self._objects.put(MANIFEST_NAME, [manifest.dump()])
        self.manifest = manifest

    def _found(self) -> Manifest | None:
        """None: nothing was shipped here yet. ConfigError: another store was."""
        try:
            found = self._objects.manifest()
        except FileNotFoundError:
            return None
        if found.store not in ("", self._store):
            text = (
                f"holds store {found.store}, this one is {self._store or 'without a name'}: "
                "ship to another place"
            )
            raise ConfigError("uri", self._objects.name, text)
        return found

    def _check_log(self, files: LogFiles, end: int) -> bool:
        """Whether the newest segment that both have is the same, by the last piece of it. False:
        they have none in common. ConfigError: it is not, or the log ends before the archive."""
        manifest, size = self.manifest, files.size
        newest, text = manifest.segments[-1], ""
        starts = set(files.starts())
        # One that is listed and gone by now was trimmed meanwhile: the one before counts, or none.
        common = [
            (s, file)
            for s in manifest.segments
            if s.start_offset in starts and (file := files.at(s.start_offset)) is not None
        ]
        if size and size != (newest.tail_of or newest.size):
            text = f"has segments of {newest.tail_of or newest.size} bytes, this log of {size}"
        elif end < manifest.end_offset:
            text = f"ends at {manifest.end_offset}, this log at {end}: it was cut or replaced since"
        elif common:
            newest, file = common[-1]
            begin, stop, crc32 = newest.piece(newest.size - 1)
            same = newest.size < file.size if newest.tail_of else newest.size == file.size
            if not same or zlib.crc32(file.read(begin, stop - begin)) != crc32:
                text = (
                    f"its segment {newest.name} is not the one of this log, which was cut or "
                    "replaced since"
                )
        if text:
            raise ConfigError("uri", self._objects.name, f"{text}: ship to another place")
        return bool(common)

    def _doubt(self, layout: StoreLayout) -> str:
        """Why a log that has no segment in common may not go on this archive; empty without a
        reason."""
        if self.manifest.store and is_noted(layout, self._objects.name, self.manifest):
            return ""
        # Only a uuid could show that the log goes on what RocketMQ wrote and has removed since.
        noted = "whose note of shipments, rocketstore/shipped.json, does not fit"
        why = noted if self.manifest.store else "which has no name"
        return f"has no segment in common with this log, {why}"
