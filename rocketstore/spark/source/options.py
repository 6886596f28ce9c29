"""Options of the source: the Kafka connector's names and meanings where it has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketstore.archive import is_uri, shown_uri
from rocketstore.spark.errors import SparkFaceError, bad_option
from rocketstore.spark.option_checks import (
    check_names,
    choice,
    duration,
    number,
    size,
    sql_expression,
    switch,
    without_kafkas,
)
from rocketstore.spark.schema import VIEWS, Field, choose
from rocketstore.spark.source.conditions import Condition, parse_conditions
from rocketstore.spark.stores import store_path
from rocketstore.spark.timestamps import milliseconds
from rocketstore.values import LIMITS, parse_json, topic_test

__all__ = ["EARLIEST", "LATEST", "QueueOffsets", "ReadOptions"]

READ_NAMES = {
    "path": "directory of the store, or URI of an archive of it (rocketstore.ship)",
    "topic": "topics, with commas between them; also: subscribe",
    "subscribe": "Kafka's name of topic",
    "topicPattern": "topics whose whole name matches; also: subscribePattern",
    "subscribePattern": "Kafka's name of topicPattern",
    "assign": 'JSON: {"topic": [queue ids]}; also: queues',
    "queues": "queue ids, with commas between them, or JSON as for assign",
    "systemTopics": "true: messages of topics that services use themselves; default false",
    "tags": "messages with one of these tags: a || b",
    "where": "messages whose properties match an expression of RocketMQ's SQL92",
    "columns": "columns, with commas between them; all others are not even read",
    "view": f"names of columns: {', '.join(VIEWS)}",
    "startingOffsets": "earliest, latest, or JSON of queue offsets",
    "endingOffsets": "latest, or JSON of queue offsets; batch only",
    "startingOffsetsByTimestamp": (
        'JSON {"topic": {"0": milliseconds}}: the first message then or later'
    ),
    "startingOffsetsByTimestampStrategy": "where there is none: error (default), or latest",
    "endingOffsetsByTimestamp": "likewise: before that message, or latest; batch only",
    "begin": "messages stored then or later: milliseconds since 1970, or ISO 8601 with a time zone",
    "end": "messages stored before, likewise; batch only",
    "startingTimestamp": "Kafka's name of begin; milliseconds",
    "endingTimestamp": "Kafka's name of end; milliseconds",
    "splitBytes": "bytes of log in a partition; default 256m",
    "minPartitions": "smaller splits, so that there are at least so many",
    "failOnDataLoss": "true (default): missing or damaged ranges are errors; else they are skipped",
    "includeProperties": "true (default): the column properties",
    "includeHeaders": "view=kafka: the column headers",
    "decompress": "true (default): bodies as producers gave them; false: as they are stored",
    "verify": "true (default): checksums of every record",
    "conditions": "what rocketstore.spark.read has found in its `where`; batch only",
    "askFilters": "true: for rocketstore.spark.read alone",
    "maxBytesPerTrigger": "streams: bytes of log in a micro-batch; default 256m",
    "maxOffsetsPerTrigger": "streams: messages in a micro-batch",
    "minOffsetsPerTrigger": "streams: wait for so many messages, or for maxTriggerDelay",
    "maxTriggerDelay": "streams: longest wait for minOffsetsPerTrigger; default 15m",
    "consumerGroup": "streams: store how far they have come as offsets of this group",
}
STREAM_ONLY = (
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "consumerGroup",
)
BATCH_ONLY = (
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "end",
    "endingTimestamp",
    "conditions",
    "askFilters",
)
#: Kafka's names of bounds of time → ours.
TIMES = {"startingTimestamp": "begin", "endingTimestamp": "end"}
#: Options that name topics.
WAYS = ("topic", "subscribe", "topicPattern", "subscribePattern")
EARLIEST, LATEST = -2, -1
QUEUE_ID_END = 2**31
#: Name of a group, or of a topic that has queues.
NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")

#: topic → queue id → queue offset, EARLIEST or LATEST.
QueueOffsets = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The source's options, checked. `starting` and `ending` are EARLIEST, LATEST or queue
    offsets."""

    path: str
    fields: tuple[Field, ...]
    starting: int | QueueOffsets
    ending: int | QueueOffsets
    split_bytes: int
    min_partitions: int
    fail_on_data_loss: bool
    decompress: bool
    verify: bool
    ask_filters: bool
    conditions: tuple[Condition, ...]
    max_bytes: int | None
    max_rows: int | None
    group: str | None
    #: Milliseconds in place of offsets, which win over `starting` and `ending`; None: not given.
    starting_times: QueueOffsets | None
    ending_times: QueueOffsets | None
    #: Whether a time after the last message means its end, and no error.
    late_is_latest: bool
    #: Messages that a micro-batch waits for, and for how long at most; 0: for none.
    min_rows: int
    max_delay_s: float
    #: Arguments of rocketstore.scan.
    wanted: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, stream: bool | None = None) -> ReadOptions:
        """`stream` None: only the schema is asked for."""
        options = without_kafkas(options, "the source")
        given = check_names(options, READ_NAMES, "the source")
        for name in BATCH_ONLY if stream else STREAM_ONLY if stream is False else ():
            if name.lower() in given:
                where = "a batch" if stream else "a stream"
                raise bad_option(name, given[name.lower()], f"only in {where}")
        fields = _fields(given)
        wanted = _wanted(given)
        from_now = stream and not {"begin", "startingtimestamp"} & set(given)
        starting = _offsets(given, "startingOffsets", LATEST if from_now else EARLIEST)
        ending = _offsets(given, "endingOffsets", LATEST)
        _check_order(given, wanted, starting, ending)
        rows = number(given, "maxOffsetsPerTrigger", 0, 1, 2**62)
        path = store_path(given["path"])
        if is_uri(path):
            _check_archive(path, given, stream)
        return cls(
            path,
            fields,
            starting,
            ending,
            size(given, "splitBytes", 256 << 20, 1, 2**62),
            number(given, "minPartitions", 1, 1, 1_000_000),
            switch(given, "failOnDataLoss", True),
            switch(given, "decompress", True),
            switch(given, "verify", True),
            switch(given, "askFilters", False),
            _conditions(given, fields),
            # A number of messages alone says it all; else there is a bound on bytes.
            size(given, "maxBytesPerTrigger", 256 << 20, 1, 2**62)
            if not rows or "maxbytespertrigger" in given
            else None,
            rows or None,
            _group(given),
            *_times(given, wanted),
            *_least(given, rows),
            wanted,
        )


