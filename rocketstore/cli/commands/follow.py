"""`rocketstore follow`: keeps a copy of the store of a master."""

from __future__ import annotations

import json
import os
import re
import select
import time
from pathlib import Path
from typing import Any, Final, Literal

import click

import rocketstore
from rocketstore import RecoveryReport, Store
from rocketstore.cli import exit_codes
from rocketstore.cli.output import size_text
from rocketstore.cli.parameters import file_options
from rocketstore.cli.signals import StopSignals
from rocketstore.cli.standard_streams import check_reader, printable
from rocketstore.errors import ReplicationError
from rocketstore.replication import BrokerFiles, Replica, ReplicationStatus
from rocketstore.values.plural import counted

__all__ = ["command"]

#: Between two looks, and two lines, seconds.
LOOK_S: Final = 0.1
LINE_S: Final = 1.0
#: The command ends by --until-caught-up when the master has served no connection for so long,
#: seconds.
CONNECT_S: Final = 60.0
#: A master that wants this copy cut again and again does not know its own history.
OPENS_MOST: Final = 5

Protocol = Literal["rocketmq", "rocketstore"]
Compression = Literal["zlib", "zstd"]


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
    "--compress",
    "compression",
    type=click.Choice(["zlib", "zstd"]),
    help="Ask the master to compress the log on its way; zstd needs zstandard at both ends.",
)
@click.option(
    "--broker",
    metavar="HOST:PORT",
    help="The broker's own port (listenPort): its topics and offsets are kept in STORE, too.",
)
@click.option(
    "--segment-bytes",
    type=click.IntRange(4096, 2**31 - 1),
    help="Size of the master's log files, for a new copy; default 1 GiB.",
)
@click.option(
    "--until-caught-up", is_flag=True, help="End once the copy has all that the master has."
)
@click.option(
    "--connect-timeout",
    "connect_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End when the master has served no connection for so long. Default: 60 with "
    "--until-caught-up, else never.",
)
@click.option("--json", "as_json", is_flag=True, help="Each line as one JSON object.")
@file_options
def command(
    master: str,
    store: str,
    protocol: Protocol,
    key_file: Path | None,
    begin: Any,
    compression: Compression | None,
    broker: str | None,
    segment_bytes: int | None,
    until_caught_up: bool,
    connect_s: float | None,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    """Keeps STORE a copy of the store whose master listens at HOST:PORT, until Ctrl-C.

    Shows once a second how far the copy is, its lag, and its rate, when that changed. A
    connection that breaks is made again. The last line after Ctrl-C says how far the copy is. What
    a copy has and its master has not is cut there, goes to rocketstore/quarantine, and has a line
    of its own. Ends with 3 where the two have different bytes or histories, and where the master
    has removed what the copy needs. Other processes may read STORE meanwhile.

    \b
    Examples:
      rocketstore follow store-1:10912 data/copy --key-file key
      rocketstore follow broker-1:10912 data/copy --protocol rocketmq --begin last-file
      rocketstore follow broker-1:10912 data/copy --protocol rocketmq --broker broker-1:10911
      rocketstore follow localhost:10912 data/copy --until-caught-up --json
    """
    given = {"begin": begin, "compression": compression, "broker": broker}
    replica = _settings(master, protocol, key_file, given)
    if segment_bytes is not None:
        options["commit_log_file_size_bytes"] = segment_bytes
    if connect_s is None and until_caught_up:
        connect_s = CONNECT_S
    lines, patience, error = _Lines(as_json), _Patience(master, connect_s), None
    with StopSignals() as stop:
        for _ in range(OPENS_MOST):
            with rocketstore.open(store, replication=replica, **options) as copy:
                lines.show_cut(copy.recovery)
                error = _follow(copy, stop, lines, patience, until_caught_up=until_caught_up)
                if not copy.replication.must_open_again:
                    break
    if stop.received is not None:
        return 128 + stop.received
    if error is None:
        return exit_codes.OK
    said = exit_codes.in_one_line(error)
    if lines.ends_with(said) and os.path.sameopenfile(1, 2):
        said = "the copy does not go on: the last line says why"
    click.echo(f"rocketstore: {said}", err=True)
    # What another attempt does not change is in the stores.
    return exit_codes.DAMAGED if isinstance(error, ReplicationError) else exit_codes.FAILED


def _settings(
    master: str, protocol: Protocol, key_file: Path | None, given: dict[str, Any]
) -> Replica:
    try:
        key = None if key_file is None else key_file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        said = f"{str(key_file)!r}: {error.strerror}"
        raise click.BadParameter(said, param_hint="--key-file") from error
    try:
        return Replica(master=master, protocol=protocol, key=key, **given)
    except rocketstore.ConfigError as error:
        hints = {"master": "HOST:PORT", "key": "--key-file", "compression": "--compress"}
        hint = hints.get(error.field, f"--{error.field}")
        allowed = error.allowed.replace("'last file'", "'last-file'")
        said = f"{error.value!r}: {allowed.replace('protocol ', '--protocol ')}"
        raise click.BadParameter(said, param_hint=hint) from error


def _follow(
    copy: Store, stop: StopSignals, lines: _Lines, patience: _Patience, *, until_caught_up: bool
) -> BaseException | None:
    """Returns what ended it; None: a signal, or the copy has all that its master has."""
    while True:
        check_reader()
        status = copy.replication
        if status.error is not None:  # its text is the last line of the command
            return status.error
        lines.show(copy, status)
        if until_caught_up and status.caught_up:
            lines.show(copy, status, last=True)
            return None
        if select.select([stop.descriptor], [], [], LOOK_S)[0]:
            lines.show_stopped(copy, copy.replication)
            return None
        error = patience.ended_by(status)
        if error is not None:
            return error


class _Patience:
    """For how long a master may serve no connection; `limit_s` None: for ever."""

    def __init__(self, master: str, limit_s: float | None) -> None:
        self._master = master
        self._limit_s = limit_s
        self._bytes = 0
        self._since = time.monotonic()

    def ended_by(self, status: ReplicationStatus) -> ConnectionError | None:
        """What ends the command; None: it goes on."""
        now = time.monotonic()
        if status.peers or status.bytes != self._bytes:
            self._bytes, self._since = status.bytes, now
        if self._limit_s is None or now - self._since < self._limit_s:
            return None
        why = status.last_error
        reason = "" if why is None else f": {exit_codes.in_one_line(why)}"
        return ConnectionError(
            f"{self._master} has served no connection for {self._limit_s:g} s{reason}"
        )


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

    def show_cut(self, report: RecoveryReport) -> None:
        """What the open of the copy has cut off the end of its log, and where that is kept."""
        if report.cut is None:
            return
        start, end = report.cut
        messages = sum(one.count for one in report.lost_messages)
        if self._as_json:
            found = {"cut": [start, end], "messages": messages, "quarantine": report.quarantine}
            click.echo(printable(json.dumps(found)))
            return
        what = f"{size_text(end - start)}, {counted(messages, 'message')}"
        kept = f"; a copy is in {', '.join(report.quarantine)}" if report.quarantine else ""
        click.echo(printable(f"{start:,}  cut off {what}{kept}"))

    def ends_with(self, text: str) -> bool:
        """Whether the last line, for a person, gives this reason."""
        return not self._as_json and self._said.endswith(f": {text}")

    def show_stopped(self, copy: Store, status: ReplicationStatus) -> None:
        """How far the copy is when a signal ends the command."""
        if self._as_json:
            click.echo(printable(_json_line(copy, status)))
        else:
            click.echo(printable(f"stopped: {_text_line(copy, status)}"))


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
        "last_error": _said_of(status.last_error),
        "broker": None if status.broker is None else _of_broker(status.broker),
    }
    return json.dumps(found)


def _of_broker(files: BrokerFiles) -> dict[str, object]:
    return {
        "asked_ms": files.asked_ms,
        "topics": files.topics,
        "groups": files.groups,
        "group_offsets": files.group_offsets,
        "delay_levels": files.delay_levels,
        "last_error": _said_of(files.last_error),
    }


def _said_of(error: BaseException | None) -> str | None:
    """Some errors of connections have no text."""
    return None if error is None else str(error) or type(error).__name__


def _text_line(copy: Store, status: ReplicationStatus) -> str:
    master = next(iter(status.peers), None)
    there = f"{copy.flushed_offset:,}"
    if status.broker is not None and status.broker.last_error is not None:
        there += f"  broker: {exit_codes.in_one_line(status.broker.last_error)}"
    if master is None and status.last_error is not None:
        return f"{there}  not connected: {exit_codes.in_one_line(status.last_error)}"
    if master is None:
        return f"{there}  {'not connected' if status.connections else 'connecting'}"
    if status.caught_up:
        return f"{there}  caught up"
    behind = f"{size_text(master.lag_bytes)} and {master.lag_s:.1f} s behind"
    return f"{there}  {behind}, {size_text(master.bytes_per_s)}/s"
