"""`rocketstore bench`: how fast this machine and this disk store and read, compared with raw
writes of the same bytes. Longer and finer ones are in `bench/` of the source tree."""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.output import console, percentile, print_rows, steps, time_text
from rocketstore.cli.parameters import config_option, config_options

__all__ = ["command", "scratch_directory"]

SIZES: Final = (100, 1024)
DURABILITIES: Final = ("os", "disk")
#: Rounds of each side that count; a short one before them does not.
ROUNDS: Final = 3
FIRST_PART: Final = 0.1
#: Bytes of records that a round appends at most: less than a store lets pile up before puts wait.
ROUND_BYTES: Final = 64 << 20
PREWRITTEN_BYTES: Final = 16 << 20
#: Bytes of records that are stored to be read.
READ_BYTES: Final = 32 << 20
BATCH: Final = 1000
#: Bytes of records in a batch: fewer messages than BATCH where they are large.
BATCH_BYTES: Final = 4 << 20
IN_FLIGHT: Final = 64
SUBMIT: Final = f"submit, {IN_FLIGHT} at a time"
FLUSH_TIMEOUT_S: Final = 120.0
TOPIC: Final = "bench"
#: What is compared with, by whether the disk is waited for.
RAW: Final = ("os.write", "pwritev2(RWF_DSYNC)")
#: Line of the table of mounts: device, then the kind of file system.
MOUNT: Final = re.compile(r"^\d+ \d+ (\d+:\d+) .* - (\S+) ", re.MULTILINE)
#: File systems whose files are memory: a sync there brings nothing to a disk.
MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
COLUMNS: Final = ("messages/s", "MB/s", "× raw", "p50", "p99", "p99.9", "max")
#: Key of a result, then the part of the calls that took at most so long.
LATENCIES: Final = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999, "max_ns": 1.0}

NOTES: Final = """\
MB/s: of bodies. × raw: against the raw write of the same record bytes in the same turn, median of {rounds}.
p50 to max: of one message, from one look at the clock to the next.
disk: a call returns when its bytes are on the disk; raw is pwritev2(RWF_DSYNC) over blocks written before.
put: into new files, as a growing log meets them; bytes go to the disk outside the clock (os).
read: from the page cache, checksums compared; nothing here says how fast a disk reads.
"""


@dataclass(slots=True)
class Side:
    """One way to store or to read: a round is `most` calls of `call(argument)`, or as many as its
    time allows; `settle` comes after it, outside of the measured time.

    `messages`: of one call. `compared`: whether its rates are divided by those of the raw write.
    """

    what: str
    call: Callable[[Any], object]
    argument: object
    settle: Callable[[], object]
    messages: int
    most: int
    compared: bool = False
    rates: list[float] = field(default_factory=list)
    count: int = 0
    latencies_ns: list[int] = field(default_factory=list)

    def run(self, seconds: float, *, counts: bool) -> None:
        """One round, whose figures are kept if it `counts`."""
        clock, call, argument = time.perf_counter_ns, self.call, self.argument
        latencies = []
        began = before = clock()
        deadline = began + int(seconds * 1e9)
        for _ in range(self.most):
            call(argument)
            now = clock()
            latencies.append(now - before)
            before = now
            if now >= deadline:
                break
        self.settle()
        if counts:
            self.count += len(latencies) * self.messages
            self.rates.append(len(latencies) * self.messages * 1e9 / max(1, before - began))
            self.latencies_ns += latencies if self.messages == 1 else []


@contextmanager
def open_sides(
    root: Path, size: int, durability: rocketstore.Durability, *, reads: bool, **options: Any
) -> Iterator[list[Side]]:
    """The sides of one size and durability, in new files below `root`; with `reads` those that
    read, too. `options` are further ones of the store."""
    body, disk = os.urandom(size), durability == "disk"
    # Ctrl-C ends the wait for a close, not the close: the second one waits until no thread of the
    # store makes files below `root` any more.
    with (
        closing(rocketstore.open(root / "store", durability=durability, **options)) as store,
        store,
        open(root / "raw", "w+b", buffering=0) as raw,
    ):
        placed = store.writer(TOPIC, queue_id=0).put(body)
        store.wait_flushed(placed.end_offset, timeout_s=FLUSH_TIMEOUT_S)
        record = bytes(store.get(placed.physical_offset))
        if disk:
            os.write(raw.fileno(), bytes(PREWRITTEN_BYTES))
            os.fsync(raw.fileno())
        yield [
            *_writes(store, body, len(record)),
            _raw(raw.fileno(), record, disk=disk),
            *(_reads(store, body, len(record)) if reads else ()),
        ]