def _check_archive(path: str, given: Mapping[str, str], stream: bool | None) -> None:
    """What an archive cannot do: it has no queues, and nothing that reports new messages."""
    if stream:
        allowed = "a stream follows a store's directory; read an archive as a batch"
        raise bad_option("path", shown_uri(path), allowed)
    for name in (
        "startingOffsets",
        "endingOffsets",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ):
        if "{" in (text := given.get(name.lower(), "")):
            allowed = "queue offsets need a store's queues, an archive has none; choose by time"
            raise bad_option(name, text, allowed)


def _fields(given: Mapping[str, str]) -> tuple[Field, ...]:
    kafka = {"subscribe", "subscribepattern", "assign"} & set(given)
    view = choice(given, "view", "kafka" if kafka else "rocketstore", tuple(VIEWS))
    names = given.get("columns")
    chosen = None if names is None else tuple(name.strip() for name in names.split(","))
    without = set()
    if not switch(given, "includeProperties", True):
        without.add("properties")
    if not switch(given, "includeHeaders", False):
        without.add("headers")
    return choose(view, chosen, frozenset(without))


def _conditions(given: Mapping[str, str], fields: tuple[Field, ...]) -> tuple[Condition, ...]:
    text = given.get("conditions")
    if text is None:
        return ()
    try:
        return parse_conditions(text, fields)
    except ValueError as error:
        raise bad_option(
            "conditions", text, f"as rocketstore.spark.read gives it ({error})"
        ) from error


