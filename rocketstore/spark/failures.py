"""Errors of the Spark face. Spark keeps only the text of an error, so each begins with a stable code."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from rocketstore import RocketStoreError

__all__ = ["SparkFaceError", "told_path"]


class SparkFaceError(RocketStoreError):
    """What the Spark face refuses or could not do: `[RS_CODE] text`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"


@contextlib.contextmanager
def told_path(code: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """What the system or a store refuses at `path` becomes an error of this code, with host and path."""
    try:
        yield
    except SparkFaceError:
        raise
    except (OSError, RocketStoreError) as error:
        place = f"host={socket.gethostname()} path={os.fspath(path)}"
        raise SparkFaceError(code, f"{place}: {error}") from error
