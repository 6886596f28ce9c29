"""Messages of a store as a frame, chosen as `rocketstore.scan` chooses."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketstore.spark.paths import store_path
from rocketstore.values import timestamp_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NAMES", "load", "source_options"]

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
