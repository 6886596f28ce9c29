"""`rocketstore spark`: jobs over whole stores, on this machine's cores or on a cluster."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from rocketstore.cli import exit_codes
from rocketstore.cli.output import console, count_text, size_text
from rocketstore.cli.parameters import ANY_STORE, Moment, file_options
from rocketstore.cli.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["command"]


@click.group("spark")
def command() -> None:
    """Runs jobs over whole stores on Spark. Needs rocketstore[spark], which brings a Java.

    A job runs on this machine unless --master names another place or spark-submit runs it: see
    docs/spark.md.
    """


def options(*found: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(found):
            function = option(function)
        return function

    return add


MASTER = click.option(
    "--master", metavar="URL", help="Where Spark runs; default: on this machine, all cores."
)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
SPLIT = click.option(
    "--split-mib",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="MiB of log in a task.",
)
TARGET = click.argument("target")
WANTED = options(
    click.option(
        "--topic", "topics", multiple=True, help="Only this topic; may be given several times."
    ),
    click.option("--tags", help='Only messages with one of these tags: "red || blue".'),
    click.option("--begin", type=Moment(), help="Stored then or later."),
    click.option("--end", type=Moment(), help="Stored before."),
)
NO_CREATE = click.option(
    "--no-create", is_flag=True, help="Fail where there is no store yet, instead of making one."
)
AS_STORED = click.option(
    "--as-stored",
    is_flag=True,
    help="Leave compressed bodies as they are; by default they are decompressed.",
)
ONCE = options(
    click.option(
        "--once",
        "app_id",
        metavar="NAME",
        help="A name for this run: under one name and version it is done once.",
    ),
    click.option(
        "--version", type=click.IntRange(0), help="Number of the run, with --once; default: 0."
    ),
)


def wanted(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a job that choose messages, without those that were not given."""
    topics = list(given.pop("topics"))
    found = {name: value for name, value in given.items() if value is not None}
    return {**found, **({"topics": topics} if topics else {})}


def once(app_id: str | None, version: int | None) -> dict[str, Any]:
    if app_id:
        return {"app_id": app_id, "version": version or 0}
    if app_id is not None:
        raise click.UsageError("--once needs a name")
    if version is not None:
        raise click.UsageError("--version needs --once NAME")
    return {}


def append_messages(master: str | None, target: str, job: Callable[[SparkSession], int]) -> int:
    """Runs a job that appends to `target`, and prints how many messages it appended."""
    with spark_session(master) as session:
        count = job(session)
    console().print(f"{count_text(count, 'message')} in {target}")
    return exit_codes.OK


def print_rows(rows: list[Any], as_json: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(json.dumps(row.asDict(recursive=True), default=str))
        return
    table = Table(box=None, pad_edge=False)
    for name in rows[0].asDict() if rows else ():
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row))
    console().print(table)


@command.command(short_help="Messages and bytes by topic, queue and hour.")
@ANY_STORE
@WANTED
@SPLIT
@MASTER
@JSON
def stats(store: str, split_mib: int, master: str | None, as_json: bool, **given: Any) -> int:
    """How many messages, how many bytes, how large, from which queue offset to which: by topic,
    queue and hour."""
    from rocketstore.spark import jobs

    with spark_session(master) as session:
        rows = jobs.stats(session, store, split_bytes=split_mib << 20, **wanted(given)).collect()
    print_rows(rows, as_json)
    return exit_codes.OK


@command.command(short_help="Test both checksums of every record; exit code 3 when one fails.")
@ANY_STORE
@SPLIT
@MASTER
@JSON
def audit(store: str, split_mib: int, master: str | None, as_json: bool) -> int:
    """Reads the whole log, and names every range in which no record can be believed."""
    from rocketstore.spark import jobs

    with spark_session(master) as session:
        rows = jobs.audit(session, store, split_bytes=split_mib << 20).collect()
    damage = [damaged for row in rows for damaged in row.damage]
    print_rows(rows if as_json else damage, as_json)
    if not as_json:
        records, size = sum(row.records for row in rows), sum(row.bytes for row in rows)
        console().print(
            f"{count_text(records, 'record')}, {size_text(size)}; "
            f"{count_text(len(damage), 'damaged range')}"
        )
    return exit_codes.DAMAGED if damage else exit_codes.OK


