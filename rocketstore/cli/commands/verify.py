"""`rocketstore verify`: walks a whole store."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import click
from click.core import ParameterSource

from rocketstore.cli import exit_codes
from rocketstore.cli.hints import COMMIT_LOG_DIR, in_commands, remedy
from rocketstore.cli.output import bars, steps
from rocketstore.cli.parameters import (
    STORE,
    allow_stale_crc_option,
    commit_log_dir_option,
    index_shape,
)
from rocketstore.cli.standard_streams import printable
from rocketstore.tools import Fault, verify

__all__ = ["command"]


@click.command
@STORE
@index_shape
@commit_log_dir_option
@allow_stale_crc_option
@click.option(
    "--faults",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many lines of faults to show.",
)
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
def command(
    store: str,
    index_slots: int,
    index_entries: int,
    commit_log_dir: str,
    allow_stale_crc: bool,
    faults: int,
    as_json: bool,
) -> int:
    """Checks every record, queue unit, index entry, checkpoint and stored offset of a store, and the
    files that a broker needs to start.

    First says which messages the log has lost, and which it has and hides, by topic and queue.

    Takes no lock and changes nothing. With a live writer it checks what the writer has published.
    Exit code 3 when something is wrong, with the command that repairs it.

    \b
    Example:
      rocketstore verify data/orders
    """
    with steps() as progress:
        report = verify(
            store,
            progress=bars(progress),
            index_slots=index_slots,
            index_entries=index_entries,
            commit_log_dir=commit_log_dir,
            allow_stale_crc=allow_stale_crc,
        )
    if as_json:
        advice = remedy(report, _given())
        click.echo(json.dumps({**dataclasses.asdict(report), "ok": report.ok, "advice": advice}))
    else:
        for line in str(report).split("\n"):
            click.echo(printable(line))
        _name(report.faults, report.fault_count, faults)
        for notice in report.notices[:faults]:
            click.echo(printable(in_commands(f"notice: {notice}")), err=True)
        if len(report.notices) > faults:
            click.echo(f"… and {len(report.notices) - faults} more notices", err=True)
        for line in remedy(report, _given()):
            click.echo(printable(line), err=True)
    return exit_codes.OK if report.ok else exit_codes.DAMAGED


def _name(found: Sequence[Fault], count: int, most: int) -> None:
    """Up to `most` faults, those of one file and one kind together: one cause has one line."""
    together: dict[tuple[str, str, str], list[Fault]] = {}
    for fault in found:
        together.setdefault((fault.kind, fault.code, fault.file), []).append(fault)
    shown = 0
    for (kind, _, _), those in list(together.items())[:most]:
        more = f", and {len(those) - 1} more" if those[1:] else ""
        if those[-1].position != those[0].position:
            more += f" up to {those[-1].position}"
        click.echo(printable(in_commands(f"{kind}: {those[0]}{more}")), err=True)
        shown += len(those)
    if count > shown:
        click.echo(f"… and {count - shown} more", err=True)


def _given() -> dict[str, object]:
    """Options that describe the store, by flag; the command that repairs it needs them, too."""
    context = click.get_current_context()
    names = (COMMIT_LOG_DIR, "--index-slots", "--index-entries")
    arguments = {name: name[2:].replace("-", "_") for name in names}
    return {
        name: context.params[argument]
        for name, argument in arguments.items()
        if context.get_parameter_source(argument) is ParameterSource.COMMANDLINE
    }
