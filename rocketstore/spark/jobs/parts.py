"""Parts of a log as tasks: they go to the workers as they are, which use rocketstore alone."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rocketstore.archive.place import is_uri
from rocketstore.spark.options import place_of
from rocketstore.spark.planning import open_store, scan_of, told_where
from rocketstore.spark.shards import refuse_shards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SPLIT_BYTES", "Row", "parts_of", "run_parts"]

SPLIT_BYTES = 256 << 20
Row = tuple[Any, ...]


def parts_of(path: str | os.PathLike[str], split_bytes: int, **given: Any) -> list[Any]:
    """Scans of the parts of a store or an archive. `given`: arguments of `rocketstore.scan`."""
    root = place_of(path)
    if not is_uri(root):
        refuse_shards(root, "name one of them, which is a store; a frame takes them all")
        open_store(root).close()  # what is wrong with the path is said with a code
    return list(scan_of(root, **given).split(split_bytes))


def run_parts(
    session: SparkSession, parts: list[Any], work: Callable[[Any], Iterator[Row]]
) -> list[Row]:
    """All rows of `work` over the parts, each part a task."""
    if not parts:
        return []
    spread = session.sparkContext.parallelize(parts, len(parts))
    rows: list[Row] = spread.flatMap(functools.partial(_told, work)).collect()
    return rows


def _told(work: Callable[[Any], Iterator[Row]], scan: Any) -> Iterator[Row]:
    return work(ToldPart(scan))


class ToldPart:
    """A scan whose errors of reading say where; what the work does with the columns is its own affair."""

    def __init__(self, scan: Any) -> None:
        self._scan = scan

    def __iter__(self) -> Iterator[Any]:
        with told_where(self._scan):
            yield from self._scan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scan, name)
