"""Paths and URIs of options and jobs. A local one becomes an absolute path, because tasks and
committers work in other directories."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from rocketstore.archive import MANIFEST_NAME, is_uri, shown_uri
from rocketstore.spark.errors import SparkFaceError

__all__ = ["directory_of", "local_path", "store_path"]

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
        raise _bad(name, text, f"two slashes, {scheme}://…; for a directory of this name, ./{text}")
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if not slash or host.lower() not in ("", "localhost"):
            raise _bad(
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
        raise _bad(name, shown_uri(os.fspath(given)), why)
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


def _bad(name: str, text: str, allowed: str) -> SparkFaceError:
    return SparkFaceError("RS_BAD_OPTION", f"{name} = {text!r}: {allowed}")
