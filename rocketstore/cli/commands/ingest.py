"""`rocketstore ingest`: lines become messages."""

from __future__ import annotations

import bisect
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import click
from rich.progress import Progress, TaskID

import rocketstore
from rocketstore import Store, Writer
from rocketstore.cli import exit_codes
from rocketstore.cli.lines import BadLines, LineSource, LineTooLongError, LongPart
from rocketstore.cli.output import bytes_progress, count_text, size_text
from rocketstore.cli.parameters import (
    ANY_STORE,
    QUEUE_ID,
    config_option,
    config_options,
    durability_option,
    topic_name,
)
from rocketstore.cli.signals import StopSignals
from rocketstore.cli.standard_streams import as_text

__all__ = ["command"]

#: Bytes of a record without its body, at most, with the longest topic and tag.
RECORD_EXTRA_BYTES: Final = 512
BATCH_BYTES: Final = 1024 * 1024
BATCH_LINES: Final = 4096
#: The library allows less, where hardly a line fits.
SEGMENT_BYTES_LEAST: Final = 4096
#: The library allows more, up to what the properties of a message may have.
TAG_BYTES_MAX: Final = 255
_NO_TAG: Final = re.compile(r"[\x01\x02\ud800-\udfff]|[|][|]|\A[\x00-\x20]|[\x00-\x20]\Z|\A\Z")


@dataclass(slots=True)
class Ingest:
    """One run. `next_line` is the first line that is not stored: where a later run goes on."""

    store: Store
    writer: Writer
    bad: BadLines
    tags: str | None
    #: Messages take turns among several queues.
    spread: bool
    next_line: int
    lines: int = 0
    size_bytes: int = 0
    #: Lines that were to be skipped and did not come.
    missing: int = 0

    def put(self, lines: list[bytes]) -> None:
        """Stores lines that follow each other; counts them when they are in the log."""
        if self.spread:
            return self._put_in_turns(lines)
        try:
            self.writer.put_batch(lines, tags=self.tags)
        except rocketstore.DurabilityTimeoutError:
            # They are in the log: storing them again would double them.
            self._count(lines)
            raise
        return self._count(lines)

    def put_or_refuse(self, lines: list[bytes]) -> None:
        """Stores them. A line that the size of the files keeps out comes in a batch of its own."""
        try:
            self.put(lines)
        except rocketstore.MessageTooLargeError as error:
            if len(lines) > 1:
                raise
            self.refuse(LongPart(lines[0], ends=True), str(error))

    def refuse(self, part: LongPart, why: str) -> None:
        """A part of a line that no message can hold."""
        self.bad.take(self.next_line, part, why)
        self.next_line += part.ends

    def _put_in_turns(self, lines: list[bytes]) -> None:
        """A batch goes to one queue, single puts take turns: put each, then wait once for all,
        those before one that failed included."""
        to_disk = self.writer.durability == "disk"
        level: rocketstore.Durability | None = "memory" if to_disk else None
        ends: list[int] = []
        try:
            for line in lines:
                ends.append(self.writer.put(line, tags=self.tags, durability=level).end_offset)
        finally:
            there = len(ends)
            try:
                if to_disk and ends:
                    self.store.wait_flushed(ends[-1])
            except rocketstore.StoreFailedError:
                there = bisect.bisect_right(ends, self.store.flushed_offset)
                raise
            finally:
                self._count(lines[:there])

    def _count(self, lines: list[bytes]) -> None:
        self.next_line += len(lines)
        self.lines += len(lines)
        self.size_bytes += sum(map(len, lines))


