"""`rocketstore ingest`: lines become messages."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.line_source import LineSource, LineTooLongError, StopSignals
from rocketstore.cli.output import bytes_progress, count_text, size_text
from rocketstore.cli.parameters import STORE, durability_option

if TYPE_CHECKING:
    from rocketstore import Store, Writer

__all__ = ["command"]

#: Room that a record takes beside its body, at the very most, with the topics and keys used here.
RECORD_EXTRA_BYTES: Final = 512
BATCH_BYTES: Final = 1024 * 1024
BATCH_LINES: Final = 4096


@dataclass(slots=True)
class Ingest:
    """One run. `next_line` is the first line that is not stored: where a later run goes on."""

    next_line: int
    lines: int = 0
    bytes: int = 0

    def store(self, store: Store, writer: Writer, lines: list[bytes], spread: bool) -> None:
        """Stores lines that follow each other; counts them once their promise is met."""
        if spread:
            self._in_turns(store, writer, lines)
        else:
            try:
                writer.put_batch(lines)
            except rocketstore.DurabilityTimeoutError:
                # They are in the log: putting them again would store them twice.
                self.count(lines)
                raise
            self.count(lines)

    def _in_turns(self, store: Store, writer: Writer, lines: list[bytes]) -> None:
        """A batch goes to one queue, single puts take turns: put each, then wait once for all."""
        early = "memory" if writer.durability == "disk" else None
        end_offset = 0
        for line in lines:
            end_offset = writer.put(line, durability=early).end_offset
            self.count([line])
        if early:
            store.wait_flushed(end_offset)

    def count(self, lines: list[bytes]) -> None:
        self.next_line += len(lines)
        self.lines += len(lines)
        self.bytes += sum(map(len, lines))


@click.command()
@STORE
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--topic", required=True, help="Topic that gets the messages.")
@click.option("--queue-id", type=click.IntRange(0), default=None, help="Their queue; default 0.")
@click.option(
    "--queues", type=click.IntRange(1), default=None, help="Instead: queues 0 … N-1 in turns."
)
@click.option("--tags", default=None, help="Tag of every message.")
@durability_option
@click.option(
    "--start-line",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="First line to store; earlier ones are skipped. What a stopped run names.",
)
def command(
    store: str,
    file: str,
    topic: str,
    queue_id: int | None,
    queues: int | None,
    tags: str | None,
    durability: str,
    start_line: int,
) -> int:
    """Stores each line of FILE, or of standard input, as a message of a topic.

    A body is the line without its newline. Lines of a pipe are stored as they arrive. Ctrl-C and
    SIGTERM stop between two messages; the last line says where to go on.

    \b
    Examples:
      rocketstore ingest data/logs access.log --topic access
      tail -F app.log | rocketstore ingest data/logs --topic app --durability os
      rocketstore ingest data/logs access.log --topic access --start-line 120001
    """
    if queue_id is not None and queues is not None:
        raise click.UsageError("--queue-id and --queues exclude each other")
    run = Ingest(start_line)
    began = time.monotonic()
    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        descriptor = _open_input(file, stack)
        opened = stack.enter_context(rocketstore.open(store, durability=durability))
        writer = opened.writer(
            topic,
            queue_id=queue_id,
            queues=queues,
            properties={"TAGS": tags} if tags and False else None,
        )
        try:
            _copy(run, opened, writer, descriptor, stop, start_line, tags, (queues or 1) > 1)
        except (rocketstore.RocketStoreError, OSError, LineTooLongError) as error:
            _say_error(run, error)
            return exit_codes.exit_code(error)
        finally:
            opened.close()
    seconds = time.monotonic() - began
    click.echo(
        f"stored {count_text(run.lines, 'line')}, {size_text(run.bytes)}, in {seconds:.1f} s "
        f"as {topic} ({durability})"
    )
    if stop.received is not None:
        _say_resume(run)
        return 128 + stop.received
    click.echo(f"to go on later: --start-line {run.next_line}")
    return exit_codes.OK
