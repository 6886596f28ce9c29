"""What a disk may hold after a loss of power, given what was done and what was synced.

Each thing that is made durable on its own (a page of a file, the length of a file, a name) is a list of
versions: the one that is known to be on disk first, then every later one up to what the page cache shows.
A sync leaves the last one. A loss of power may leave any one of each list, whatever the others are:
nothing orders two of them but a sync.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from pathlib import Path

from tests.power_loss.trace import Event, Kind

__all__ = ["PAGE", "Disk", "Pages"]

PAGE = 4096
ZEROS = bytes(PAGE)
Pages = dict[int, list[bytes]]


@dataclass(slots=True)
class File:
    """A file, with or without a name."""

    sizes: list[int] = field(default_factory=lambda: [0])
    #: A page that is missing here was never written: zeros.
    pages: Pages = field(default_factory=dict)
    #: Pages with more than one version.
    dirty: set[int] = field(default_factory=set)
    #: Pages that a failed sync has marked clean: no later sync writes them, until they change again.
    given_up: set[int] = field(default_factory=set)

    def write(self, position: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            page, start = divmod(position + at, PAGE)
            count = min(PAGE - start, len(data) - at)
            self._write_page(page, start, data[at : at + count])
            at += count
        if position + len(data) > self.sizes[-1]:
            self.sizes.append(position + len(data))

    def _write_page(self, page: int, start: int, data: bytes) -> None:
        versions = self.pages.get(page)
        if versions is None:
            versions = self.pages[page] = [ZEROS]
        last = versions[-1]
        versions.append(last[:start] + data + last[start + len(data) :])
        self.dirty.add(page)
        self.given_up.discard(page)

    def resize(self, size: int) -> None:
        if size < self.sizes[-1]:
            for page in [page for page in self.pages if (page + 1) * PAGE > size]:
                kept = max(0, size - page * PAGE)
                self._write_page(page, kept, bytes(PAGE - kept))
        if size != self.sizes[-1]:
            self.sizes.append(size)

    def _in(self, first: int, second: int) -> list[int]:
        return [page for page in self.dirty if first < (page + 1) * PAGE and page * PAGE < second]

    def sync(self, first: int, second: int) -> None:
        """Whole pages go to the disk, with the length that is needed to find them."""
        for page in self._in(first, second):
            if page not in self.given_up:
                del self.pages[page][:-1]
                self.dirty.discard(page)
        del self.sizes[:-1]

    def sync_failed(self, first: int, second: int) -> None:
        """What is on disk now is any of the versions; the next sync finds nothing to do."""
        self.given_up.update(self._in(first, second))


class Disk:
    """All versions of everything below one directory."""

    def __init__(self) -> None:
        self.files: dict[int, File] = {}
        #: Path → numbers of files or directories; 0 for none. "" is the directory itself.
        self.names: dict[str, list[int]] = {}
        self.directories: dict[int, str] = {}
        #: Stores to pages that had no block on a full disk: each would have been a signal.
        self.signals = 0
        #: (old path, new path, file) of renames whose new name is not synced.
        self.moves: list[tuple[str, str, int]] = []
        self._renamed = ""

    @classmethod
    def of(cls, root: Path) -> Disk:
        """A directory as it lies there; all of it is on disk."""
        disk = cls()
        disk.directories[root.stat().st_ino] = ""
        for folder, folders, files in os.walk(root):
            for name in folders:
                path = Path(folder, name)
                number = path.stat().st_ino
                disk.directories[number] = str(path.relative_to(root))
                disk.names[disk.directories[number]] = [number]
            for name in files:
                path = Path(folder, name)
                number = path.stat().st_ino
                disk.names[str(path.relative_to(root))] = [number]
                if number not in disk.files:
                    file = disk.files[number] = File()
                    file.write(0, path.read_bytes())
                    file.sync(0, 1 << 62)
        return disk

    def copy(self) -> Disk:
        return copy.deepcopy(self)

    def apply(self, event: Event) -> None:
        """One more thing that was done."""
        kind = event.kind
        if kind is Kind.WRITE:
            self.files[event.file].write(event.first, event.payload)
        elif kind is Kind.SIZE:
            self.files[event.file].resize(event.first)
        elif kind in (Kind.SYNC_FILE, Kind.SYNC_RANGE):
            self.files[event.file].sync(event.first, event.second)
        elif kind is Kind.SYNC_FAILED:
            self.files[event.file].sync_failed(event.first, event.second)
        elif kind is Kind.SYNC_DIRECTORY:
            self._sync_names(self.directories[event.file])
        elif kind is Kind.SYNC_ALL:
            self._sync_all()
        elif kind is Kind.NO_BLOCK:
            self.signals += 1
        elif kind is not Kind.MARK:
            self._apply_name(event)

    def _apply_name(self, event: Event) -> None:
        kind, path = event.kind, event.path
        if kind is Kind.CREATE:
            self.files[event.file] = File()
            if path:
                self._name(path, event.file)
        elif kind is Kind.MAKE_DIRECTORY:
            self.directories[event.file] = path
            self._name(path, event.file)
        elif kind is Kind.LINK:
            self._name(path, event.file)
        elif kind in (Kind.UNLINK, Kind.REMOVE_DIRECTORY):
            self._name(path, 0)
        elif not self._renamed:
            self._renamed = path
        else:
            self._name(path, event.file)
            self._name(self._renamed, 0)
            self._take_along(self._renamed, path)
            self.moves.append((self._renamed, path, event.file))
            self._renamed = ""

    def _take_along(self, old: str, new: str) -> None:
        """What lies in a directory goes with it. Where the rename is lost, the old one is empty: all
        of it was on the disk before, and nobody looks there."""
        for path in [path for path in self.names if path.startswith(f"{old}/")]:
            self.names[new + path[len(old) :]] = self.names.pop(path)
        for number, path in self.directories.items():
            if path == old or path.startswith(f"{old}/"):
                self.directories[number] = new + path[len(old) :]

    def _name(self, path: str, number: int) -> None:
        self.names.setdefault(path, [0]).append(number)

    def _sync_names(self, directory: str) -> None:
        self.moves = [move for move in self.moves if move[1].rpartition("/")[0] != directory]
        for path, versions in list(self.names.items()):
            if len(versions) > 1 and path.rpartition("/")[0] == directory:
                del versions[:-1]
                if not versions[0]:
                    del self.names[path]

    def _sync_all(self) -> None:
        for file in self.files.values():
            file.sync(0, 1 << 62)
        for directory in self.directories.values():
            self._sync_names(directory)