def _tag(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """What no message can have is refused before a store is made for it."""
    value = None if value is None else as_text(value)
    if value is None or not (_NO_TAG.search(value) or len(value.encode()) > TAG_BYTES_MAX):
        return value
    raise click.BadParameter(
        f"{value[:TAG_BYTES_MAX]!r}: one tag, 1 to {TAG_BYTES_MAX} bytes of UTF-8, without || in "
        "it, blanks around it and the characters 1 and 2"
    )


@click.command
@ANY_STORE
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--topic", required=True, callback=topic_name(127), help="Topic that gets the messages."
)
@click.option(
    "--queue-id", type=QUEUE_ID, default=None, help="Queue that gets the messages; default 0."
)
@click.option(
    "--queues",
    type=click.IntRange(1, 65536),
    default=None,
    help="Instead of --queue-id: queues 0 … N-1 in turns.",
)
@click.option("--tags", default=None, callback=_tag, help="Tag of every message.")
@durability_option
@config_option
@click.option(
    "--segment-bytes",
    type=click.IntRange(SEGMENT_BYTES_LEAST, 2**31 - 1),
    default=None,
    metavar="BYTES",
    help="Size of log files of a new store; default 1 GiB; a file takes what it holds.",
)
@click.option(
    "--start-line",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="First line to store; earlier ones are skipped. A stopped run names it.",
)
@click.option(
    "--bad-lines",
    type=click.Path(dir_okay=False),
    default="stop",
    show_default=True,
    metavar="stop|skip|FILE",
    help="What becomes of lines that are too long for a message: the run stops there, leaves them "
    "out, or appends them to FILE. Standard error names each.",
)
def command(
    store: str,
    file: str,
    topic: str,
    queue_id: int | None,
    queues: int | None,
    tags: str | None,
    durability: rocketstore.Durability,
    segment_bytes: int | None,
    start_line: int,
    bad_lines: str,
) -> int:
    """Stores each line of FILE, or of standard input, as a message of a topic.

    A body is the line without its newline. Lines of a pipe are stored as they arrive. Ctrl-C and
    SIGTERM stop between two messages; the last line of output says where to resume.

    \b
    Examples:
      rocketstore ingest data/logs access.log --topic access
      tail -F app.log | rocketstore ingest data/logs --topic app --durability os
      rocketstore ingest data/logs access.log --topic access --start-line 120001
      rocketstore ingest data/small notes.txt --topic notes --segment-bytes 1048576
      rocketstore ingest data/logs access.log --topic access --bad-lines too-long.txt
    """
    if queue_id is not None and queues is not None:
        raise click.UsageError("--queue-id and --queues exclude each other")
    began = time.monotonic()
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        descriptor = _open_input(file, stack)
        bad = BadLines(bad_lines, descriptor)
        stack.callback(bad.close)
        opened = stack.enter_context(_open_store(store, durability, segment_bytes))
        if opened.recovery.lost:
            click.echo(f"rocketstore: {opened.recovery}", err=True)
        new = opened.end_offset == 0
        writer = opened.writer(topic, queue_id=queue_id, queues=queues)
        run = Ingest(opened, writer, bad, tags, queues is not None and queues > 1, start_line)
        try:
            _copy(run, descriptor, stop)
            bad.close()
            # Closing may fail too, and then the last lines are not where they should be.
            opened.close()
        except (rocketstore.RocketStoreError, OSError, LineTooLongError) as error:
            text = exit_codes.in_one_line(error)
            if isinstance(error, rocketstore.DiskFullError) and new:
                text += "; --segment-bytes makes a new store with smaller files"
            click.echo(f"rocketstore: line {run.next_line}: {text}", err=True)
            _say_resume(run)
            return exit_codes.exit_code(error)
    if run.missing and stop.received is None:
        there = count_text(start_line - 1 - run.missing, "line")
        click.echo(f"rocketstore: --start-line {start_line}: the input has {there}", err=True)
        return exit_codes.FAILED
    seconds = time.monotonic() - began
    done = (
        f"stored {count_text(run.lines, 'line')} ({size_text(run.size_bytes)}) as {topic} in "
        f"{seconds:.1f} s, durability {durability}{bad.summary()}; the next line is {run.next_line}"
    )
    try:
        click.echo(done)
    except OSError:
        _say_resume(run)  # without it the caller would store the lines again
        raise
    if stop.received is None:
        return exit_codes.OK
    _say_resume(run)
    return 128 + stop.received


def _say_resume(run: Ingest) -> None:
    click.echo(f"resume with --start-line {run.next_line}", err=True)


def _open_store(path: str, durability: rocketstore.Durability, segment_bytes: int | None) -> Store:
    options = config_options()
    if segment_bytes is not None:
        options["commit_log_file_size_bytes"] = segment_bytes
    options["deliver_delayed"] = False  # it leaves the store to the program that owns it
    return rocketstore.open(path, durability=durability, **options)


def _open_input(file: str, stack: ExitStack) -> int:
    if file == "-":
        return sys.stdin.fileno()
    # A named pipe without a writer would be waited for here, where no signal ends it.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    stack.callback(os.close, descriptor)
    os.set_blocking(descriptor, True)
    return descriptor


def _copy(run: Ingest, descriptor: int, stop: StopSignals) -> None:
    """Reads and stores until the input ends or a signal came."""
    longest = run.store.config.max_message_size_bytes
    batch_bytes = min(BATCH_BYTES, run.store.config.commit_log_file_size_bytes // 4)
    run.missing = run.next_line - 1
    total = os.fstat(descriptor).st_size or None
    with bytes_progress() as progress:
        task = progress.add_task(run.writer.topic, total=total)
        for lines in LineSource(descriptor, stop, longest):
            if isinstance(lines, LongPart):
                if run.missing:
                    run.missing -= lines.ends
                else:
                    run.refuse(lines, f"this store takes at most {longest} of a line")
                progress.update(task, advance=len(lines.bytes) + lines.ends)
                continue
            skipped = min(run.missing, len(lines))
            run.missing -= skipped
            _advance(progress, task, lines[:skipped])
            for batch in _batches(lines[skipped:], batch_bytes):
                run.put_or_refuse(batch)
                _advance(progress, task, batch)
                if stop.received is not None:
                    return


def _advance(progress: Progress, task: TaskID, lines: list[bytes]) -> None:
    progress.update(task, advance=sum(map(len, lines)) + len(lines))


def _batches(lines: list[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    """The lines in groups that fit the buffer and the segment; one that is larger by itself."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        record = len(line) + RECORD_EXTRA_BYTES
        if batch and (size + record > most_bytes or len(batch) >= BATCH_LINES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += record
    if batch:
        yield batch