def _group(given: Mapping[str, str]) -> str | None:
    name = given.get("consumergroup")
    if name is not None and NAME.fullmatch(name) is None:
        raise bad_option("consumerGroup", name, "% | - _ and ASCII letters and digits, 1 … 255")
    return name


def _wanted(given: Mapping[str, str]) -> dict[str, Any]:
    """What rocketstore.scan filters by."""
    wanted: dict[str, Any] = {"system_topics": switch(given, "systemTopics", False)}
    ways = [name for name in WAYS if name.lower() in given]
    if len(ways) > 1:
        raise bad_option(ways[1], given[ways[1].lower()], f"not together with {ways[0]}")
    for name in ways:
        text = given[name.lower()]
        if name.endswith("Pattern"):
            wanted["topic_pattern"] = _pattern(name, text)
        else:
            topics = [topic.strip() for topic in text.split(",") if topic.strip()]
            if not topics:
                raise bad_option(name, text, "names of topics, with commas between them")
            wanted["topics"] = topics
    if "assign" in given:
        if ways or "queues" in given:
            raise bad_option("assign", given["assign"], "not together with topics or queues")
        queues = _assigned("assign", given["assign"])
        wanted |= {"queues": queues, "topics": list(queues)}
    elif "queues" in given:
        text = given["queues"].strip()
        if text.startswith("{"):
            wanted["queues"] = _assigned("queues", text)
        else:
            words = [word.strip() for word in text.split(",")]
            numbers = [int(word) if re.fullmatch("[0-9]{1,10}", word) else -1 for word in words]
            wanted["queues"] = _ids("queues", text, numbers)
    if "tags" in given:
        wanted["tags"] = given["tags"]
        if not all(tag.strip() for tag in given["tags"].split("||")):
            raise bad_option("tags", given["tags"], "tags, with || between them")
    if "where" in given:
        wanted["where"] = sql_expression(given["where"])
    for name, argument in (
        ("startingTimestamp", "begin"),
        ("endingTimestamp", "end"),
    ):
        if name.lower() in given and TIMES[name] in given:
            raise bad_option(name, given[name.lower()], f"not together with {TIMES[name]}")
        for word in (name, TIMES[name]):
            if word.lower() in given:
                wanted[argument] = _timestamp(given, word)
    return wanted


def _timestamp(given: Mapping[str, str], name: str) -> int:
    try:
        return number(given, name, 0, 0, 2**62)
    except SparkFaceError:
        text = given[name.lower()]
        meant = milliseconds(text)
        kafka = name in TIMES
        if meant and meant.zoned and not kafka and meant.time_ms >= 0:
            return meant.time_ms
        hint = f"; {meant.time_ms} is {meant.text}" if meant and meant.time_ms >= 0 else ""
        more = "" if kafka else ", or ISO 8601 with a time zone"
        allowed = f"milliseconds since 1970, a whole number{more}{hint}"
        raise bad_option(name, text, allowed) from None


def _pattern(name: str, text: str) -> str:
    try:
        topic_test(text, name)
    except ValueError as error:
        raise SparkFaceError("RS_BAD_OPTION", str(error)) from error
    return text


def _ids(name: str, text: str, ids: Any) -> list[int]:
    several = isinstance(ids, list) and ids != []
    if not (several and all(type(one) is int and 0 <= one < QUEUE_ID_END for one in ids)):
        raise bad_option(
            name, text, f"queue ids, 0 … {QUEUE_ID_END - 1}, several in JSON as a list"
        )
    return list(ids)


def _assigned(name: str, text: str) -> dict[str, list[int]]:
    found = {topic: _ids(name, text, ids) for topic, ids in _json(name, text).items()}
    if not found:
        raise bad_option(name, text, 'JSON like {"topic": [0, 1]}')
    return found


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        found = parse_json(text, LIMITS["spark"])
    except ValueError as error:
        raise bad_option(name, text, f"JSON of topics ({error})") from error
    if not isinstance(found, dict):
        raise bad_option(name, text, "JSON of topics")
    return found


