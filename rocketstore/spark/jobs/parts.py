"""Parts of a log as tasks: they go to the workers as they are, which use rocketstore alone."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rocketstore.archive import is_uri
from rocketstore.spark.errors import coded_errors
from rocketstore.spark.jobs.reading import NAMES, source_options
from rocketstore.spark.paths import store_path
from rocketstore.spark.sink.shards import refuse_shards
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import check_topics_of, coded_read_errors, scan_of, split_scan
from rocketstore.spark.source.topic_check import Present, check_store, note_present
from rocketstore.spark.stores import open_to_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketstore import Scan

__all__ = ["SPLIT_BYTES", "Row", "coded_rows", "parts_of", "run_parts", "whole_scan"]

SPLIT_BYTES = 256 << 20
Row = tuple[Any, ...]


def parts_of(path: str | os.PathLike[str], split_bytes: int, **given: Any) -> list[Scan]:
    """Scans of the parts of a store or an archive. `given`, errors: as `whole_scan`."""
    return split_scan(whole_scan(path, **given), split_bytes)


def whole_scan(path: str | os.PathLike[str], **given: Any) -> Scan:
    """A scan of a store or an archive. `given`: arguments of `rocketstore.scan`.

    Raises:
        SparkFaceError: RS_NO_STORE, RS_NO_TOPIC_THERE, RS_BAD_OPTION.
    """
    root = store_path(path)
    asked = source_options({name: given.pop(name) for name in NAMES if name in given})
    wanted = ReadOptions.parse({"path": root, **asked}, stream=False).wanted
    if not is_uri(root):
        refuse_shards(root, "name one of them, which is a store; a frame takes them all")
        present: Present = {}
        with open_to_read(root) as store, coded_errors("RS_READ_FAILED", root):
            note_present(store, wanted, present)
        check_store(root, wanted, present)
    with coded_errors("RS_READ_FAILED", root):
        scan = scan_of(root, **given, **wanted)
    if is_uri(root):
        check_topics_of(root, wanted, [scan])
    return scan


def run_parts(
    session: SparkSession, parts: list[Scan], work: Callable[[Scan], Iterator[Row]]
) -> list[Row]:
    """All rows of `work` over the parts, each part a task."""
    if not parts:
        return []
    spread = session.sparkContext.parallelize(parts, len(parts))
    rows: list[Row] = spread.flatMap(functools.partial(coded_rows, work)).collect()
    return rows


def coded_rows(work: Callable[[Scan], Iterator[Row]], scan: Scan) -> Iterator[Row]:
    """The rows of one part; what goes wrong while it is read says where."""
    with coded_read_errors(scan):
        yield from work(scan)
