"""Messages of a store, chosen as `rocketstore.scan` chooses: as a frame, or as parts of a log that
are tasks. These go to the workers as they are, which use rocketstore alone."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocketstore.archive import is_uri
from rocketstore.spark.errors import coded_errors
from rocketstore.spark.sink.shards import refuse_shards
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import check_topics_of, coded_read_errors, scan_of, split_scan
from rocketstore.spark.source.topic_check import Present, check_store, note_present
from rocketstore.spark.stores import open_to_read, store_path
from rocketstore.values import timestamp_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketstore import Scan

__all__ = [
    "NAMES",
    "SPLIT_BYTES",
    "Row",
    "coded_rows",
    "load",
    "parts_of",
    "run_parts",
    "source_options",
    "whole_scan",
]

NAMES = ("topics", "topic_pattern", "queues", "tags", "begin", "end", "system_topics")


def load(
    session: SparkSession,
    path: str | os.PathLike[str],
    wanted: Mapping[str, Any],
    *,
    decompress: bool = True,
) -> DataFrame:
    """The default view of the messages that are `wanted`, as `rocketstore.scan` chooses, in the
    order of the log."""
    reader = session.read.format("rocketstore").option("path", store_path(path))
    return reader.options(**source_options(wanted), decompress=decompress).load()


def source_options(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Options of the source for arguments of `rocketstore.scan`. None counts as not given."""
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        raise TypeError(f"{', '.join(unknown)}: there are {', '.join(NAMES)}")
    options: dict[str, str] = {}
    for name, value in wanted.items():
        if value is None:
            continue
        if name == "topics":
            options["topic"] = value if isinstance(value, str) else ",".join(value)
        elif name == "topic_pattern":
            options["topicPattern"] = value
        elif name == "queues":
            options["queues"] = _queues(value)
        elif name == "tags":
            options["tags"] = value if isinstance(value, str) else "||".join(value)
        elif name == "system_topics":
            options["systemTopics"] = str(value).lower()
        else:
            side = "starting" if name == "begin" else "ending"
            options[f"{side}Timestamp"] = str(timestamp_ms(name, value))
    return options


def _queues(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps({topic: list(ids) for topic, ids in value.items()})
    return ",".join(str(number) for number in ([value] if isinstance(value, int) else value))


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
