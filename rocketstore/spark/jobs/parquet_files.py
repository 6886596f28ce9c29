"""Parquet files of parts of the log, one for each topic and day. Tasks write them in a directory
that readers pass over; when all are there, the driver gives them their names."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from rocketstore.archive import is_uri, sync_path
from rocketstore.spark.batches import schema_of, to_batch
from rocketstore.spark.timestamps import DAY_MS, moment

if TYPE_CHECKING:
    from rocketstore.spark.jobs.reading import Row
    from rocketstore.spark.schema import Field

__all__ = ["COMPRESSIONS", "PartFiles", "Target", "day_text", "directory_text"]

#: Days since 1970 that have a date: years 1 … 9999. NO_DAY is for all others.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
NO_DAY: Final = LAST_DAY + 1
#: Group of rows that are not wanted.
NO_GROUP: Final = -1
#: Hive's name for no value.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: Characters that Spark escapes in the names of directories, and reads back.
ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
#: Bytes of record batches that wait in memory, for all files of a part, before a row group is
#: written.
WAITING_BYTES: Final = 128 << 20
ROW_GROUP_BYTES: Final = 64 << 20
OPEN_FILES: Final = 128
#: Files that the driver moves at a time: in an object store each is a copy.
MOVERS: Final = 16
#: Columns with values that repeat: they get a dictionary.
REPEATING: Final = (
    "queue_id",
    "tags",
    "born_host",
    "store_host",
    "sys_flag",
    "flag",
    "reconsume_times",
)
WITHOUT_STATISTICS: Final = ("body", "properties")
#: Compressions of Parquet, as pyarrow names them.
COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "brotli", "none")
TEMPORARY: Final = "_temporary"


def day_text(day: int) -> str:
    """The date of a day since 1970."""
    if day == NO_DAY:
        return NO_VALUE
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()


def directory_text(value: str) -> str:
    """A value in the name of a directory, as Spark writes and reads it."""
    return ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value) or NO_VALUE


def parents(path: str, root: str) -> list[str]:
    """The directories of a file, up to that above `root`."""
    above = [str(one) for one in Path(path).parents]
    return above[: above.index(os.path.normpath(root)) + 2]


@dataclass(frozen=True)
class Target:
    """Where the files of one run go. Pickled to the tasks."""

    #: Or an absolute path.
    uri: str
    run: str
    compression: str

    def open(self) -> tuple[Any, str]:
        """(file system, path in it)."""
        if is_uri(self.uri):
            found: tuple[Any, str] = pa.fs.FileSystem.from_uri(self.uri)
            return found
        return pa.fs.LocalFileSystem(), self.uri

    def holds_files(self) -> bool:
        """Whether anything is there that a reader would take for data."""
        files, root = self.open()
        selector = pa.fs.FileSelector(root, allow_not_found=True, recursive=True)
        return any(
            info.type == pa.fs.FileType.File
            and not any(part[0] in "._" for part in info.path[len(root) :].strip("/").split("/"))
            for info in files.get_file_info(selector)
        )

    def keep(self, rows: list[Row], *, synced: bool = False) -> list[Row]:
        """Moves the files of all tasks to their names, or none of them; `rows` without where they
        were. `synced`: they are on the disk then, where the target is a local directory."""
        files, root = self.open()
        kept: list[str] = []
        syncs = synced and files.type_name == "local"

        def move(row: Row) -> None:
            final = f"{root}/{row[1]}"
            files.create_dir(os.path.dirname(final), recursive=True)
            if syncs:
                sync_path(row[0])
            files.move(row[0], final)
            kept.append(final)

        try:
            with ThreadPoolExecutor(MOVERS) as threads:
                list(threads.map(move, rows))
            for name in {name for final in kept for name in parents(final, root)} if syncs else ():
                sync_path(name)
        except BaseException:
            for final in kept:
                with contextlib.suppress(OSError):
                    files.delete_file(final)
            raise
        return [row[1:] for row in rows]

    def clean(self) -> None:
        """Removes what tasks left that did not end well."""
        files, root = self.open()
        if files.get_file_info(f"{root}/{TEMPORARY}").type != pa.fs.FileType.Directory:
            return
        if files.get_file_info(f"{root}/{TEMPORARY}/{self.run}").type == pa.fs.FileType.Directory:
            files.delete_dir(f"{root}/{TEMPORARY}/{self.run}")
        if not files.get_file_info(pa.fs.FileSelector(f"{root}/{TEMPORARY}")):
            files.delete_dir(f"{root}/{TEMPORARY}")


@dataclass
class OneFile:
    """A file that is being written, and what is known of it."""

    topic: str
    day: int
    name: str
    temporary: str
    batches: list[Any] = field(default_factory=list)
    waiting: int = 0
    writer: Any = None
    messages: int = 0
    bytes: int = 0
    offsets: tuple[int, int] = (2**63 - 1, -1)
    times: tuple[int, int] = (2**63 - 1, -(2**63))

    def count(self, columns: Any, rows: Any) -> None:
        offsets, times = columns["physical_offset"][rows], columns["store_timestamp_ms"][rows]
        self.messages += len(offsets)
        self.bytes += int(columns["size"][rows].astype(np.int64).sum())
        self.offsets = (
            min(self.offsets[0], int(offsets[0])),
            max(self.offsets[1], int(offsets[-1])),
        )
        self.times = (min(self.times[0], int(times.min())), max(self.times[1], int(times.max())))


class PartFiles:
    """Takes the columns of a part in order, and sorts their rows into files."""

    def __init__(
        self, target: Target, begin_offset: int, end_offset: int, fields: tuple[Field, ...]
    ) -> None:
        self._target = target
        self._files, self._root = target.open()
        self._part = f"{begin_offset:020d}-{end_offset:020d}-{target.run[:8]}"
        self._fields = fields
        self._schema = schema_of(fields)
        self._open: dict[tuple[str, int], OneFile] = {}  # the last used at the end
        self._numbers: dict[tuple[str, int], int] = {}
        self._done: list[Row] = []
        self._waiting = 0

    def add(self, columns: Mapping[str, Any], count: int, wanted: Any = None) -> None:
        """`wanted`: a boolean array of the rows that are; None: all."""
        batch = to_batch(columns, count, self._fields)
        topics = columns["topic"]
        days = np.floor_divide(columns["store_timestamp_ms"], DAY_MS)
        days = np.where((days < FIRST_DAY) | (days > LAST_DAY), NO_DAY, days)
        groups = topics.codes.astype(np.int64) << 32 | (days - FIRST_DAY)
        if wanted is not None:
            groups = np.where(wanted, groups, NO_GROUP)
        for group in np.unique(groups[groups != NO_GROUP]).tolist():
            rows = np.flatnonzero(groups == group)
            whole = len(rows) == count
            file = self._file(topics.values[group >> 32], (group & 0xFFFFFFFF) + FIRST_DAY)
            file.count(columns, rows)
            piece = batch if whole else batch.take(pa.array(rows))
            file.batches.append(piece)
            file.waiting += piece.nbytes
            self._waiting += piece.nbytes
            if file.waiting >= ROW_GROUP_BYTES:
                self._write(file)
        while self._waiting > WAITING_BYTES:
            self._write(max(self._open.values(), key=lambda file: file.waiting))

    def finish(self) -> Iterator[Row]:
        """Ends all files; where each is, and its row of the result."""
        for key in list(self._open):
            self._finish(self._open.pop(key))
        return iter(self._done)

    def close(self) -> None:
        """What was not finished goes."""
        for file in self._open.values():
            if file.writer is not None:
                # Why it was not is known; what stays goes with the directory of the run.
                with contextlib.suppress(OSError):
                    file.writer.close()
                    self._files.delete_file(file.temporary)
        self._open.clear()

    def _file(self, topic: str, day: int) -> OneFile:
        file = self._open.pop((topic, day), None)
        if file is None:
            if len(self._open) == OPEN_FILES:
                self._finish(self._open.pop(next(iter(self._open))))
            number = self._numbers.get((topic, day), 0)
            self._numbers[topic, day] = number + 1
            more = f"-{number}" if number else ""
            directory = f"topic={directory_text(topic)}/day={day_text(day)}"
            temporary = f"{self._root}/{TEMPORARY}/{self._target.run}/{os.urandom(16).hex()}"
            file = OneFile(topic, day, f"{directory}/{self._part}{more}.parquet", temporary)
        self._open[topic, day] = file
        return file

    def _write(self, file: OneFile) -> None:
        """What waits for a file, as one row group."""
        if file.writer is None:
            self._files.create_dir(os.path.dirname(file.temporary), recursive=True)
            names = self._schema.names
            file.writer = pq.ParquetWriter(
                file.temporary,
                self._schema,
                filesystem=self._files,
                compression=self._target.compression,
                use_dictionary=[name for name in names if name in REPEATING],
                write_statistics=[name for name in names if name not in WITHOUT_STATISTICS],
            )
        table = pa.Table.from_batches(file.batches, self._schema)
        file.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting -= file.waiting
        file.batches, file.waiting = [], 0

    def _finish(self, file: OneFile) -> None:
        if file.batches:
            self._write(file)
        file.writer.close()
        day = day_text(file.day)
        known = (file.name, file.topic, day, file.messages, file.bytes)
        self._done.append((file.temporary, *known, *file.offsets, *map(moment, file.times)))
