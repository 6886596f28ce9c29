"""File systems that note what is done to them, and fail when they are told to; and stores to ship."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import shipping
from rocketstore.archive import object_store
from rocketstore.archive.manifest import Manifest
from tests.support.column_tools import fill_at_random

SEGMENT_BYTES = 64 << 10
PIECE_BYTES = 6000
MANIFEST = "manifest.json"


class WatchedSystem:
    """A file system of pyarrow, `kind` of which is what it says of itself. `calls` are (what, object name);
    the call of number `fail_at`, or each one whose name is in `broken`, raises OSError."""

    def __init__(self, inner: Any, kind: str) -> None:
        self.inner = inner
        self.type_name = kind
        self.calls: list[tuple[str, str]] = []
        self.fail_at: int | None = None
        self.broken: set[str] = set()

    def note(self, what: str, path: str) -> None:
        if self.fails(what, path):
            raise OSError(f"planted: {what} of {path}")

    def fails(self, what: str, path: str) -> bool:
        name = path.rpartition("/")[2]
        self.calls.append((what, name))
        return len(self.calls) - 1 == self.fail_at or name in self.broken

    def opened(self) -> list[str]:
        """Names of the objects that were opened for reading, but for manifests."""
        return [n for what, n in self.calls if what == "open_input_file" and n.isdecimal()]

    def open_input_file(self, path: str) -> Any:
        self.note("open_input_file", path)
        return WatchedStream(self, path, self.inner.open_input_file(path))

    def open_output_stream(self, path: str) -> Any:
        self.note("open_output_stream", path)
        staged = path + ".hidden" if self.type_name == "s3" else path
        return WatchedStream(self, path, self.inner.open_output_stream(staged), staged)

    def get_file_info(self, wanted: Any) -> Any:
        self.note("get_file_info", wanted.base_dir)
        return self.inner.get_file_info(wanted)

    def create_dir(self, path: str, *, recursive: bool) -> None:
        self.note("create_dir", path)
        self.inner.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        self.note("delete_file", path)
        self.inner.delete_file(path)

    def move(self, path: str, target: str) -> None:
        self.note("move", path)
        self.inner.move(path, target)


class WatchedStream:
    """An open object. What an object store is given under a hidden name is shown when it is closed, unless
    a write of it failed, as pyarrow does it."""

    def __init__(self, system: WatchedSystem, path: str, inner: Any, staged: str = "") -> None:
        self.system, self.path, self.inner = system, path, inner
        self.staged = staged or path
        self.failed = False

    def size(self) -> int:
        return self.inner.size()

    def read_at(self, size: int, position: int) -> bytes:
        self.system.note("read_at", self.path)
        return self.inner.read_at(size, position)

    def write(self, data: bytes) -> None:
        self.failed = True
        self.system.note("write", self.path)
        self.inner.write(data)
        self.failed = False

    def close(self) -> None:
        if self.inner.closed:
            return
        self.inner.close()
        if self.inner.mode == "wb":
            self.failed |= self.system.fails("close", self.path)
            if self.staged != self.path:
                self.end()
            if self.failed:
                raise OSError(f"planted: close of {self.path}")

    def end(self) -> None:
        if self.failed:
            os.unlink(self.staged)
        else:
            os.replace(self.staged, self.path)


def watch(monkeypatch: pytest.MonkeyPatch, kind: str = "local") -> WatchedSystem:
    """From here on archives are reached through one watched file system over local directories. As kind
    "s3" it shows objects when they are closed; "local" syncs and renames; "hdfs" moves."""
    import pyarrow.fs

    system = WatchedSystem(pyarrow.fs.LocalFileSystem(), kind)
    monkeypatch.setattr(object_store, "file_system", lambda uri: (system, uri.partition("://")[2]))
    return system


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "PIECE_BYTES", PIECE_BYTES)


def shipped(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, count: int = 600
) -> tuple[Path, str, rocketstore.ShipReport]:
    """A store of several segments, and the URI of its archive."""
    small_pieces(monkeypatch)
    fill_at_random(tmp_path / "store", rng, count)
    uri = f"file://{tmp_path}/archive"
    return tmp_path / "store", uri, rocketstore.ship(tmp_path / "store", uri)


def objects(tmp_path: Path) -> list[str]:
    """Names in the archive's directory."""
    return sorted(path.name for path in (tmp_path / "archive").iterdir())


def uri_of(tmp_path: Path) -> str:
    return f"file://{tmp_path}/archive"


def named(tmp_path: Path) -> list[str]:
    """Segments that the manifest names; each of them has to be there as a whole."""
    manifest = Manifest.parse((tmp_path / "archive" / MANIFEST).read_bytes(), MANIFEST)
    for segment in manifest.segments:
        here = (tmp_path / "archive" / segment.name).read_bytes()
        assert here == (tmp_path / "store" / "commitlog" / segment.name).read_bytes()
    return [segment.name for segment in manifest.segments]


def sealed(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "store" / "commitlog").iterdir())[:-1]
