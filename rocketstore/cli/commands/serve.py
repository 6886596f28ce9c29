"""`rocketstore serve`: holds a store open for the other processes that share it."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from typing import Any, Final

import click

import rocketstore
from rocketstore import GuestFigures, Store
from rocketstore.cli import exit_codes
from rocketstore.cli.output import size_text
from rocketstore.cli.parameters import (
    ANY_STORE,
    durability_option,
    file_options,
    goes_by,
    rule_options,
)
from rocketstore.cli.signals import StopSignals
from rocketstore.cli.standard_streams import check_reader, printable
from rocketstore.values.plural import counted

__all__ = ["command"]

#: Between two looks at the store, and between two lines, seconds.
LOOK_S: Final = 0.2
LINE_S: Final = 1.0
#: A service manager that does not take a datagram within this time is not waited for, seconds.
NOTIFY_S: Final = 1.0


@click.command
@ANY_STORE
@durability_option
@click.option(
    "--segment-bytes",
    type=click.IntRange(4096, 2**31 - 1),
    help="Size of log files of a new store; default 1 GiB; a file takes what it holds.",
)
@rule_options
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait so long for a process that has the store open to close it, or to end.",
)
@click.option("--json", "as_json", is_flag=True, help="Each line as one JSON object.")
@file_options
def command(
    store: str,
    durability: rocketstore.Durability,
    segment_bytes: int | None,
    rule: dict[str, Any],
    wait_s: float,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    """Holds STORE open for other processes, which share it, until Ctrl-C or SIGTERM.

    They open it with shared="guest", put and read as if the store were theirs, and wait for this
    command where it is not there. Delivers delayed messages, and removes old segments by --max-age
    and --max-bytes. Shows once a second how many processes share the store and how many messages
    were stored, if that changed. A service manager that sets NOTIFY_SOCKET hears when the store is
    open and when it closes. Ends with 0 after a signal, once the store is closed; with 1 where the
    log cannot be written any more; with 4 where another process has the store open.

    \b
    Examples:
      rocketstore serve data/orders
      rocketstore serve data/orders --durability os --max-age 7d
      rocketstore serve data/orders --wait 30 --json
    """
    if segment_bytes is not None:
        options["commit_log_file_size_bytes"] = segment_bytes
    if goes_by(rule):
        options["retention"] = rocketstore.Retention(**rule)
    elif any(rule.values()):
        raise click.UsageError("nothing would go: give --max-age or --max-bytes")
    with (
        rocketstore.open(
            store, durability=durability, shared="host", wait_s=wait_s, **options
        ) as opened,
        StopSignals() as stop,
    ):
        if opened.recovery.lost:
            click.echo(f"rocketstore: {opened.recovery}", err=True)
        _notify("READY=1")
        why = _serve(opened, stop, _Lines(as_json))
        _notify("STOPPING=1")
        opened.close()  # with signals put off: a second one ends no close that has begun
    if not why:
        return exit_codes.OK
    click.echo(printable(f"rocketstore: {why}"), err=True)
    return exit_codes.FAILED


def _serve(opened: Store, stop: StopSignals, lines: _Lines) -> str:
    """Shows lines until a signal came, or the store takes no puts any more; says why not then."""
    while True:
        if not opened.flags.writeable:
            states = opened.flags.states
            return "; ".join(f"{state.reason.name}: {state.cause}" for state in states)
        check_reader()
        lines.show(opened)
        if select.select([stop.descriptor], [], [], LOOK_S)[0]:
            lines.show(opened, last=True)
            return ""


class _Lines:
    """What is shown: a line a second at most, and none that says the same."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._said = ""
        self._at = -LINE_S

    def show(self, opened: Store, *, last: bool = False) -> None:
        """`last`: the line must not be missing."""
        now = time.monotonic()
        if now - self._at < LINE_S and not last:
            return
        stats = opened.stats()
        # Without what changes by itself; a guest that came back is the same line.
        guests = [one._replace(heard_s=round(one.heard_s, 1)) for one in stats.guests]
        compared = repr((stats.put_messages, [one[:5] for one in guests]))
        if compared != self._said or last:
            click.echo(printable(self._line(opened, stats.put_messages, guests, last)))
            self._said = compared
        self._at = now

    def _line(self, opened: Store, puts: int, guests: list[GuestFigures], last: bool) -> str:
        if self._as_json:
            shown = [one._asdict() for one in guests]
            found = {"pid": os.getpid(), "path": str(opened.path), "guests": shown, "puts": puts}
            return json.dumps({**found, "end": opened.end_offset, "stopping": last})
        state = "stopping" if last else f"process {os.getpid()}"
        size = size_text(sum(one.bytes for one in guests))
        return (
            f"{opened.path}  {state}  {counted(len(guests), 'guest')}, {size} of theirs  "
            f"{counted(puts, 'message')} stored"
        )


def _notify(state: str) -> None:
    """Sends one line to the service manager, if there is one; what it cannot take is no reason to
    stop."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):  # systemd has other kinds for other programs
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.settimeout(NOTIFY_S)
            out.sendto(state.encode(), address.replace("@", "\0", 1))
    except OSError as error:
        click.echo(printable(f"rocketstore: NOTIFY_SOCKET {address}: {error}"), err=True)
