"""Rows that cannot be messages, kept as Parquet with the reason, beside what is written."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadRows", "discard_bad_rows", "keep_bad_rows"]

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
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, rows.schema, compression="zstd")
        self._writer.write_batch(rows)

    def finish(self) -> str | None:
        """The file, durable; None when there was no bad row."""
        if self._writer is None:
            return None
        self._writer.close()
        handle = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return self._path


def keep_bad_rows(path: str, name: str) -> None:
    """Gives a task's file its name, the same one however often the commit is run."""
    staged = os.path.dirname(path)
    os.replace(path, os.path.join(os.path.dirname(staged), f"{name}.parquet"))
    remove_if_empty(staged)


def discard_bad_rows(path: str) -> None:
    """Removes the file of a task whose write was given up."""
    if os.path.exists(path):
        os.unlink(path)
        remove_if_empty(os.path.dirname(path))


def remove_if_empty(directory: str) -> None:
    if os.path.isdir(directory) and not os.listdir(directory):
        os.rmdir(directory)
