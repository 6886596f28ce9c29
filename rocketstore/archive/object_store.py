"""The object store of an archive: any file system that `pyarrow.fs` knows by URI, and its errors.

Objects are written whole and get their name when they are whole: an object store shows them so, in
a local directory they are synced and renamed, elsewhere they are moved.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rocketstore.archive.manifest import MANIFEST_NAME, Manifest
from rocketstore.errors import ConfigError, ReadFailedError

__all__ = [
    "NoObjectStoreError",
    "ObjectStore",
    "RemoteObject",
    "file_system",
    "is_uri",
    "shown_uri",
    "sync_path",
]

#: File systems that show an object only after it was closed.
SHOWN_WHOLE: Final = {"s3", "gcs", "abfs"}
#: Suffix of an object that is not whole yet, in file systems that would show it.
NEW: Final = ".new"
MANIFEST_BYTES_MAX: Final = 1 << 30
#: Schemes that `pyarrow.fs` knows; others need one more package.
SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class NoObjectStoreError(ConfigError):
    """A text that names no object store."""


def is_uri(text: object) -> bool:
    """Whether this is the URI of an archive; every other text is a path."""
    return isinstance(text, str) and _SCHEME.match(text) is not None


def shown_uri(uri: str) -> str:
    """The URI without what may be secret: user, password and everything from the question mark
    on."""
    scheme, _, rest = uri.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}".rstrip("/")


def file_system(uri: str) -> tuple[Any, str]:
    """A file system of pyarrow, and the path in it."""
    found: tuple[Any, str] = _pyarrow_fs().FileSystem.from_uri(uri)
    return found


def _pyarrow_fs() -> ModuleType:
    try:
        import pyarrow.fs
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "an archive is reached through pyarrow: pip install 'rocketstore[arrow]'",
            name="pyarrow",
        ) from error
    module: ModuleType = pyarrow.fs
    return module


class ObjectStore:
    """The directory or prefix of one archive."""

    def __init__(self, uri: str) -> None:
        """
        Raises:
            NoObjectStoreError: no URI, or none that pyarrow knows.
            ReadFailedError: the store cannot be reached from here.
            ImportError: there is no pyarrow.
        """
        if not is_uri(uri):
            allowed = "a URI: s3://bucket/prefix, gs://…, hdfs://…, or file:///directory"
            raise NoObjectStoreError("uri", uri, allowed)
        self.name = shown_uri(uri)
        try:
            self._fs, path = file_system(uri)
        except (ValueError, NotImplementedError) as error:
            text = str(error).replace(uri, self.name)
            scheme = uri.partition(":")[0]
            if scheme.lower() not in SCHEMES:
                text = f"the scheme {scheme!r} is none of {', '.join(SCHEMES)}"
            allowed = f"a place that pyarrow.fs knows ({text})"
            raise NoObjectStoreError("uri", self.name, allowed) from None
        except OSError as error:
            # Lines that follow name all places that have no libjvm, some 80.
            text = str(error).partition("\n")[0]
            raise ReadFailedError(f"{self.name}: {text.replace(uri, self.name)}") from None
        self._path = path.rstrip("/")
        self._kind: str = self._fs.type_name
        if self._kind in SHOWN_WHOLE and not self._path:
            raise NoObjectStoreError("uri", self.name, "with a bucket, as in s3://bucket/prefix")

    def object_name(self, name: str) -> str:
        """How errors call an object."""
        return f"{self.name}/{name}"

    # ---- reading ----

    def open(self, name: str) -> RemoteObject:
        """
        Raises:
            FileNotFoundError: no such object. ReadFailedError: the store does not answer.
        """
        with self._reading(name):
            return RemoteObject(self, name, self._fs.open_input_file(f"{self._path}/{name}"))

    def manifest(self) -> Manifest:
        """
        Raises:
            FileNotFoundError: nothing was shipped here.
            ReadFailedError: it cannot be read, or is none.
        """
        try:
            return Manifest.parse(self._whole(MANIFEST_NAME), self.object_name(MANIFEST_NAME))
        except FileNotFoundError:
            found = self._moving()
        if found is not None:
            return found
        text = "no manifest: nothing was shipped here by rocketstore.ship"
        raise FileNotFoundError(errno.ENOENT, text, self.object_name(MANIFEST_NAME))

    def names(self) -> list[str]:
        """What lies there, not what lies below that."""
        wanted = _pyarrow_fs().FileSelector(self._path, allow_not_found=True)
        with self._reading(""):
            return [found.base_name for found in self._fs.get_file_info(wanted)]

    def _moving(self) -> Manifest | None:
        """The new manifest in a file system that replaces it in two steps: it removes the old one,
        then renames the new one. One that is not whole is the first of its archive, and was never
        there."""
        if self._kind == "local" or self._kind in SHOWN_WHOLE:
            return None
        try:
            data = self._whole(MANIFEST_NAME + NEW)
        except FileNotFoundError:
            return None
        with contextlib.suppress(ReadFailedError):
            return Manifest.parse(data, self.object_name(MANIFEST_NAME + NEW))
        return None

    def _whole(self, name: str) -> bytes:
        found = self.open(name)
        try:
            size = found.size()
            if size > MANIFEST_BYTES_MAX:
                raise ReadFailedError(f"{self.object_name(name)}: {size} bytes, no manifest")
            return found.read(0, size)
        finally:
            found.close()

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        where = self.object_name(name)
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "no such object", where) from error
        except OSError as error:
            raise ReadFailedError(f"{where}: {error}") from error

    # ---- writing ----

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        """Makes or replaces an object. It is there as a whole, and stays, when this returns.

        Raises:
            OSError: it was not written; `filename` says which object.
        """
        try:
            self._put(name, chunks)
        except OSError as error:
            code = error.errno or errno.EIO
            raise OSError(code, error.strerror or str(error), self.object_name(name)) from error

    @property
    def replaces_at_once(self) -> bool:
        """Whether `put` of an object that is there never leaves readers without one."""
        return self._kind == "local" or self._kind in SHOWN_WHOLE

    def remove(self, name: str) -> None:
        """Removes an object that no manifest names."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(f"{self._path}/{name}")

    def finish(self) -> None:
        """Renames a new manifest that an earlier call had not renamed yet; else the next call would
        overwrite the only one there is."""
        if self._moving() is not None and not self._has_manifest():
            self._fs.move(f"{self._path}/{MANIFEST_NAME}{NEW}", f"{self._path}/{MANIFEST_NAME}")

    def _has_manifest(self) -> bool:
        try:
            self.open(MANIFEST_NAME).close()
        except FileNotFoundError:
            return False
        return True

    def _put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = f"{self._path}/{name}"
        staged = self._staged(name)
        if self._kind not in SHOWN_WHOLE:  # these have no directories
            self._make_directory()
        try:
            self._write(staged, chunks)
            if self._kind == "local":
                sync_path(staged)
                os.replace(staged, path)
                sync_path(self._path)
            elif staged != path:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.delete_file(path)
                self._fs.move(staged, path)
        except BaseException:
            if staged not in (path, path + NEW):
                with contextlib.suppress(OSError):
                    self._fs.delete_file(staged)
            raise

    def _make_directory(self) -> None:
        """With those above it. On a local file system their names are synced, or a crash could take
        all that is shipped with them."""
        missing = []
        if self._kind == "local":
            above = [self._path, *map(str, Path(self._path).parents)]
            missing = list(itertools.takewhile(lambda path: not os.path.exists(path), above))
        self._fs.create_dir(self._path, recursive=True)
        for path in missing:
            sync_path(os.path.dirname(path))

    def _staged(self, name: str) -> str:
        """The path under which an object is written: its own, where readers see it only when it is
        whole. Else one that no other call uses; but readers have to find a manifest that is being
        moved (`_moving`)."""
        path = f"{self._path}/{name}"
        if self._kind in SHOWN_WHOLE:
            return path
        if name == MANIFEST_NAME and self._kind != "local":
            return path + NEW
        return f"{path}.{uuid.uuid4().hex}{NEW}"

    def _write(self, path: str, chunks: Iterable[bytes]) -> None:
        stream = self._fs.open_output_stream(path)
        try:
            for chunk in chunks:
                stream.write(chunk)
        except BaseException:
            with contextlib.suppress(OSError):
                stream.close()
            raise
        stream.close()


class RemoteObject:
    """One object, open for reading. Used by one thread at a time."""

    def __init__(self, store: ObjectStore, name: str, handle: Any) -> None:
        self._objects = store
        self._name = name
        self._handle = handle

    def size(self) -> int:
        """In bytes, as the store reports it."""
        with self._objects._reading(self._name):
            found: int = self._handle.size()
            return found

    def read(self, position: int, size: int) -> bytes:
        """Exactly `size` bytes from `position` on.

        Raises:
            ReadFailedError: the store does not answer, or the object ends before.
        """
        # Asked before memory is: a manifest may name sizes that no object has.
        present = max(0, min(size, self.size() - position))
        if present == size:
            with self._objects._reading(self._name):
                data: bytes = self._handle.read_at(size, position)
            present = len(data)
            if present == size:
                return data
        where = self._objects.object_name(self._name)
        raise ReadFailedError(f"{where}: {present} bytes at {position} instead of {size}")

    def close(self) -> None:
        self._handle.close()


def sync_path(path: str | os.PathLike[str]) -> None:
    """Makes a file, or the names in a directory, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
