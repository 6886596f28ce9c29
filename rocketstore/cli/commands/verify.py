"""`rocketstore verify`: walks a whole store."""

from __future__ import annotations

import dataclasses
import json

import click
from click.core import ParameterSource

from rocketstore.cli import exit_codes
from rocketstore.cli.hints import COMMIT_LOG_DIR, remedy
from rocketstore.cli.output import bars, steps
from rocketstore.cli.parameters import STORE, commit_log_dir_option, index_shape
from rocketstore.cli.standard_streams import printable
from rocketstore.tools import verify

__all__ = ["command"]


@click.command
@STORE
@index_shape
@commit_log_dir_option
@click.option(
    "--faults",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many faults to show.",
)
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
def command(
    store: str,
    index_slots: int,
    index_entries: int,
    commit_log_dir: str,
    faults: int,
    as_json: bool,
) -> int:
    """Checks every record, queue unit, index entry, checkpoint and stored offset of a store.

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
        )
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(report), "ok": report.ok}))
    else:
        for fault in report.faults[:faults]:
            click.echo(printable(str(fault)), err=True)
        more = report.fault_count - min(faults, len(report.faults))
        if more:
            click.echo(f"… and {more} more", err=True)
        click.echo(str(report))
        advice = remedy(report, _given())
        if advice:
            click.echo(printable(advice), err=True)
    return exit_codes.OK if report.ok else exit_codes.DAMAGED


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
