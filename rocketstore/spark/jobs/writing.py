"""Jobs that append frames of Spark as messages, through the sink, and say how many they appended.

`import_` takes Parquet, as `export` writes it or any other with a column `body`. `compact` takes
the latest message of each key into a new store. `replay` takes messages once more: to another
store, or to another topic of the same one. They leave out topics of RocketMQ's own services, whose
messages are delivered, or were, in topics of applications.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from rocketstore.archive import is_uri
from rocketstore.puts import SHARD_KEY
from rocketstore.spark.errors import HINTS, SparkFaceError, bad_option, coded_errors
from rocketstore.spark.jobs.reading import load
from rocketstore.spark.sink.columns import ALIASES, COLUMNS, IGNORED
from rocketstore.spark.sink.journal import committed
from rocketstore.spark.sink.shards import committed_shards, refuse_shards, shard_paths
from rocketstore.spark.sink.staging import wrong_topic
from rocketstore.spark.source.plan import scan_of
from rocketstore.spark.source.topic_check import topics_of
from rocketstore.spark.stores import local_path, open_to_read, store_path
from rocketstore.values import SYSTEM_PREFIXES, SYSTEM_TOPICS, RecordFilter, is_system_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketstore.values import Wanted


__all__ = [
    "MESSAGE_COLUMNS",
    "append",
    "check_system_topics",
    "compact",
    "import_",
    "parquet",
    "plain_rows",
    "replay",
    "system_counts",
    "system_topics",
    "warn_left_out",
]

#: Columns that Parquet of others may have for something else: taken only with this type.
TYPED = {"flag": "int", "sys_flag": "int", "headers": COLUMNS["headers"][0]}
MESSAGE_COLUMNS = (
    *("body", "topic", "queue_id", "tags", "keys", "properties", "born_timestamp"),
    *("flag", "sys_flag"),
)
#: What a frame of messages may have that is appended; the source gives no headers in its own view.
APPENDED = (*MESSAGE_COLUMNS, "headers")

#: What a frame of messages may have besides, also as an export writes it.
KNOWN = {*IGNORED, *APPENDED, "reconsume_times", "day"}

logger = logging.getLogger(__name__)


def append(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    app_id: str | None = None,
    version: int | None = None,
    **options: Any,
) -> int:
    """Appends the rows of a frame in their order; gives the number of messages that this call has
    appended: without bad rows that are dropped, 0 when the version was written before. Columns that
    a message has not are left out, and of properties what the sink leaves out.

    Args:
        topic: of all messages, whatever the rows say.
        app_id, version: name this write, so that it is done once (`txnAppId`, `txnVersion`).
        options: further options of the sink; with `shards=n` the frame gets n partitions at most.

    Raises:
        SparkFaceError: RS_BAD_OPTION: a version without a name, a topic that no message may have.
    """
    if topic is not None and (reason := wrong_topic(topic)):
        raise SparkFaceError("RS_BAD_OPTION", f"the topic of all messages: {reason}")
    if version is not None and not app_id:
        # Under a name of its own, each run would be a first one.
        raise bad_option("version", version, "needs app_id")
    from pyspark.sql import functions as f

    if topic is not None:
        frame = frame.withColumn("topic", f.lit(topic))
    for name, own in ALIASES.items():  # as the sink takes them
        if name in frame.columns and own in MESSAGE_COLUMNS and own not in frame.columns:
            frame = frame.withColumnRenamed(name, own)
    types = dict(frame.dtypes)
    unknown = [n for n, kind in types.items() if n not in KNOWN or TYPED.get(n, kind) != kind]
    if unknown:
        logger.warning("columns that no message has are left out: %s", ", ".join(unknown))
    types = {name: kind for name, kind in types.items() if TYPED.get(name, kind) == kind}
    frame = frame.select([name for name in APPENDED if name in types])
    if "properties" in frame.columns:
        frame = frame.withColumn("shard_key", f.col("properties")[SHARD_KEY])
    if (shards := str(options.get("shards", ""))).isdecimal():
        frame = frame.coalesce(max(1, int(shards)))
    place, name = store_path(path), app_id or f"batch-{uuid.uuid4()}"
    number = 0 if version is None else version
    before = max(commits_of(place, name), default=-1)
    writer = frame.write.format("rocketstore").mode("append").option("path", place)
    # Done once, whatever the source has become since: the count says whether it was.
    once = {"txnAppId": name, "txnVersion": number, "reusedVersion": "skip"}
    writer.options(**once).options(**options).save()
    return 0 if number <= before else commits_of(place, name).get(number, 0)


def commits_of(path: str, writer: str) -> dict[int, int]:
    """Messages by version of what a writer has committed to a store or a directory of shards."""
    with coded_errors("RS_READ_FAILED", path):
        return {**committed(path, writer), **committed_shards(path, writer)}


FILE: Final = re.compile("file:/", re.IGNORECASE)


def import_(
    session: SparkSession,
    source: str,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    app_id: str | None = None,
    version: int | None = None,
    create_store: bool = True,
    **options: Any,
) -> int:
    """Appends what Parquet files hold; gives the number of messages that were appended: none when
    this version was imported before. Where there is a column `physical_offset`, they are appended
    in its order, else in that of the files as Spark reads them. Topics of RocketMQ itself are left
    out unless `topic` gives them another; a warning says how many messages those have.

    Args:
        source: directory or file, also a URI that Spark reads.
        topic: of all messages; needed where there is no column `topic`.
        app_id, version: name this import, so that it is done once however often it is run.
        create_store: False: where there is no store, it is an error (RS_NO_STORE).
        options: further options of the sink.
    """
    if not create_store:
        options["createStore"] = False
    frame = parquet(session, source)
    if topic is None and "topic" in frame.columns:
        left_out = {row.topic: row["count"] for row in system_counts(frame)}
        warn_left_out(left_out, f"import the directory topic=… {HINTS['argument_topic']}")
        frame = plain_rows(frame)
    if "physical_offset" in frame.columns:
        # Messages of an inner batch share one.
        order = ("physical_offset", "queue_offset")
        frame = frame.orderBy(*[name for name in order if name in frame.columns])
    return append(frame, path, topic=topic, app_id=app_id, version=version, **options)


def parquet(session: SparkSession, source: str) -> DataFrame:
    """The rows of an export. Spark takes directories like `topic=007` for numbers: here they are
    text. It takes file URIs as they are: here they are decoded, as everywhere else."""
    from pyspark.sql.types import StringType, StructField, StructType

    if FILE.match(source):
        source = f"file://{local_path('source', source)}"
    found = session.read.parquet(source).schema
    fields = [
        StructField(field.name, StringType()) if field.name == "topic" else field for field in found
    ]
    return session.read.schema(StructType(fields)).parquet(source)


def compact(
    session: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    tombstones: bool = True,
    create_store: bool = True,
    app_id: str | None = None,
    version: int | None = None,
    **wanted: Unpack[Wanted],
) -> int:
    """Appends to `target`, of each topic and key, the last message in the log, in the order of the
    log; gives the number of those that were appended: none when this version was written before.
    Messages without a key are all kept. A message with several keys counts by all of them together.
    Topics that services use themselves are left out; a warning says how many messages those have.

    Args:
        target: another store: a log is only appended to.
        tombstones: an empty body deletes its key: it is left out, and with it all that came before.
        create_store: False: where there is no store at `target`, nothing is written.
        app_id, version: name this run, so that it is done once however often it is run.
        wanted: what `rocketstore.scan` chooses by: topics, topic_pattern, queues, tags, times.

    Raises:
        SparkFaceError: RS_BAD_OPTION, such a topic is named, the target is the store itself,
            or the source holds shards, which have no order, so that a key has no last message;
            RS_NO_STORE.
    """
    if os.path.realpath(store_path(path)) == os.path.realpath(store_path(target)):
        raise bad_option("target", os.fspath(target), "another store than the one that is read")
    refuse_shards(
        store_path(path), "there is no last message of a key among them; name one, which is a store"
    )
    frame = load(session, path, wanted)
    check_system_topics(path, wanted, routed=False)
    from pyspark.sql import functions as f

    # Messages of an inner batch share a physical offset.
    order = ("physical_offset", "queue_offset")
    rows = frame.select(*MESSAGE_COLUMNS, *order)
    keyed = rows.where(f.col("keys").isNotNull())
    # Tasks keep one row a key already before rows go from one to another.
    last = keyed.groupBy(f.col("topic").alias("_topic"), f.col("keys").alias("_keys")).agg(
        f.max_by(f.struct(*keyed.columns), f.struct(*order)).alias("row")
    )
    last = last.select("row.*")
    if tombstones:
        last = last.where(f.length("body") > 0)
    kept = rows.where(f.col("keys").isNull()).unionByName(last)
    rows = kept.orderBy(*order)
    return append(rows, target, app_id=app_id, version=version, createStore=create_store)


def replay(
    session: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to_topic: str | None = None,
    keys: str | Sequence[str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    decompress: bool = True,
    create_store: bool = True,
    app_id: str | None = None,
    version: int | None = None,
    **wanted: Unpack[Wanted],
) -> int:
    """Appends messages of a store to `target`, in the order of the log; gives the number of those
    that were appended: none when this version was replayed before. Bodies, tags, keys, properties,
    queue ids, flags and born times stay, store times and offsets are new. Topics that services use
    themselves, as that of delayed messages, are left out unless they are named; a warning says how
    many messages those have.

    Args:
        target: a store, also the same one under another topic; what is appended meanwhile is not
            replayed again.
        to_topic: of all copies; default: each keeps its own topic.
        keys: only messages with this key, or one of these.
        transform: makes another frame of the one that is read; it has to keep the column `body`.
        decompress: bodies as producers gave them; False: as they are stored, and copies say so,
            with no codec needed; `transform` is given the same, and leaves them, or sets `sys_flag`
            to what they are then.
        create_store: False: where there is no store at `target`, nothing is written.
        app_id, version: name this replay, so that it is done once however often it is run.
        wanted: what `rocketstore.scan` chooses by: topics, topic_pattern, queues, tags, times.

    Raises:
        SparkFaceError: RS_BAD_OPTION: such a topic is named, and nothing gives its messages
        another;
            `target` is the store itself, and neither `to_topic` nor `transform` says where
            copies go; RS_NO_STORE.
    """
    routed = to_topic is not None or transform is not None
    place = store_path(path)
    if not routed and not is_uri(place) and _same(place, store_path(target)):
        allowed = f"the store itself would hold each message twice; {HINTS['to_topic']}"
        raise bad_option("target", os.fspath(target), allowed)
    from pyspark.sql import functions as f

    frame = load(session, path, wanted, decompress=decompress)
    check_system_topics(path, wanted, routed=routed)
    if keys is not None:
        asked = f.array(*[f.lit(key) for key in ([keys] if isinstance(keys, str) else keys)])
        frame = frame.where(f.arrays_overlap(f.split("keys", " "), asked))
    if transform is not None:
        frame = transform(frame)
    return append(
        frame,
        target,
        topic=to_topic,
        app_id=app_id,
        version=version,
        createStore=create_store,
    )


def _same(one: str, other: str) -> bool:
    """Whether both are one directory that is there."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def check_system_topics(
    path: str | os.PathLike[str], wanted: Mapping[str, Any], *, routed: bool
) -> None:
    """Logs how many messages of system topics a copy of a store leaves out.

    Args:
        routed: messages get another topic.

    Raises:
        SparkFaceError: RS_BAD_OPTION: messages of system topics are asked for as such.
    """
    named = RecordFilter.of(**wanted).named
    for topic in filter(is_system_topic, sorted(named) if not routed else ()):
        raise SparkFaceError(
            "RS_BAD_OPTION",
            f"topics = {topic!r}: services of the target would act upon every copy there, as upon "
            f"a delay or a decision; {HINTS['replay_to_topic']}, or name other topics",
        )
    if not named and not wanted.get("system_topics"):
        remedy = f"{HINTS['name_topics']} and {HINTS['replay_to_topic']}"
        warn_left_out(system_topics(store_path(path), wanted), remedy)


