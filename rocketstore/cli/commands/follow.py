"""`rocketstore follow`: keeps a copy of the store of a master."""

from __future__ import annotations

import json
import re
import select
import time
from pathlib import Path
from typing import Any, Final, Literal

import click

import rocketstore
from rocketstore import Store
from rocketstore.cli import exit_codes
from rocketstore.cli.output import size_text
from rocketstore.cli.parameters import file_options
from rocketstore.cli.signals import StopSignals
from rocketstore.cli.standard_streams import check_reader, printable
from rocketstore.errors import ReplicationError
from rocketstore.replication import Replica, ReplicationStatus

__all__ = ["command"]

#: Between two looks, and two lines, seconds.
LOOK_S: Final = 0.1
LINE_S: Final = 1.0
#: A master that wants this copy cut again and again does not know its own history.
OPENS_MOST: Final = 5

Protocol = Literal["rocketmq", "rocketstore"]


def _begin(ctx: click.Context, param: click.Parameter, value: str) -> str | int:
    if re.fullmatch("[0-9]{1,18}", value):
        return int(value)
    if value not in ("oldest", "last-file"):
        raise click.BadParameter(f"{value!r}: oldest, last-file or a physical offset")
    return value.replace("-", " ")


@click.command
@click.argument("master", metavar="HOST:PORT")
@click.argument("store", metavar="STORE", type=click.Path(file_okay=False, path_type=str))
@click.option(
    "--protocol",
    type=click.Choice(["rocketstore", "rocketmq"]),
    default="rocketstore",
    show_default=True,
    help="What the master speaks; rocketmq: the HA port of a broker (haListenPort).",
)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with the key of the master; newlines at its end do not count.",
)
@click.option(
    "--begin",
    default="oldest",
    metavar="WHERE",
    callback=_begin,
    help="Where an empty copy begins: oldest, last-file, or the offset of a broker's file.",
)
@click.option(
    "--segment-bytes",
    type=click.IntRange(4096, 2**31 - 1),
    help="Size of the master's log files, for a new copy; default 1 GiB.",
)
@click.option(
    "--until-caught-up", is_flag=True, help="End once the copy has all that the master has."
)
@click.option("--json", "as_json", is_flag=True, help="Each line as one JSON object.")
@file_options
def command(
    master: str,
    store: str,
    protocol: Protocol,
    key_file: Path | None,
    begin: Any,
    segment_bytes: int | None,
    until_caught_up: bool,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    """Keeps STORE a copy of the store whose master listens at HOST:PORT, until Ctrl-C.

    Shows once a second how far the copy is, how far behind, and how fast, when that changed. A
    connection that breaks is made again. A copy that has what its master has not is cut there, and
    what is cut goes to rocketstore/quarantine. Ends with 3 where the two have different bytes or
    histories, and where the master has removed what the copy needs. Other processes may read STORE
    meanwhile.

    \b
    Examples:
      rocketstore follow store-1:10912 data/copy --key-file key
      rocketstore follow broker-1:10912 data/copy --protocol rocketmq --begin last-file
      rocketstore follow localhost:10912 data/copy --until-caught-up --json
    """
    replica = _settings(master, protocol, key_file, begin)
    if segment_bytes is not None:
        options["commit_log_file_size_bytes"] = segment_bytes
    lines, error = _Lines(as_json), None
    with StopSignals() as stop:
        for _ in range(OPENS_MOST):
            with rocketstore.open(store, replication=replica, **options) as copy:
                error = _follow(copy, stop, lines, until_caught_up=until_caught_up)
                if not copy.replication.must_open_again:
                    break
    if stop.received is not None:
        return 128 + stop.received
    if error is None:
        return exit_codes.OK
    click.echo(f"rocketstore: {exit_codes.in_one_line(error)}", err=True)
    # What another attempt does not change is in the stores.
    return exit_codes.DAMAGED if isinstance(error, ReplicationError) else exit_codes.FAILED


def _settings(master: str, protocol: Protocol, key_file: Path | None, begin: Any) -> Replica:
    try:
        key = None if key_file is None else key_file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        said = f"{str(key_file)!r}: {error.strerror}"
        raise click.BadParameter(said, param_hint="--key-file") from error
    try:
        return Replica(master=master, protocol=protocol, key=key, begin=begin)
    except rocketstore.ConfigError as error:
        hint = {"master": "HOST:PORT", "key": "--key-file"}.get(error.field, f"--{error.field}")
        said = f"{error.value!r}: {error.allowed}"
        raise click.BadParameter(said, param_hint=hint) from error


def _follow(
    copy: Store, stop: StopSignals, lines: _Lines, *, until_caught_up: bool
) -> BaseException | None:
    """Returns what ended it; None: a signal, or the copy has all that its master has."""
    while True:
        check_reader()
        status = copy.replication
        lines.show(copy, status)
        if status.error is not None:
            return status.error
        if until_caught_up and status.caught_up:
            lines.show(copy, status, last=True)
            return None
        if select.select([stop.descriptor], [], [], LOOK_S)[0]:
            lines.show(copy, status, last=True)
            return None


class _Lines:
    """What is shown while a copy grows: a line a second at most, and none that says the same."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._said = ""
        self._at = -LINE_S

    def show(self, copy: Store, status: ReplicationStatus, *, last: bool = False) -> None:
        """`last`: the line must not be missing."""
        now = time.monotonic()
        if now - self._at < LINE_S and not last:
            return
        line = (_json_line if self._as_json else _text_line)(copy, status)
        if line != self._said:
            click.echo(printable(line))
            self._said = line
        self._at = now


def _json_line(copy: Store, status: ReplicationStatus) -> str:
    master = next(iter(status.peers), None)
    found = {
        "connected": master is not None,
        "begin": copy.begin_offset,
        "end": copy.end_offset,
        "synced": copy.flushed_offset,
        "lag_bytes": None if master is None else master.lag_bytes,
        "lag_s": None if master is None else round(master.lag_s, 3),
        "bytes_per_s": None if master is None else master.bytes_per_s,
        "caught_up": status.caught_up,
        "term": status.term,
        "connections": status.connections,
        "last_error": None if status.last_error is None else str(status.last_error),
    }
    return json.dumps(found)


def _text_line(copy: Store, status: ReplicationStatus) -> str:
    master = next(iter(status.peers), None)
    there = f"{copy.flushed_offset:,}"
    if master is None:
        why = "" if status.last_error is None else f": {exit_codes.in_one_line(status.last_error)}"
        return f"{there}  not connected{why}"
    if status.caught_up:
        return f"{there}  caught up"
    behind = f"{size_text(master.lag_bytes)} and {master.lag_s:.1f} s behind"
    return f"{there}  {behind}, {size_text(master.bytes_per_s)}/s"
