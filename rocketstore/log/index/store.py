"""The key index of a store: which records may have a key.

It is derived from the log and optional: an index that cannot be written degrades with its cause and
is rebuilt later; it never refuses a put (K-58). One thread, the dispatcher, writes; any may query.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketstore._native.format import index_file
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import ReadFailedError, StoreBehindError
from rocketstore.log.index.segment import (
    IndexSegment,
    Shape,
    candidates,
    create_in_memory,
    create_named,
    is_index_name,
    names_in,
    new_name,
    open_segment,
)
from rocketstore.log.layout.lock import rocketstore_wrote_last
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.log.mapped_files.mapped_file_queue import Access
from rocketstore.values.kept_errors import without_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["IndexStore", "IndexTarget"]

logger = logging.getLogger(__name__)

#: Largest lag of an entry's time after its record's, ms; an entry counts whole seconds.
TIME_LOST_MS: Final = 1000
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


class IndexTarget(NamedTuple):
    """Where the dispatcher puts keys: a file, its slots, and which of them and entries have blocks."""

    file: MappedFile
    slots: int
    limit: int
    slots_ready: bytearray | None


class IndexStore:
    """All index files of a store, oldest first.

    `access` is that of `MappedFile.open`. `tags`: whether tags of new records are indexed, too, as
    RocketMQ does since 5.4. Nothing here syncs by itself but the making of a file.
    """

    def __init__(
        self,
        layout: StoreLayout,
        access: Access,
        slots: int,
        entries: int,
        *,
        tags: bool = False,
    ) -> None:
        self.tags = tags
        self._layout = layout
        self._access: Access = access
        self._shape = Shape(slots, entries)
        self._lock = SignalSafeLock("the tuple of index files", reentrant=False)
        #: The files, oldest first; replaced under the lock, never changed. Only this class does it.
        self.files: tuple[IndexSegment, ...] = ()
        self._names_synced = access != "write"
        self._times_fell: bool | None = None  # not looked yet
        #: Why keys are not being indexed, or None. While it is set nothing here becomes durable.
        self.degraded: str | None = None
        #: Why a query would not find all keys: it is degraded, or filled again after that.
        self.short: str | None = None
        self._on_degraded: Callable[[], object] = lambda: None
        self._failed: set[str] = set()  # files whose sync failed: never synced again (D-13)
        self._unread: Exception | None = None  # why a reader's queries would be short

    def load(self) -> None:
        """Open the files of the directory; a directory that is missing or empty is an empty index.

        Files that are open and have their names stay open: a reader of a live store calls it again.
        """
        if self._access == "memory":
            return
        self._times_fell = self._times_fell or None
        self._unread = None
        known = {segment.name: segment for segment in self.files}
        try:
            names = sorted(path.name for path in self._layout.index.iterdir())
        except FileNotFoundError:
            names = []
        files = []
        for name in names:
            if name in known and not (self._access == "read" and known[name].is_replaced):
                files.append(known[name])
            elif not is_index_name(name):
                logger.warning("%s: not an index file, ignored", self._layout.index / name)
            else:
                segment = self._open(name)
                if segment is not None:
                    files.append(segment)
        with self._lock():
            self.files = tuple(files)

    def note_fall(self) -> None:
        """Called when store times fall: entries do not keep such times, so a query does not ask for
        any."""
        self._times_fell = True

    def _fell(self) -> bool:
        if self._times_fell is None:
            state = load_store_state(self._layout)
            unsure = state is None or state.falls or state.foreign
            self._times_fell = bool(unsure or not rocketstore_wrote_last(self._layout))
        return self._times_fell

    def _open(self, name: str) -> IndexSegment | None:
        assert self._access != "memory"
        path = self._layout.index / name
        try:
            return open_segment(path, self._access, self._shape)
        except FileNotFoundError:
            return None  # removed by the writer meanwhile
        except (OSError, ReadFailedError) as error:
            self._unread = without_frames(error)
            logger.warning("%s: ignored, it cannot be read: %s", path, error)
        except ValueError as error:
            logger.warning("%s: ignored: %s", path, error)
        return None

    def when_degraded(self, call: Callable[[], object]) -> None:
        """Registers a callable for a failure; called at once if the index has failed already."""
        self._on_degraded = call
        if self.degraded is not None:
            call()

    def degrade(self, cause: BaseException) -> None:
        """Stop indexing because of `cause`; the first one stays. Puts go on."""
        if self.degraded is None:
            self.degraded = self.short = str(cause)
            self._on_degraded()
            logger.error("the key index of %s is degraded: %s", self._layout.root, cause)

    @property
    def end_physical_offset(self) -> int:
        """Records that start below this are indexed: where indexing goes on after a clean stop.

        Records without keys leave no trace, so it can lie before what was really looked at.
        """
        for segment in reversed(self.files):
            header = segment.header()
            if not header.empty:
                return header.end_offset + 1
        return 0

    # -- writing: the dispatcher's thread

    @property
    def target(self) -> IndexTarget | None:
        """Where the next key goes; None when there is no file yet or the index is degraded."""
        if self.degraded is not None or not self.files:
            return None
        segment = self.files[-1]
        return IndexTarget(segment.file, segment.shape.slots, segment.limit, segment.slots_ready)

    def make_room(self, key_hash: int | None = None) -> IndexTarget | None:
        """Called when there is no target, or a put found it full, or the key's slot without blocks.

        Gives the file its next blocks, or begins a new file. None when that fails: the index is
        degraded then, and the cause is in `degraded`.
        """
        if self._access == "read":
            raise ValueError("an index opened to read gets no keys")
        if self.degraded is not None:
            return None
        try:
            self._make_room(key_hash)
        except OSError as error:
            self.degrade(error)
        return self.target

    def _make_room(self, key_hash: int | None = None) -> None:
        last = self.files[-1] if self.files else None
        if last is None or last.full:
            self._roll()
        elif key_hash is not None and not last.has_slot(key_hash):
            last.reserve_slot(key_hash)
        else:
            last.reserve(on_disk=self._access == "write")

    def try_again(self, physical_offset: int) -> bool:
        """Called while it is degraded: whether keys of records from `physical_offset` on can be put
        again. It stays `short` until `filled`. A file whose sync failed is not tried again (D-13).
        """
        if self._failed:
            return False
        try:
            self._make_room()
            self._drop_from(physical_offset)
        except (OSError, ReadFailedError):
            return False  # the first cause stays
        self.degraded = None
        return True

    def filled(self) -> None:
        """Called when the index has all keys again."""
        if self.degraded is None and self.short is not None:
            self.short = None
            logger.warning("the key index of %s has all keys again", self._layout.root)

    def _roll(self) -> None:
        """A new file after the last one, which carries the end of the last one (Q-22)."""
        last = self.files[-1] if self.files else None
        end = last.header() if last else None
        header = index_file.fresh_header(
            end.end_timestamp_ms if end else 0, end.end_offset if end else 0
        )
        taken = [*names_in(self._layout.index), *(segment.name for segment in self.files)]
        name = new_name(syscalls.realtime_ms(), max(taken, default=""))
        if self._access != "write":
            segment = create_in_memory(name, self._shape, header)
        else:
            segment = create_named(self._layout, name, self._shape, header)
        with self._lock():
            self.files = (*self.files, segment)

    def sync(self) -> bool:
        """Make what was put before this call durable; False when the index is degraded."""
        self._sync_names()
        for segment in self.files:
            if segment.name in self._failed:
                continue
            try:
                segment.sync()
            except (OSError, ReadFailedError) as error:
                self._failed.add(segment.name)
                self.degrade(error)
        return self.degraded is None

    def _sync_names(self) -> None:
        """Syncs the directory, once: a process that died may have left names that the disk does not
        have."""
        if self._names_synced or not self.files:
            return
        self._names_synced = True
        try:
            syscalls.sync_directory(str(self._layout.index))
        except OSError as error:
            self._failed.update(segment.name for segment in self.files)
            self.degrade(error)

    # -- repair and retention

    def reset_from(self, physical_offset: int) -> None:
        """Drop every key of records at `physical_offset` and beyond, and repair what a crash tore.

        Below it everything has to be durable. Files that begin at it or later go, newest first. The
        last file that stays is cut and its chains are linked again. Idempotent, so the next call
        repairs after a crash in between. Then the index is sound, unless this failed, too: then it
        stays degraded, and the records refute what it still proposes.
        """
        if self._access == "read":
            raise ValueError("an index opened to read cannot be reset")
        try:
            self._drop_from(physical_offset)
        except (OSError, ReadFailedError) as error:
            self.degrade(error)
        else:
            if not self._failed:
                self.degraded = self.short = None

    def _drop_from(self, physical_offset: int) -> None:
        while self.files:
            segment = self.files[-1]
            header = segment.header()
            if not header.empty and header.begin_offset < physical_offset:
                segment.cut(physical_offset, on_disk=self._access == "write")
                if not segment.header().empty:
                    return
            self._remove(segment)

    def needed_count(self, minimum_offset: int, indexed: int) -> int:
        """Number of files that hold keys of records in [minimum_offset, indexed), which an open has
        to find. Counts all files if one cannot be read."""
        try:
            headers = [segment.header() for segment in self._kept_from(minimum_offset)]
        except ReadFailedError as error:
            self.degrade(error)
            return len(self.files)
        return sum(not header.empty and header.begin_offset < indexed for header in headers)

    def _kept_from(self, minimum_offset: int) -> tuple[IndexSegment, ...]:
        old = itertools.takewhile(
            lambda segment: segment.header().end_offset < minimum_offset, self.files[:-1]
        )
        return self.files[sum(1 for _ in old) :]

    def trim(self, minimum_offset: int) -> list[str]:
        """Remove the oldest files whose records lie below `minimum_offset`; never the newest."""
        gone = self.files[: -len(self._kept_from(minimum_offset))]
        for segment in gone:
            self._remove(segment)
        return [segment.name for segment in gone]

    def _remove(self, segment: IndexSegment) -> None:
        with self._lock():
            self.files = tuple(other for other in self.files if other is not segment)
        if self._access == "write":
            with contextlib.suppress(FileNotFoundError):
                syscalls.unlink(segment.file.path)
            syscalls.sync_directory(str(self._layout.index))
        segment.file.close()
        self._failed.discard(segment.name)

    # -- reading

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, /, *, newest: bool = True
    ) -> Iterator[int]:
        """Physical offsets of records that may have the key, looked up as they are asked for.

        Their time is in [begin_ms, end_ms], give or take what entries lose, or any where store
        times fall: the caller looks at the record. It may come twice. Later keys do not come.

        Raises:
            StoreBehindError: keys of the newest messages are not in the index.
            ReadFailedError: this reader could not open or read one of the files.
        """
        if self.short is not None:
            raise StoreBehindError(str(self._layout.root), "key index", self.short)
        if self._unread is not None and self._access == "read":
            raise ReadFailedError(
                f"{self._layout.index}: what has the key {key!r} is not known, a file of the index "
                f"cannot be read: {self._unread}"
            ) from self._unread
        key_hash = hash_of(topic, key)
        begin_ms = max(INT64_MIN, begin_ms - TIME_LOST_MS)
        end_ms = min(INT64_MAX, end_ms)
        if (begin_ms > 0 or end_ms < INT64_MAX) and self._fell():
            begin_ms, end_ms = INT64_MIN, INT64_MAX
        return candidates(self.files, key_hash, begin_ms, end_ms, newest=newest)

    def close(self) -> None:
        """Close the files, without a sync. Queries find nothing afterwards."""
        with self._lock():
            files, self.files = self.files, ()
        for segment in files:
            segment.file.close()


def hash_of(topic: str, key: str) -> int:
    """What the index keeps of a topic and a key: 31 bits."""
    return index_file.key_hash(
        topic.encode("utf-8", "surrogateescape"), key.encode("utf-8", "surrogateescape")
    )
