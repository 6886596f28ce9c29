"""Errors of the Spark face. Spark keeps only the text of an error, so each begins with a stable code."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from rocketstore import RocketStoreError
from rocketstore.archive.object_store import is_uri, shown

__all__ = ["SparkFaceError", "no_store", "told_path"]


class SparkFaceError(RocketStoreError):
    """What the Spark face refuses or could not do: `[RS_CODE] text`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"


def no_store(path: str, error: OSError) -> SparkFaceError:
    """Without the library's own advice, which is to open it in another mode."""
    what = (error.strerror or str(error)).partition("; mode=")[0]
    text = (
        f"path = {path!r}: {what}; see whether the path is right and its disk mounted on this host"
    )
    return SparkFaceError("RS_NO_STORE", f"{text} ({socket.gethostname()})")


@contextlib.contextmanager
def told_path(code: str, path: str | os.PathLike[str], *passed: type[Exception]) -> Iterator[None]:
    """What the system or a store refuses at `path` becomes an error of this code, with host and path; those of
    the kinds in `passed` stay as they are."""
    try:
        yield
    except SparkFaceError:
        raise
    except passed:
        raise
    except (OSError, RocketStoreError) as error:
        name = os.fspath(path)
        place = f"host={socket.gethostname()} path={shown(name) if is_uri(name) else name}"
        raise SparkFaceError(code, f"{place}: {error}") from error