def _raw(file: int, record: bytes, *, disk: bool) -> Side:
    """What the same bytes cost without a store: appended by `os.write`, or written over prewritten
    blocks by one call that also syncs."""
    place = 0

    def write_through(data: bytes) -> None:
        nonlocal place
        place = place if place + len(data) <= PREWRITTEN_BYTES else 0
        place += os.pwritev(file, [data], place, os.RWF_DSYNC)

    def settle() -> None:
        """The next round meets fresh pages again, as a log does."""
        os.fdatasync(file)
        if not disk:
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)

    # A partial, not a function of ours: that would cost half a put by itself.
    call = write_through if disk else functools.partial(os.write, file)
    return Side(RAW[disk], call, record, settle, 1, ROUND_BYTES // len(record))


def _writes(store: rocketstore.Store, body: bytes, record_bytes: int) -> Iterator[Side]:
    each, most = _each(record_bytes), ROUND_BYTES // record_bytes
    one, many, several = (store.writer(TOPIC, queue_id=queue_id) for queue_id in range(3))

    def submit(body: bytes) -> None:
        for ticket in [several.submit(body) for _ in range(IN_FLIGHT)]:
            ticket.result()

    def settle() -> None:
        store.wait_flushed(store.end_offset, timeout_s=FLUSH_TIMEOUT_S)

    yield Side("put", one.put, body, settle, 1, most, compared=True)
    flights = most // IN_FLIGHT + 1
    yield Side(SUBMIT, submit, body, settle, IN_FLIGHT, flights, compared=True)
    yield Side(f"put_batch of {each}", many.put_batch, [body] * each, settle, each, most // each)


def _each(record_bytes: int) -> int:
    """Messages of a batch."""
    return max(1, min(BATCH, BATCH_BYTES // record_bytes))


def _reads(store: rocketstore.Store, body: bytes, record_bytes: int) -> Iterator[Side]:
    """Of messages that were stored right before, so from the page cache; a call reads them all."""
    each = _each(record_bytes)
    begin, batches = store.end_offset, max(1, READ_BYTES // (record_bytes * each))
    for _ in range(batches):
        store.writer(TOPIC, queue_id=4).put_batch([body] * each)
    end = store.end_offset
    store.wait_flushed(end, timeout_s=FLUSH_TIMEOUT_S)
    store.max_queue_offset(TOPIC, 4)  # dispatched

    def bodies(_: object) -> None:
        with store.consumer(TOPIC, queue_id=4) as consumer:
            for message in consumer:
                message.body  # noqa: B018

    def scanned(_: object) -> None:
        for _ in rocketstore.scan(
            store, columns=["body"], begin_offset=begin, end_offset=end, aligned=True
        ):
            pass

    for what, call in (("read with .body", bodies), ("scan, column body", scanned)):
        yield Side(what, call, None, lambda: None, batches * each, 1 << 30)


@click.command
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(0, 1 << 20),
    multiple=True,
    default=SIZES,
    show_default=True,
    help="Bytes of a body; may be given several times.",
)
@click.option(
    "--durability",
    "durabilities",
    type=click.Choice(["memory", "os", "disk"]),
    multiple=True,
    default=DURABILITIES,
    show_default=True,
    help="What a stored message survives; may be given several times.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 3600),
    default=60.0,
    show_default=True,
    help="Duration of the whole, about.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=Path(),
    help="Where to make the stores; default: the current directory.",
)
@config_option
@click.option(
    "--json",
    "target",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write every round and every figure to FILE as well.",
)
def command(
    sizes: tuple[int, ...],
    durabilities: tuple[rocketstore.Durability, ...],
    seconds: float,
    directory: Path,
    target: Path | None,
) -> int:
    """Measures put, submit, put_batch, reading and scanning from one thread.

    Raw writes of the same bytes are measured for comparison. The stores need up to 4 GiB in the
    directory, whose disk is what is measured. They are removed at the end, after Ctrl-C as well.

    \b
    Examples:
      rocketstore bench --directory /data
      rocketstore bench --directory /data --durability disk --size 4096 --seconds 20
      rocketstore bench --json before.json
    """
    if math.isnan(seconds):  # nothing is smaller or larger, so that no range refuses it
        raise click.BadParameter("nan is no number of seconds.", param_hint="--seconds")
    if target is not None and not os.access(target.absolute().parent, os.W_OK):
        raise click.BadParameter(f"{target.parent} cannot be written to", param_hint="--json")
    kind = file_system_of(directory)
    if kind in MEMORY_FILE_SYSTEMS:
        click.echo(
            f"rocketstore: {directory.absolute()} is on {kind}, whose files are memory: "
            "durability disk means nothing there; name a directory on a disk with --directory",
            err=True,
        )
    facts = {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "file_system": kind,
        "load": os.getloadavg()[0],
        "rocketstore": rocketstore.__version__,
    }
    sizes, durabilities = tuple(dict.fromkeys(sizes)), tuple(dict.fromkeys(durabilities))
    rows = _measure(sizes, durabilities, seconds, directory)
    try:  # whichever of the two fails: a minute was spent on the other as well
        if target is not None:
            text = json.dumps({"machine": facts, "results": rows}, indent=1)
            target.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        error.filename = str(target)  # a write does not say it
        raise
    finally:
        _show(rows, facts)
    return exit_codes.OK


def file_system_of(directory: Path) -> str:
    """Kind of the file system ("ext4"); "" where the table of mounts has no such device."""
    device = os.stat(directory).st_dev
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # there is no /proc
        return ""
    kinds: dict[str, str] = dict(MOUNT.findall(mounts))
    return kinds.get(f"{os.major(device)}:{os.minor(device)}", "")


@contextmanager
def scratch_directory(prefix: str, parent: Path) -> Iterator[Path]:
    """A new directory, which is removed at the end. A second Ctrl-C during the removal, which takes
    its time with some GiB, does not leave a part."""
    path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield Path(path)
    finally:
        try:
            shutil.rmtree(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _measure(
    sizes: Sequence[int],
    durabilities: Sequence[rocketstore.Durability],
    seconds: float,
    directory: Path,
) -> list[dict[str, Any]]:
    """Rows of all sides; those of one size and durability take turns. Reads come once for each
    size."""
    rounds = len(sizes) * (4 * len(durabilities) + 2) * (ROUNDS + 1)
    share = seconds / rounds
    rows: list[dict[str, Any]] = []
    # The stores are new: none has its log elsewhere.
    options = config_options("commit_log_dir", "read_only_commit_log_dirs")
    with steps() as progress:
        task = progress.add_task("", total=rounds)
        for durability in durabilities:
            for size in sizes:
                progress.update(task, description=f"{size} B, {durability}")
                reads = durability == durabilities[0]
                with (
                    scratch_directory("rocketstore-bench-", directory) as path,
                    open_sides(path, size, durability, reads=reads, **options) as sides,
                ):
                    for number in range(ROUNDS + 1):
                        for side in sides:
                            side.run(share * (1 if number else FIRST_PART), counts=number > 0)
                            progress.advance(task)
                    rows += [_row(side, sides, size, durability) for side in sides]
    return rows


def _row(side: Side, sides: Sequence[Side], size: int, durability: str) -> dict[str, Any]:
    """The figures of one side, as they are printed and saved."""
    rate = statistics.median(side.rates)
    row: dict[str, Any] = {
        "what": side.what,
        "size": size,
        "durability": durability,
        "messages": side.count,
        "messages_per_s": rate,
        "mb_per_s": rate * size / 1e6,
        "rates": side.rates,
    }
    raw = next(one for one in sides if one.what in RAW)
    if side.compared:
        row["ratios"] = [mine / other for mine, other in zip(side.rates, raw.rates, strict=True)]
        row["ratio"] = statistics.median(row["ratios"])
    for name, part in LATENCIES.items() if side.latencies_ns else ():
        row[name] = percentile(side.latencies_ns, part)
    return row


def _show(rows: Sequence[dict[str, Any]], facts: dict[str, Any]) -> None:
    """One table for each size and durability."""
    output = console()
    for key in dict.fromkeys((row["durability"], row["size"]) for row in rows):
        output.print("{1} B, durability {0}".format(*key), style="bold")
        lines = [
            [
                row["what"],
                f"{row['messages_per_s']:,.0f}",
                f"{row['mb_per_s']:,.1f}",
                f"{row['ratio']:.2f}" if "ratio" in row else "",
                *[time_text(row[name]) if name in row else "" for name in LATENCIES],
            ]
            for row in rows
            if (row["durability"], row["size"]) == key
        ]
        print_rows(output, [""], COLUMNS, lines)
        output.print()
    output.print(NOTES.format(rounds=ROUNDS), end="")
    files = facts["file_system"] or "unknown files"
    output.print(
        f"{facts['cpus']} CPUs, Linux {facts['kernel']}, {files}, "
        f"load {facts['load']:.1f} at the beginning, rocketstore {facts['rocketstore']}"
    )
