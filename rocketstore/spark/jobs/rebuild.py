"""Rebuilds queues and index of a store, parts of the log as tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from rocketstore import ConfigError, CorruptRecordError, ReadFailedError, StoreLockedError
from rocketstore.spark.errors import SparkFaceError, coded_errors, no_store
from rocketstore.spark.stores import directory_of
from rocketstore.tools import BuiltPart, LogPart, RebuildReport, build_part
from rocketstore.tools import rebuild as rebuild_here
from rocketstore.values import whole_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketstore.config import StoreOptions

__all__ = ["rebuild"]

#: Parts for each core that Spark has, so that a slow one does not hold up the others for long.
PARTS_A_CORE = 2
PARTS_MAX = 256


def _build(part: LogPart) -> BuiltPart:
    """In a task, of whose errors nothing but the text comes back."""
    try:
        with coded_errors("RS_WRITE_FAILED", part.directory, CorruptRecordError):
            return build_part(part)
    except CorruptRecordError as error:
        raise SparkFaceError("RS_CORRUPT_RECORD", f"path={part.store}: {error}") from error


def rebuild(
    session: SparkSession,
    path: str | os.PathLike[str],
    *,
    parts: int | None = None,
    allow_stale_crc: bool = False,
    **options: Unpack[StoreOptions],
) -> RebuildReport:
    """Makes queues and index again as `rocketstore.tools.rebuild` does, and as safely; tasks make
    the units of their parts in the store, which all of them must be able to write to. The index is
    made on the driver meanwhile, which locks the store and puts everything together.

    Args:
        parts: of the log, 1 … 256, each whole segments; None: two for each core that Spark has.
        allow_stale_crc: go on where the checksum of a whole record does not hold.
        options: further settings of `rocketstore.open`, as `index_slots` and `index_entries`.

    Raises:
        SparkFaceError: RS_NO_STORE, RS_STORE_LOCKED, RS_BAD_OPTION, RS_CORRUPT_RECORD,
            RS_READ_FAILED, RS_WRITE_FAILED: where `rocketstore.tools.rebuild` has an error.
        ValueError, TypeError: `parts` is no such number.
    """
    root = directory_of("path", path, "a store's directory: queues and index are made in it")
    context = session.sparkContext

    def run_parts(found: Sequence[LogPart]) -> list[BuiltPart]:
        made: list[BuiltPart] = context.parallelize(found, len(found)).map(_build).collect()
        return made

    if parts is None:
        count = min(PARTS_MAX, PARTS_A_CORE * context.defaultParallelism)
    else:
        count = whole_number("parts", parts, 1, PARTS_MAX)
    with coded_errors("RS_WRITE_FAILED", root):
        try:
            return rebuild_here(
                root,
                workers=count,
                run_parts=run_parts,
                allow_stale_crc=allow_stale_crc,
                **options,
            )
        except StoreLockedError as error:
            raise SparkFaceError("RS_STORE_LOCKED", f"{error}; close it there") from error
        except FileNotFoundError as error:
            raise no_store(os.fspath(path), error) from None
        except ConfigError as error:
            raise SparkFaceError("RS_BAD_OPTION", f"{root}: {error}") from error
        except CorruptRecordError as error:
            raise SparkFaceError("RS_CORRUPT_RECORD", f"path={root}: {error}") from error
        except ReadFailedError as error:
            raise SparkFaceError("RS_READ_FAILED", f"path={root}: {error}") from error
