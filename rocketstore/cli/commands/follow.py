"""`rocketstore follow`: keeps a directory a copy of a master's store."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any, Final

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.output import size_text
from rocketstore.cli.parameters import ANY_STORE, file_options
from rocketstore.cli.signals import StopSignals
from rocketstore.replication import Replica

if TYPE_CHECKING:
    from rocketstore import Store
    from rocketstore.replication import ReplicationStatus

__all__ = ["command"]

#: Between two lines of progress, and two looks for an end, seconds.
LINE_S: Final = 1.0
LOOK_S: Final = 0.05
#: What a line of JSON has of the status.
SAID: Final = (
    *(
        "address",
        "connected",
        "caught_up",
        "received",
        "synced",
        "master_end",
        "lag_bytes",
        "lag_ms",
    ),
    *("connections", "bytes", "bytes_per_s", "error", "last_error"),
)
#: A copy whose log is to be cut is opened again, so many times in a row.
OPENS_MOST: Final = 3
STOPPED: Final[dict[int | None, int]] = {
    None: exit_codes.OK,
    signal.SIGINT: exit_codes.INTERRUPTED,
    signal.SIGTERM: exit_codes.TERMINATED,
}


def _begin(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    if value in ("oldest", "last file"):
        return value
    if value.isascii() and value.isdigit():
        return int(value)
    raise click.BadParameter("oldest, 'last file', or a physical offset")


@click.command
@click.argument("master", metavar="HOST:PORT")
@ANY_STORE
@click.option(
    "--protocol",
    type=click.Choice(["rocketstore", "rocketmq"]),
    default="rocketstore",
    show_default=True,
    help="What the master speaks: rocketmq for a broker of RocketMQ, at its haListenPort.",
)
@click.option(
    "--begin",
    default="oldest",
    show_default=True,
    callback=_begin,
    help="Where an empty copy begins: oldest, 'last file', or the offset of a file of a broker.",
)
@click.option(
    "--segment-bytes",
    type=click.IntRange(4096),
    default=None,
    help="Size of the log's files, which has to be the master's. Default: 1 GiB, as of brokers.",
)
@click.option("--once", is_flag=True, help="End when the copy has all that the master had.")
@click.option("--key-file", type=click.File("rb"), default=None, help="The secret of both sides.")
@click.option("--json", "as_json", is_flag=True, help="Each line as one JSON object.")
@file_options
def command(
    master: str,
    store: str,
    protocol: Any,
    begin: Any,
    segment_bytes: int | None,
    once: bool,
    key_file: Any,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    """Keeps STORE a copy of the store whose master listens at HOST:PORT, until Ctrl-C.

    The copy has the master's log byte for byte, and queues and an index of its own. It goes on
    where it was after any break of the connection. Programs read it meanwhile. Says how far it is,
    what it lacks of the master's log and for how long, and how fast bytes come. Ends with 3 where
    it cannot go on: the master has other bytes, or none of those that come next.

    \b
    Examples:
      rocketstore follow broker-a:10912 data/copy --protocol rocketmq
      rocketstore follow 10.0.0.7:10912 data/copy --key-file secret
      rocketstore follow broker-a:10912 data/copy --protocol rocketmq --once --json
    """
    key = None if key_file is None else key_file.read().strip()
    if segment_bytes is not None:
        options["commit_log_file_size_bytes"] = segment_bytes
    settings = Replica(master=master, protocol=protocol, begin=begin, key=key)
    error: BaseException | None = None
    with StopSignals() as signals:
        for _ in range(OPENS_MOST):
            with rocketstore.open(store, replication=settings, **options) as copy:
                error = _watch(copy, signals, once=once, as_json=as_json)
            if not getattr(error, "opens_again", False):
                break
    if error is not None:
        click.echo(f"rocketstore: {exit_codes.in_one_line(error)}", err=True)
        return exit_codes.DAMAGED
    return STOPPED[signals.received]


def _watch(copy: Store, signals: StopSignals, *, once: bool, as_json: bool) -> BaseException | None:
    """Until a signal, an error that ends it, which is given, or, with `once`, the copy has
    everything."""
    said: tuple[int, str] | None = None
    next_line = time.monotonic()
    while True:
        status = copy.replication
        done = once and status.caught_up
        over = done or signals.received is not None or status.error is not None
        now = time.monotonic()
        news = (status.synced, str(status.last_error))
        if over or (now >= next_line and news != said):
            _say(status, as_json=as_json)
            said, next_line = news, now + LINE_S
        if over:
            return status.error
        time.sleep(LOOK_S)


def _say(status: ReplicationStatus, *, as_json: bool) -> None:
    if as_json:
        known = {name: getattr(status, name) for name in SAID}
        for name in ("error", "last_error"):
            known[name] = None if known[name] is None else exit_codes.in_one_line(known[name])
        click.echo(json.dumps(known))
        return
    if status.connected:
        lag = f"{size_text(status.lag_bytes or 0)}, {(status.lag_ms or 0) / 1000:.1f} s behind"
        rate = f"{size_text(int(status.bytes_per_s))}/s"
        click.echo(f"{status.synced:,} on disk, {lag}, {rate}")
    else:
        why = "" if status.last_error is None else f": {exit_codes.in_one_line(status.last_error)}"
        click.echo(f"{status.synced:,} on disk, no master{why}")
