"""Paths and URIs of options and jobs: a local one becomes an absolute path, because tasks and
committers work in other directories. Opens a store for reading, and distinguishes it from another
one under the same path; errors have codes."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import rocketstore
from rocketstore import MissingSegmentsError, Store, StoreRecoveringError
from rocketstore.archive import MANIFEST_NAME, is_uri, shown_uri
from rocketstore.errors import HINTS as LIBRARY_HINTS
from rocketstore.spark.errors import HINTS, SparkFaceError, bad_option, coded_errors, no_store
from rocketstore.values import LIMITS, parse_json

__all__ = ["directory_of", "local_path", "open_to_read", "store_path", "store_uuid"]

#: Longest wait for a process that recovers or rebuilds a store, beyond that of each open, and its
#: step, seconds.
RECOVERING_S: Final = 60.0
RECOVERING_STEP_S: Final = 0.25
#: Scheme of a URI, before a slash; one letter is no scheme but a drive.
SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):(?=/)", re.IGNORECASE)


def local_path(name: str, given: str | os.PathLike[str]) -> str | None:
    """The absolute path that a path or a `file:` URI names; None of any other URI. `name`: of the
    option.

    Raises:
        SparkFaceError: RS_BAD_OPTION: a file URI of another host, or a URI with one slash.
    """
    text = os.fspath(given)
    found = SCHEME.match(text)
    if found is None:
        return _absolute(text)
    scheme, rest = found[1], text[found.end() :]
    if scheme.lower() != "file":
        if is_uri(text):
            return None
        raise bad_option(
            name, text, f"two slashes, {scheme}://…; for a directory of this name, ./{text}"
        )
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if not slash or host.lower() not in ("", "localhost"):
            raise bad_option(
                name, text, "a file URI without a host, file:///directory: each host has its own"
            )
    return _absolute("/" + unquote(rest))


def directory_of(name: str, given: str | os.PathLike[str], why: str) -> str:
    """As `local_path`, where nothing but a directory will do: `why` says so.

    Raises:
        SparkFaceError: RS_BAD_OPTION: a URI of another kind.
    """
    found = local_path(name, given)
    if found is None:
        raise bad_option(name, shown_uri(os.fspath(given)), why)
    return found


def store_path(path: str | os.PathLike[str], name: str = "path") -> str:
    """An archive's URI, or a store's directory as an absolute path. `file:` may be both: an archive
    has a manifest.

    Raises:
        SparkFaceError: RS_BAD_OPTION, as `local_path`.
    """
    text = os.fspath(path)
    local = local_path(name, text)
    if local is None:
        return text
    if SCHEME.match(text) and os.path.exists(os.path.join(local, MANIFEST_NAME)):
        return Path(local).as_uri()
    return local


def _absolute(path: str) -> str:
    # Two slashes in front stay two, although one is the same.
    return "/" + os.path.abspath(path).lstrip("/")


def open_to_read(path: str, *, lossy: bool = False) -> Store:
    """The store for reading, once it is recovered; errors with a code. `lossy`: also where files of
    its log are missing.

    Raises:
        SparkFaceError: RS_DATA_LOST: files of the log are missing; RS_STORE_RECOVERING: a process
            has not recovered or rebuilt it in time; RS_NO_STORE, RS_NO_PERMISSION, RS_READ_FAILED.
    """
    deadline = time.monotonic() + RECOVERING_S
    with coded_errors("RS_READ_FAILED", path):
        while True:
            try:
                return _open(path, lossy)
            except StoreRecoveringError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RECOVERING_STEP_S)


def _open(path: str, lossy: bool) -> Store:
    with coded_errors("RS_READ_FAILED", path, StoreRecoveringError):
        try:
            store = rocketstore.open(path, "r", force=lossy)
            if store.recovery.missing and not lossy:  # in between: the open of a reader goes on
                store.close()
                raise MissingSegmentsError(f"{path}: {'; '.join(store.recovery.missing)}; ")
            return store
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_store(path, error) from None
        except MissingSegmentsError as error:
            what = str(error).removesuffix(LIBRARY_HINTS["force_reader"])
            text = f"{what}mount or restore them{HINTS['data_loss']} ({socket.gethostname()})"
            raise SparkFaceError("RS_DATA_LOST", text) from error
        except PermissionError as error:
            raise SparkFaceError("RS_NO_PERMISSION", f"path = {path!r}: {error}") from error


def store_uuid(path: str) -> str:
    """What distinguishes this store from others under its path; empty: only RocketMQ wrote."""
    name = os.path.join(path, "rocketstore", "store.json")
    with coded_errors("RS_READ_FAILED", path):
        try:
            with open(
                name, "rb", opener=lambda path, how: os.open(path, how | os.O_NONBLOCK)
            ) as file:
                limits = LIMITS["store.json"]
                found: Any = parse_json(file.read(limits.size + 1), limits)
                return str(found["uuid"])
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return ""
