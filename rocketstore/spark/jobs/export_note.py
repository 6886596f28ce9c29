"""How far an export has come, noted in its target: the next one goes on there.

`_export.json` has the bookmark of the log up to which all is exported, and what was chosen. Before
files get their names it lists them as pending; after that it has the new bookmark. A run that finds
pending files removes them: a run that was killed may have named some, and their messages come
again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketstore import Bookmark, BookmarkError
from rocketstore.archive import ObjectStore, is_uri
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.option_checks import bad_option
from rocketstore.values import LIMITS, parse_json

if TYPE_CHECKING:
    from rocketstore.spark.jobs.parquet_files import Target

__all__ = ["NOTE_NAME", "ExportNote", "choice_of"]

#: Readers of Parquet pass over names that begin so.
NOTE_NAME: Final = "_export.json"
VERSION: Final = 1
NOTE_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True)
class ExportNote:
    """The content of the note. `done` None: nothing is exported yet."""

    chosen: Mapping[str, Any]
    done: Bookmark | None = None
    #: Files, relative to the target, that a run is about to name.
    pending: tuple[str, ...] = ()

    @classmethod
    def read(cls, place: Target, chosen: Mapping[str, Any]) -> ExportNote:
        """The note of a target, once what a killed run has named is removed.

        Raises:
            SparkFaceError: RS_TARGET_NOT_EMPTY: files and no note; RS_BAD_CHECKPOINT: it is none;
                RS_BAD_OPTION: other messages or columns were chosen.
        """
        objects = _objects(place)
        try:
            file = objects.open(NOTE_NAME)
        except FileNotFoundError:
            if place.holds_files():
                text = f"target = {place.uri!r}: files are there, and no {NOTE_NAME} says of what"
                raise SparkFaceError("RS_TARGET_NOT_EMPTY", f"{text}; another target") from None
            return cls(chosen)
        with contextlib.closing(file):
            data = file.read(0, min(file.size(), NOTE_BYTES_MAX))
        found = cls._parse(data, objects.object_name(NOTE_NAME))
        if found.chosen != chosen:
            other = [name for name in chosen if found.chosen.get(name) != chosen[name]]
            was = ", ".join(f"{name} = {found.chosen.get(name)!r}" for name in other)
            raise bad_option("mode", "continue", f"the runs before had {was}; another target")
        files, root = place.open()
        for name in found.pending:
            with contextlib.suppress(FileNotFoundError):
                files.delete_file(f"{root}/{name}")
        return replace(found, pending=())

    @classmethod
    def _parse(cls, data: bytes, where: str) -> ExportNote:
        try:
            found: Any = parse_json(data, LIMITS["spark"])
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']!r}: {VERSION}")
            done = None if found["done"] is None else Bookmark.of(found["done"])
            pending = tuple(map(_relative, found["pending"]))
            return cls(dict(found["chosen"]), done, pending)
        except (ValueError, TypeError, KeyError, BookmarkError) as error:
            raise SparkFaceError(
                "RS_BAD_CHECKPOINT", f"{where}: {error}; another target"
            ) from error

    def write(self, place: Target) -> None:
        """Replaces the note of a target; it is on the disk when this returns."""
        done = None if self.done is None else asdict(self.done)
        document = {
            "version": VERSION,
            "chosen": self.chosen,
            "done": done,
            "pending": self.pending,
        }
        _objects(place).put(NOTE_NAME, [json.dumps(document, indent=1).encode()])


def choice_of(
    options: Mapping[str, str], columns: Iterable[str], decompress: bool
) -> dict[str, Any]:
    """What every run of one target has to choose alike."""
    return {"messages": dict(options), "columns": list(columns), "decompress": decompress}


def _objects(place: Target) -> ObjectStore:
    return ObjectStore(place.uri if is_uri(place.uri) else Path(place.uri).absolute().as_uri())


def _relative(name: object) -> str:
    """The name of a Parquet file below the target, and nothing else that could be removed."""
    if not isinstance(name, str) or not name.startswith("topic=") or not name.endswith(".parquet"):
        raise ValueError(f"{name!r} is no file of an export")
    if ".." in name.split("/") or os.path.isabs(name):
        raise ValueError(f"{name!r} is no file of an export")
    return name
