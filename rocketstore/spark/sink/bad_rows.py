"""Rows that cannot be messages, kept as Parquet files with the reason."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketstore.archive import sync_path
from rocketstore.spark.errors import coded_errors
from rocketstore.spark.sink.journal import file_name

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STAGED", "BadRows", "discard_bad_rows", "keep_bad_rows", "settle_bad_rows"]

#: Readers of Parquet pass over names that begin like this.
STAGED = "_staged"
REASON = "bad_row_reason"


class BadRows:
    """The bad rows of one task: a file in `directory` that gets its name with the commit."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, STAGED, f"{uuid.uuid4().hex}.parquet")
        self._writer: Any = None

    def add(self, rows: pa.RecordBatch, reasons: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = rows.append_column(REASON, pa.array(reasons, pa.string()))
        if self._writer is None:
            with coded_errors("RS_WRITE_FAILED", self._path):
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                self._writer = pq.ParquetWriter(self._path, rows.schema, compression="zstd")
        with coded_errors("RS_WRITE_FAILED", self._path):
            self._writer.write_batch(rows)

    def finish(self) -> str | None:
        """The file, durable; None when there was no bad row."""
        if self._writer is None:
            return None
        with coded_errors("RS_WRITE_FAILED", self._path):
            self._writer.close()
            sync_path(self._path)
        return self._path

    def abandon(self) -> None:
        """Removes what a failed task leaves. Raises nothing: the task's own error is what
        counts."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
            with contextlib.suppress(OSError):
                discard_bad_rows(self._path)


def keep_bad_rows(path: str, writer: str, version: int, partition: int) -> None:
    """Gives a task's file its name, the same one however often the commit is run."""
    directory = Path(path).parent.parent
    with coded_errors("RS_WRITE_FAILED", directory):
        os.replace(path, directory / f"{file_name(writer)}-{version}-{partition}.parquet")
        sync_path(directory)


def settle_bad_rows(
    path: str, writer: str | None, version: int, partition: int, given_up: bool
) -> None:
    """Keeps the rows of a failed write that a process will finish; discards those of another."""
    if given_up or writer is None:
        discard_bad_rows(path)
    else:
        keep_bad_rows(path, writer, version, partition)


def discard_bad_rows(path: str) -> None:
    """Removes the file of a task whose write was given up."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
