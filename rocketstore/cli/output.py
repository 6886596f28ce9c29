"""Where output goes: bytes of messages to standard output, progress to a terminal's standard
error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from rocketstore.cli.message_format import formatter

if TYPE_CHECKING:
    from rocketstore import Message

__all__ = [
    "bars",
    "bytes_progress",
    "console",
    "count_text",
    "percentile",
    "print_messages",
    "print_rows",
    "size_text",
    "steps",
    "table",
    "time_text",
]

DEFAULT_FORMAT = "%t/%p %o  %s"
#: Columns of output that is no terminal: more than any line has (names 255 bytes, paths 4096).
PLAIN_WIDTH = 10_000


class StandardConsole(Console):
    """A console that shows names as they are: `[bold]` and `:key:` may be parts of one. It raises
    when its reader has gone; the command decides what that means."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console() -> StandardConsole:
    """For tables and summaries, on standard output as it is now."""
    # Lines of a file have no width: nothing may be cut or wrapped there.
    return StandardConsole(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def table(*names: str, numbers: Iterable[str] = ()) -> Table:
    """Columns of names, then of numbers. Where a terminal is too narrow, a name continues in the
    next line: two names that begin alike must not look the same."""
    made = Table(box=None, pad_edge=False)
    for name in names:
        made.add_column(name, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def print_rows(
    out: Console, names: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """The same table without Rich, which takes 0.4 ms a row, where the lines of `out` are wide
    enough."""
    columns = list(zip((*names, *numbers), *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    if sum(widths) + 2 * (len(widths) - 1) > out.width:
        made = table(*names, numbers=numbers)
        for row in rows:
            made.add_row(*row)
        out.print(made)
        return
    padded = [
        [cell + fill if at < len(names) else fill + cell for cell, fill in _filled(column, width)]
        for at, (column, width) in enumerate(zip(columns, widths, strict=True))
    ]
    header, *lines = map("  ".join, zip(*padded, strict=True))
    out.out(header, style="table.header", highlight=False)
    if lines:
        out.out("\n".join(lines), highlight=False)


def _filled(column: Sequence[str], width: int) -> Iterator[tuple[str, str]]:
    """Each cell, and the blanks that fill it up to `width`."""
    return ((cell, " " * (width - cell_len(cell))) for cell in column)


def print_messages(messages: Iterable[Message], form: str | None) -> None:
    """One line a message; flushed at the end, so that a follower's reader sees them at once."""
    line = formatter(form or DEFAULT_FORMAT, terminal=sys.stdout.isatty())
    stream = sys.stdout.buffer
    for message in messages:
        stream.write(line(message))
    stream.flush()


@contextmanager
def bytes_progress() -> Iterator[Progress]:
    """A bar for bytes of a stream; invisible unless standard error is a terminal."""
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    ]
    with _progress(columns) as progress:
        yield progress


@contextmanager
def steps() -> Iterator[Progress]:
    """A bar for numbers of things; invisible unless standard error is a terminal."""
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    ]
    with _progress(columns) as progress:
        yield progress


def bars(progress: Progress) -> Callable[[str, int, int], None]:
    """The `progress` argument of a long call: a bar for each `what` of (what, done, total)."""
    tasks: dict[str, TaskID] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = progress.add_task(what, total=total)
        progress.update(tasks[what], completed=done, total=total)

    return show


def _progress(columns: list[ProgressColumn]) -> Progress:
    return Progress(
        *columns,
        console=StandardConsole(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def size_text(count: float) -> str:
    """Bytes in the largest binary unit that gives a number of at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def count_text(number: int, noun: str) -> str:
    """`1 message`, `1,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percentile(values: Sequence[int], part: float) -> int:
    """The value below or at which `part` of the values lie; 0 without values."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def time_text(duration_ns: float) -> str:
    """Nanoseconds in the unit that reads best."""
    for unit, size in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        if duration_ns < 1000 * size:
            return f"{duration_ns / size:.3g} {unit}"
    return f"{duration_ns / 1e9:.3g} s"
