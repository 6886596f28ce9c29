"""Parts of a log as tasks: they go to the workers as they are, which use rocketstore alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import rocketstore
from rocketstore.spark.planning import open_store
from rocketstore.spark.shards import refuse_shards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SPLIT_BYTES", "Row", "parts_of", "run_parts"]

SPLIT_BYTES = 256 << 20
Row = tuple[Any, ...]


def parts_of(path: str | os.PathLike[str], split_bytes: int, **given: Any) -> list[Any]:
    """Scans of the parts of a store. `given`: arguments of `rocketstore.scan`."""
    root = os.path.abspath(path)
    refuse_shards(root, "name one of them, which is a store; a frame takes them all")
    open_store(root).close()  # what is wrong with the path is said with a code
    return list(rocketstore.scan(root, **given).split(split_bytes))


def run_parts(
    session: SparkSession, parts: list[Any], work: Callable[[Any], Iterator[Row]]
) -> list[Row]:
    """All rows of `work` over the parts, each part a task."""
    if not parts:
        return []
    spread = session.sparkContext.parallelize(parts, len(parts))
    rows: list[Row] = spread.flatMap(work).collect()
    return rows
