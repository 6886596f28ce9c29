"""A SparkSession for one command, and Spark's errors in one line."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from rocketstore.cli import exit_codes
from rocketstore.cli.hints import in_commands
from rocketstore.cli.standard_streams import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

CODE = re.compile(r"\[RS_[A-Z_]+\][^\n]*")


#: Logger of jobs. Its warnings are shown without --verbose: they say what a job left out.
JOBS = logging.getLogger("rocketstore.spark.jobs")


class WarningHandler(logging.Handler):
    """Warnings of jobs on standard error, in words for the command line."""

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(in_commands(record.getMessage(), spark=True))
        click.echo(f"rocketstore: {text}", err=True)


@contextmanager
def warnings_shown() -> Iterator[None]:
    handler, before = WarningHandler(), (JOBS.level, JOBS.propagate)
    JOBS.setLevel(logging.WARNING)
    JOBS.propagate = False
    JOBS.addHandler(handler)
    try:
        yield
    finally:
        JOBS.removeHandler(handler)
        JOBS.setLevel(before[0])
        JOBS.propagate = before[1]


@contextmanager
def spark_session(master: str | None) -> Iterator[SparkSession]:
    """A session. Its errors become one line, without Spark's stack of Java, also where it cannot
    start."""
    from rocketstore.spark import session
    from rocketstore.spark.java import JavaNotFoundError

    show = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    try:
        running = session(master=master, config={"spark.log.level": "ERROR", **show})
    except (ImportError, JavaNotFoundError) as error:
        raise click.ClickException(exit_codes.in_one_line(error)) from error
    except spark_errors() as error:
        where = "" if master is None else f" with --master {master}"
        raise click.ClickException(f"Spark does not start{where}: {said(error)}") from error
    try:
        with warnings_shown():
            yield running
    except spark_errors() as error:
        raise click.ClickException(in_commands(said(error), spark=True)) from error
    finally:
        running.stop()


def spark_errors() -> tuple[type[Exception], ...]:
    """The kinds that Spark raises. Asked when there is an error, and pyspark was found."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException


def said(error: Exception) -> str:
    """The line of an error of Spark that says what is wrong: ours, or the one after Java's that
    names a call."""
    found = CODE.search(str(error))
    if found:
        return found[0]
    lines = str(error).strip().splitlines() or [type(error).__name__]
    called = len(lines) > 1 and lines[0].startswith("An error occurred while calling")
    return lines[called].removeprefix(": ")
