"""`rocketstore ship`: copies sealed segments to an archive."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import click

import rocketstore
from rocketstore.archive import NoObjectStoreError, shown_uri
from rocketstore.cli import exit_codes
from rocketstore.cli.output import bars, bytes_progress, console, count_text, size_text
from rocketstore.cli.parameters import STORE, commit_log_dir_option
from rocketstore.cli.standard_streams import printable

__all__ = ["command"]


@click.command
@STORE
@click.argument("uri")
@commit_log_dir_option
@click.option("--tail", is_flag=True, help="Also what the segment that is not full has by now.")
@click.option(
    "--force", is_flag=True, help="Also where nothing shows that this log goes on the archive."
)
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(
    store: str, uri: str, commit_log_dir: str, tail: bool, force: bool, as_json: bool
) -> int:
    """Copies sealed segments to the archive at URI: those that are full, and that URI does not
    have.

    URI is s3://bucket/prefix, gs://…, hdfs://…, file:///directory, or the path of a directory.
    Names the messages that it leaves in the segment that is not full yet; that is no error,
    exit code 0. With --tail that part goes, too, and the next run replaces it. Where segments of
    the log are missing, ships those that are there, says how many messages the queues know that
    are not there, and ends with 3. Refuses another log than that of the archive. Where both have
    nothing in common that could show it, --force ships, and a scan does not read over the place.
    Takes no lock; a writer may work meanwhile. A run that was stopped is resumed by the next one.
    Needs rocketstore[arrow].

    \b
    Examples:
      rocketstore ship data/orders s3://lake/orders
      rocketstore ship data/orders /mnt/archive/orders
      rocketstore ship --tail data/orders s3://lake/orders
    """
    uri = _uri(uri)
    try:
        with bytes_progress() as progress:
            report = rocketstore.ship(
                store,
                uri,
                tail=tail,
                force=force,
                commit_log_dir=commit_log_dir,
                progress=bars(progress),
            )
    except (
        rocketstore.CorruptRecordError,
        rocketstore.MissingSegmentsError,
        rocketstore.ReadFailedError,
    ) as error:
        for note in getattr(error, "__notes__", ()):
            click.echo(printable(f"rocketstore: {note}"), err=True)
        raise
    except NoObjectStoreError as error:
        said = f"{error.value!r}: {error.allowed}"
        raise click.BadParameter(said, param_hint="URI") from error
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report)))
        return exit_codes.OK
    count, size = count_text(report.segments, "segment"), size_text(report.bytes)
    whole = f"{count_text(report.archived_segments, 'segment')} up to {report.end_offset:,}"
    if report.tail_bytes:
        whole += f", {size_text(report.tail_bytes)} of it of a segment that is not full"
    console().print(f"{count}, {size} in {report.seconds:,.1f} s; {shown_uri(uri)} has {whole}")
    if report.missing_bytes:
        lacking = size_text(report.missing_bytes)
        click.echo(f"{lacking} below are not in it: removed before they were shipped", err=True)
    if report.left_messages:
        left = sum(number for _, number in report.left_messages)
        topics = ", ".join(f"{printable(t)} {number:,}" for t, number in report.left_messages[:20])
        more = len(report.left_messages) - 20
        click.echo(
            f"left behind, since their segment is not full: {count_text(left, 'message')} in "
            f"[{report.left_begin}, {report.left_end}): {topics}"
            + (f" and {count_text(more, 'more topic')}" if more > 0 else ""),
            err=True,
        )
    return exit_codes.OK


def _uri(text: str) -> str:
    """A path as a URI; what begins as URIs do is left to the library."""
    if not text:
        raise click.BadParameter("is empty: a directory or a URI is wanted", param_hint="URI")
    if re.fullmatch("[A-Za-z][A-Za-z0-9+.-]+:/*", text):
        raise click.BadParameter(f"{text!r} names no bucket and no directory", param_hint="URI")
    return text if re.match("[A-Za-z][A-Za-z0-9+.-]+:", text) else Path(text).absolute().as_uri()
