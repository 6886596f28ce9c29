"""Errors of the Spark face. Spark keeps only the text of an error, so each begins with a stable
code."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Final

from rocketstore import (
    BookmarkError,
    RocketStoreError,
    StoreRecoveringError,
    StoreReplacedError,
)
from rocketstore.archive import is_uri, shown_uri
from rocketstore.errors import HINTS as LIBRARY_HINTS

__all__ = ["HINTS", "SparkFaceError", "bad_option", "coded_errors", "no_store"]

#: Advice in errors and warnings of this package, by its code, and that of the library. It names
#: options of Spark and arguments of jobs; the command line puts its own options in the place of
#: each.
HINTS: Final = {
    **LIBRARY_HINTS,
    "add_shards": "give the option shards to add some",
    "append": "or mode='append'",
    "argument_topic": "of each with the argument topic",
    "bad_rows": "badRows=drop leaves such rows out, divert keeps them",
    "create_store": "and createStore=false",
    "decompress": "decompress=false leaves it as it is",
    "data_loss": " (failOnDataLoss=false: go on after it)",
    "lock_timeout": "give the option lockTimeoutS more seconds",
    "name_topics": "name them in topics",
    "no_codec": "or decompress=false",
    "skip_damage": "failOnDataLoss=false skips it",
    "to_topic": "give to_topic",
    "replay_to_topic": "replay them with to_topic",
    "topics": "name others, or give failOnDataLoss=false",
}


#: Errors of a store that have a code of their own, whatever was done there.
OWN_CODES: Final = (
    (StoreReplacedError, "RS_STORE_REPLACED"),
    (StoreRecoveringError, "RS_STORE_RECOVERING"),
    (BookmarkError, "RS_BAD_CHECKPOINT"),
)


class SparkFaceError(RocketStoreError):
    """What the Spark face refuses or could not do: `[RS_CODE] text`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"


def bad_option(name: str, value: object, allowed: str) -> SparkFaceError:
    """An option, or an argument of a job, that is refused."""
    return SparkFaceError("RS_BAD_OPTION", f"{name} = {value!r}: {allowed}")


def no_store(path: str, error: OSError) -> SparkFaceError:
    """RS_NO_STORE, without the library's own advice, which is to open the store in another mode."""
    what = error.strerror or str(error)
    for advice in LIBRARY_HINTS.values():
        what = what.removesuffix(f"; {advice}")
    text = (
        f"path = {path!r}: {what}; see whether the path is right and its disk mounted on this host"
    )
    return SparkFaceError("RS_NO_STORE", f"{text} ({socket.gethostname()})")


@contextlib.contextmanager
def coded_errors(
    code: str, path: str | os.PathLike[str], *passed: type[Exception]
) -> Iterator[None]:
    """What the system or a store refuses at `path` becomes an error of this code, or of one in
    OWN_CODES, with host and path; those of the kinds in `passed` stay as they are."""
    try:
        yield
    except SparkFaceError:
        raise
    except passed:
        raise
    except (OSError, RocketStoreError) as error:
        code = next((own for kind, own in OWN_CODES if isinstance(error, kind)), code)
        name = os.fspath(path)
        place = f"host={socket.gethostname()} path={shown_uri(name) if is_uri(name) else name}"
        said = error.reason if isinstance(error, BookmarkError) else error
        raise SparkFaceError(code, f"{place}: {said}") from error
