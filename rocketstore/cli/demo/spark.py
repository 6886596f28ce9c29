"""`rocketstore spark demo`: the standard library's lines through Spark into a store, and out
again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from rocketstore.cli import exit_codes
from rocketstore.cli.demo.directory import make_room, mark
from rocketstore.cli.demo.sources import find_sources
from rocketstore.cli.output import console, count_text, size_text
from rocketstore.cli.spark_session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["demo"]

QUEUES: Final = 4
#: Cost of a small file to Spark, bytes. Spark's own 4 MiB would make a task of every few files.
FILE_COST: Final = str(64 << 10)
SHOWN: Final = 5

#: topic → (messages, sum of hashes of the bodies): equal for equal messages in any order.
Content = dict[str, tuple[int, int]]


@dataclass
class Step:
    """One line of the result; `wrong`: topics whose messages are not those of the files."""

    name: str
    messages: int
    seconds: float
    wrong: int


@click.command(short_help="Lines into a store, aggregated, streamed, exported, audited.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-store-spark"),
    show_default=True,
    help="Where the demo makes its store; an earlier demo there is removed first.",
)
@click.option("--files", type=click.IntRange(1), default=None, help="At most so many source files.")
@click.option("--master", metavar="URL", help="Where Spark runs; default: here, all cores.")
def demo(directory: Path, files: int | None, master: str | None) -> int:
    """Shows what a store is to Spark, and compares every message with the files it came from.

    Writes each source line of the Python library through the sink, counts them by SQL and by job,
    copies them as a stream, exports them as Parquet, and audits both stores. Exit code 1 if
    anything differs.
    """
    make_room(directory)
    directory.mkdir(parents=True, exist_ok=True)
    mark(directory)
    began = time.monotonic()
    with spark_session(master) as session:
        java = session.sparkContext._jvm.System.getProperty("java.version")
        console().print(
            f"Spark {session.version}, Java {java}, started in {time.monotonic() - began:.1f} s\n"
        )
        steps = run(session, directory, files)
    table = Table("step", "messages", "seconds", "messages/s", "topics wrong", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for step in steps:
        rate = f"{step.messages / step.seconds:,.0f}"
        table.add_row(step.name, f"{step.messages:,}", f"{step.seconds:.1f}", rate, str(step.wrong))
    console().print(table)
    wrong = sum(step.wrong for step in steps)
    console().print(
        f"\n{count_text(steps[0].messages, 'line')} written, "
        f"{count_text(wrong, 'topic')} wrong; all is in {directory}"
    )
    return exit_codes.FAILED if wrong else exit_codes.OK


def run(session: SparkSession, directory: Path, files: int | None) -> list[Step]:
    from rocketstore.spark import jobs

    store, copy, parquet = (str(directory / name) for name in ("store", "copy", "parquet"))
    lines = source_lines(session, files)
    expected = content(lines)
    count = sum(messages for messages, _ in expected.values())
    steps: list[Step] = []

    def step(name: str, work: Callable[[], Any], found: Callable[[Any], Content]) -> None:
        began = time.monotonic()
        result = work()
        seconds = time.monotonic() - began
        there = found(result)
        wrong = sum(there.get(topic) != expected.get(topic) for topic in {*there, *expected})
        steps.append(Step(name, count, seconds, wrong))

    def counted(rows: list[Any]) -> Content:
        """Counts alone; the hashes are those that were expected."""
        sums: dict[str, int] = {}
        for row in rows:
            sums[row.topic] = sums.get(row.topic, 0) + row.messages
        return {topic: (n, expected.get(topic, (0, 0))[1]) for topic, n in sums.items()}

    step(
        "write through the sink",
        lambda: save(lines, store),
        lambda _: content(read(session, store)),
    )
    step("count by SQL", lambda: by_topic(session, store), counted)
    show(session, store)
    step("job: stats", lambda: jobs.stats(session, store).collect(), counted)
    step("copy as a stream", lambda: stream(session, store, copy, directory / "checkpoint"),
         lambda _: content(read(session, copy)))  # fmt: skip
    step("job: export to Parquet", lambda: jobs.export(session, store, parquet).collect(),
         lambda _: content(jobs.parquet(session, parquet)))  # fmt: skip
    step("job: audit", lambda: jobs.audit(session, copy).collect(), audited(expected))
    return steps


def audited(expected: Content) -> Callable[[list[Any]], Content]:
    def found(rows: list[Any]) -> Content:
        sound = not any(row.damage for row in rows)
        records = sum(row.records for row in rows)
        return expected if sound and records == sum(n for n, _ in expected.values()) else {}

    return found


def source_lines(session: SparkSession, files: int | None) -> DataFrame:
    """Lines of the Python library: body, topic and key by file."""
    from pyspark.sql import functions as f

    sources = find_sources(limit=files)
    session.conf.set("spark.sql.files.openCostInBytes", FILE_COST)
    names = session.createDataFrame(
        [
            (source.path.as_uri().replace("file:///", "file:/"), source.topic, source.key)
            for source in sources
        ],
        "file string, topic string, keys string",
    )
    text = session.read.text([str(source.path) for source in sources])
    text = text.select(
        f.col("value").cast("binary").alias("body"),
        f.regexp_replace(f.input_file_name(), "^file:/+", "file:/").alias("file"),
    )
    rows = text.join(f.broadcast(names), "file")
    queue = f.pmod(f.hash("keys"), f.lit(QUEUES)).alias("queue_id")
    return rows.select("body", "topic", "keys", queue)


def content(frame: DataFrame) -> Content:
    from pyspark.sql import functions as f

    hashes = f.sum(f.xxhash64("body").cast("decimal(38,0)"))
    rows = (
        frame.groupBy("topic").agg(f.count(f.lit(1)).alias("n"), hashes.alias("hashes")).collect()
    )
    return {row.topic: (row.n, int(row.hashes)) for row in rows}


def read(session: SparkSession, store: str, columns: str = "topic,body") -> DataFrame:
    return session.read.format("rocketstore").options(path=store, columns=columns).load()


def save(lines: DataFrame, store: str) -> None:
    lines.write.format("rocketstore").mode("append").option("path", store).save()


def by_topic(session: SparkSession, store: str) -> list[Any]:
    read(session, store, "topic").createOrReplaceTempView("lines")
    query = "select topic, count(*) as messages from lines group by topic"
    rows: list[Any] = session.sql(query).collect()
    return rows


def show(session: SparkSession, store: str) -> None:
    read(session, store).createOrReplaceTempView("lines")
    query = (
        "select topic, count(*) as messages, sum(length(body)) as bytes, "
        "round(avg(length(body)), 1) as mean from lines group by topic order by messages desc "
        f"limit {SHOWN}"
    )
    table = Table("topic", "messages", "bytes", "mean length", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in session.sql(query).collect():
        table.add_row(row.topic, f"{row.messages:,}", size_text(row.bytes), f"{row['mean']:.1f}")
    console().print(f"{query}\n")
    console().print(table, "\n")


def stream(session: SparkSession, store: str, copy: str, checkpoint: Path) -> None:
    """All that is there, in micro-batches, exactly once."""
    source = session.readStream.format("rocketstore").options(
        path=store, startingOffsets="earliest", maxBytesPerTrigger="64m"
    )
    query = (
        source.load()
        .select("body", "topic", "keys", "queue_id")
        .writeStream.format("rocketstore")
        .options(path=copy, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
