"""Where a stream or a group has come, as `startingOffsets` of a query with a new checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketstore.spark.errors import SparkFaceError, bad_option
from rocketstore.spark.source.options import QueueOffsets, ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from rocketstore.spark.stores import directory_of, open_to_read
from rocketstore.values import LIMITS, parse_json

__all__ = ["starting_offsets"]


def starting_offsets(
    path: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    group: str | None = None,
    topics: Iterable[str] = (),
    source: int = 0,
) -> str:
    """The option startingOffsets with which a query with a new checkpoint goes on where another query,
    or a consumer group, has come. It needs no Spark.

        rows = session.readStream.format("rocketstore").option("path", "data/orders")
        rows.option("startingOffsets", spark.starting_offsets("data/orders", "data/checkpoint"))

    Args:
        path: of the store of that query, or of a copy that has its history.
        checkpoint: checkpointLocation of that query, a directory here.
        group: a consumer group, in place of a checkpoint.
        topics: these alone; by default all topics of applications, or all of the group.
        source: which stream of that query, from 0.

    Returns:
        JSON: topic, queue id, next queue offset. A queue that it lacks is read from its begin.

    Raises:
        SparkFaceError: RS_BAD_CHECKPOINT: the query has committed no micro-batch, or is of another
            source. RS_STORE_REPLACED, RS_LOG_TRUNCATED: its history is not that of the store.
            RS_BAD_OPTION: the group has stored no offset, or both or none of the two are given.
    """
    wanted = list(topics)
    given = {"path": os.fspath(path)} | ({"topic": ",".join(wanted)} if wanted else {})
    options = ReadOptions.parse(given, stream=True)
    if (checkpoint is None) == (group is None):
        raise bad_option("checkpoint", checkpoint, "a directory, or a group in place of it")
    if group is not None:
        return json.dumps(_of_group(options.path, group, wanted))
    progress = Progress(options)
    try:
        return json.dumps(progress.queue_offsets(_committed(checkpoint or "", source)))
    finally:
        progress.close()


def _of_group(path: str, group: str, topics: list[str]) -> QueueOffsets:
    with open_to_read(path) as store:
        rows = {topic: store.committed(topic, group) for topic in topics or store.topics()}
    found = {topic: row for topic, row in rows.items() if row}
    if not found:
        raise bad_option("group", group, f"a group that has stored offsets in {path}")
    return found


def _committed(checkpoint: str | os.PathLike[str], source: int) -> dict[str, Any]:
    """A stream's offset at the end of the last micro-batch that is done."""
    directory = Path(directory_of("checkpoint", checkpoint, "a directory on this machine"))
    try:
        done = [int(name) for name in os.listdir(directory / "commits") if name.isdecimal()]
        if not done:
            raise ValueError("nothing is committed")
        text = (directory / "offsets" / str(max(done))).read_text(encoding="utf-8")
        # A line of the version, one of the query, then one for each of its streams.
        line = text.split("\n")[2:][source]
        found: Any = parse_json(line[line.index("{") :], LIMITS["spark"])
        return {**found, "store": str(found["store"]), "phys": int(found["phys"])}
    except (OSError, ValueError, TypeError, LookupError) as error:
        text = f"{directory} has no micro-batch that is done, with stream {source} of rocketstore"
        raise SparkFaceError("RS_BAD_CHECKPOINT", f"{text}: {error!r}") from error