def _offsets(given: Mapping[str, str], name: str, default: int) -> int | QueueOffsets:
    text = given.get(name.lower())
    if text is None:
        return default
    word = text.strip().lower()
    if word in ("earliest", "latest") and not (name == "endingOffsets" and word == "earliest"):
        return EARLIEST if word == "earliest" else LATEST
    if not text.lstrip().startswith("{"):
        words = "latest" if name == "endingOffsets" else "earliest, latest"
        raise bad_option(name, text, words + ', or JSON like {"topic": {"0": 23, "1": -2}}')
    found = _json(name, text)
    offsets: QueueOffsets = {}
    for topic, queues in found.items():
        if not isinstance(queues, dict):
            raise bad_option(name, text, 'JSON like {"topic": {"0": 23, "1": -2}}')
        for queue, offset in queues.items():
            if not (queue.isdecimal() and type(offset) is int and offset >= EARLIEST):
                raise bad_option(name, text, "queue ids and offsets; -2 earliest, -1 latest")
            offsets.setdefault(topic, {})[int(queue)] = offset
    return offsets


def _times(
    given: Mapping[str, str], wanted: Mapping[str, Any]
) -> tuple[QueueOffsets | None, QueueOffsets | None, bool]:
    """As in Kafka's connector a time of all queues wins over those of each."""
    found: list[QueueOffsets | None] = []
    for name, whole in (
        ("startingOffsetsByTimestamp", "begin"),
        ("endingOffsetsByTimestamp", "end"),
    ):
        times = _by_queue(given, name) if name.lower() in given else None
        found.append(None if whole in wanted else times)
    words = ("error", "latest")
    strategy = choice(given, "startingOffsetsByTimestampStrategy", "error", words)
    return found[0], found[1], strategy == "latest"


def _by_queue(given: Mapping[str, str], name: str) -> QueueOffsets:
    text = given[name.lower()]
    found: QueueOffsets = {}
    for topic, queues in _json(name, text).items():
        pairs = queues.items() if isinstance(queues, dict) else [("", None)]
        for queue, time_ms in pairs:
            if not (queue.isdecimal() and type(time_ms) is int and time_ms >= 0):
                raise bad_option(name, text, 'JSON like {"topic": {"0": milliseconds since 1970}}')
            found.setdefault(topic, {})[int(queue)] = time_ms
    if not found:
        raise bad_option(name, text, 'JSON like {"topic": {"0": milliseconds since 1970}}')
    return found


def _least(given: Mapping[str, str], most: int) -> tuple[int, float]:
    least = number(given, "minOffsetsPerTrigger", 0, 1, 2**62)
    if most and least > most:
        text = given["minoffsetspertrigger"]
        raise bad_option("minOffsetsPerTrigger", text, f"at most maxOffsetsPerTrigger, {most}")
    if "maxtriggerdelay" in given and not least:
        raise bad_option("maxTriggerDelay", given["maxtriggerdelay"], "needs minOffsetsPerTrigger")
    return least, duration(given, "maxTriggerDelay", 900.0)


def _check_order(
    given: Mapping[str, str],
    wanted: Mapping[str, Any],
    starting: int | QueueOffsets,
    ending: int | QueueOffsets,
) -> None:
    """Refuses a range that ends before it begins."""
    if isinstance(starting, dict) and isinstance(ending, dict):
        for topic, queues in starting.items():
            for queue_id, first in queues.items():
                if first > (last := ending.get(topic, {}).get(queue_id, first)) >= 0:
                    where = f"{topic}/{queue_id} begins at {first} by startingOffsets"
                    raise bad_option("endingOffsets", given["endingoffsets"], f"{last}: {where}")
    first_ms, last_ms = wanted.get("begin", 0), wanted.get("end", 2**62)
    if first_ms > last_ms:
        begin, end = (own if own in given else kafka for kafka, own in TIMES.items())
        raise bad_option(end, given[end.lower()], f"not before {begin}, {first_ms}")