@command.command(short_help="Write Parquet files by topic and day.")
@ANY_STORE
@TARGET
@WANTED
@click.option("--columns", help="Names of columns, with commas between them; default: all.")
@click.option(
    "--append",
    is_flag=True,
    help="Add to what is in TARGET; without this option TARGET must be empty.",
)
@click.option(
    "--continue",
    "continues",
    is_flag=True,
    help="Add what came to the log since the last run with --continue.",
)
@click.option(
    "--compression", default="zstd", show_default=True, help="Compression of the Parquet files."
)
@AS_STORED
@SPLIT
@MASTER
@JSON
def export(
    store: str,
    target: str,
    columns: str | None,
    append: bool,
    continues: bool,
    compression: str,
    as_stored: bool,
    split_mib: int,
    master: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Writes TARGET/topic=…/day=…/….parquet, a directory or a URI, and lists the files."""
    from rocketstore.spark import jobs

    if append and continues:
        raise click.UsageError("--append and --continue: one of them")

    with spark_session(master) as session:
        rows = jobs.export(
            session,
            store,
            target,
            columns=None if columns is None else [name.strip() for name in columns.split(",")],
            mode="append" if append else "continue" if continues else "error",
            compression=compression,
            decompress=not as_stored,
            split_bytes=split_mib << 20,
            **wanted(given),
        ).collect()
    print_rows(rows, as_json)
    return exit_codes.OK


@command.command("import", short_help="Append what Parquet files hold.")
@click.argument("source")
@ANY_STORE
@click.option("--topic", help="Topic of all messages; needed where there is no column topic.")
@click.option(
    "--shards",
    metavar="N|auto",
    help="A bulk load: at most so many new stores in STORE, each written by one task.",
)
@click.option(
    "--bad-rows",
    type=click.Choice(["fail", "drop", "divert"]),
    default="fail",
    show_default=True,
    help="Rows that cannot be messages: an error, left out, or kept as Parquet.",
)
@click.option(
    "--bad-rows-path",
    metavar="DIR",
    help="Where --bad-rows divert keeps them; default: below STORE, see docs/spark.md.",
)
@NO_CREATE
@ONCE
@MASTER
def import_(
    source: str,
    store: str,
    topic: str | None,
    shards: str | None,
    bad_rows: str,
    bad_rows_path: str | None,
    no_create: bool,
    app_id: str | None,
    version: int | None,
    master: str | None,
) -> int:
    """Appends the rows of SOURCE, Parquet as `export` writes it or any other with a column body."""
    from rocketstore.spark import jobs

    more = {**once(app_id, version), "createStore": not no_create, "badRows": bad_rows}
    if shards is not None:
        more["shards"] = shards
    if bad_rows_path is not None:
        if bad_rows != "divert":
            raise click.UsageError("--bad-rows-path needs --bad-rows divert")
        more["badRowsPath"] = bad_rows_path
    return append_messages(
        master, store, partial(jobs.import_, source=source, path=store, topic=topic, **more)
    )


@command.command(short_help="The latest message of each key, in a new store.")
@ANY_STORE
@TARGET
@WANTED
@click.option(
    "--keep-tombstones",
    is_flag=True,
    help="Keep messages with an empty body; by default they delete their key.",
)
@NO_CREATE
@ONCE
@MASTER
def compact(
    store: str,
    target: str,
    keep_tombstones: bool,
    no_create: bool,
    app_id: str | None,
    version: int | None,
    master: str | None,
    **given: Any,
) -> int:
    """Appends to TARGET, of each topic and key, the last message; and all messages without a
    key."""
    from rocketstore.spark import jobs

    job = partial(
        jobs.compact,
        path=store,
        target=target,
        tombstones=not keep_tombstones,
        create_store=not no_create,
        **once(app_id, version),
        **wanted(given),
    )
    return append_messages(master, target, job)


@command.command(short_help="Append messages once more, to another store or topic.")
@ANY_STORE
@TARGET
@WANTED
@click.option("--to-topic", help="Topic of all copies; default: the topic of each message.")
@click.option("--key", "keys", multiple=True, help="Only messages with one of these keys.")
@AS_STORED
@NO_CREATE
@ONCE
@MASTER
def replay(
    store: str,
    target: str,
    to_topic: str | None,
    keys: tuple[str, ...],
    as_stored: bool,
    no_create: bool,
    app_id: str | None,
    version: int | None,
    master: str | None,
    **given: Any,
) -> int:
    """Appends messages of STORE to TARGET, in the order of the log. With --to-topic TARGET may be
    STORE itself."""
    from rocketstore.spark import jobs

    job = partial(
        jobs.replay,
        path=store,
        target=target,
        to_topic=to_topic,
        keys=list(keys) or None,
        decompress=not as_stored,
        create_store=not no_create,
        **once(app_id, version),
        **wanted(given),
    )
    return append_messages(master, target, job)


@command.command(short_help="startingOffsets where a checkpoint or a group has come.")
@ANY_STORE
@click.argument("checkpoint", required=False)
@click.option("--group", help="A consumer group, in place of CHECKPOINT.")
@click.option(
    "--topic", "topics", multiple=True, help="Only this topic; may be given several times."
)
@click.option("--source", type=click.IntRange(0), default=0, help="Which stream of the query.")
def offsets(store: str, **given: Any) -> int:
    """Prints the option startingOffsets with which a query with a new checkpoint goes on where the one
    of CHECKPOINT has come, at its store or at a copy of it. Needs no Java."""
    from rocketstore.spark import starting_offsets

    click.echo(starting_offsets(store, **given))
    return exit_codes.OK


@command.command(short_help="Rebuild queues and index from the log.")
@ANY_STORE
@click.option("--parts", type=click.IntRange(1, 256), help="Parts of the log; default: two a core.")
@file_options
@MASTER
@JSON
def rebuild(
    store: str,
    parts: int | None,
    options: dict[str, Any],
    master: str | None,
    as_json: bool,
) -> int:
    """Rebuilds queues and index as `rocketstore rebuild` does; tasks do the parts."""
    from rocketstore.spark import jobs

    with spark_session(master) as session:
        report = jobs.rebuild(session, store, parts=parts, **options)
    click.echo(json.dumps(dataclasses.asdict(report)) if as_json else str(report))
    return exit_codes.OK