def plain_rows(frame: DataFrame) -> DataFrame:
    """Rows of other topics. Rows without a topic stay: the sink refuses or reports them."""
    return frame.where(~system_rows())


def system_counts(frame: DataFrame) -> list[Any]:
    """Messages of system topics, counted: rows of topic and count."""
    rows: list[Any] = frame.where(system_rows()).groupBy("topic").count().collect()
    return rows


def system_rows() -> Any:
    from pyspark.sql import functions as f

    topic = f.col("topic")
    found = topic.isin(*SYSTEM_TOPICS)
    for prefix in SYSTEM_PREFIXES:
        found = found | topic.startswith(prefix)
    return f.coalesce(found, f.lit(False))


def warn_left_out(found: Mapping[str, int | None], remedy: str) -> None:
    """Logs which topics are left out. `remedy`: how to have them."""
    if found:
        texts = [
            topic if count is None else f"{topic} ({count} messages)"
            for topic, count in sorted(found.items())
        ]
        logger.warning(
            "topics of RocketMQ itself are left out: %s; %s to have them", ", ".join(texts), remedy
        )


def system_topics(path: str, wanted: Mapping[str, Any]) -> dict[str, int | None]:
    """Those of a store, of shards or of an archive that `wanted` chooses, and how many messages
    they have, whatever their tags and times; None: not known."""
    chosen = topics_of({**wanted, "system_topics": True})
    found: dict[str, int | None] = {}
    if is_uri(path):
        archive = scan_of(path, system_topics=True).archive
        segments = () if archive is None else archive.segments
        held = {topic for segment in segments for topic in segment.topics or ()}
        return {topic: None for topic in held if is_system_topic(topic) and chosen(topic)}
    for one in shard_paths(path) or [path]:
        with open_to_read(one) as store:
            for topic in store.topics(system=True):
                if is_system_topic(topic) and chosen(topic):
                    count = sum(
                        store.max_queue_offset(topic, queue) - store.min_queue_offset(topic, queue)
                        for queue in store.queues(topic)
                    )
                    found[topic] = (found.get(topic) or 0) + count
    return found
