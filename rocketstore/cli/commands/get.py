"""`rocketstore get`: the message at a physical offset."""

from __future__ import annotations

import click

from rocketstore.cli.output import print_messages
from rocketstore.cli.parameters import STORE, commit_log_dir_option, format_option, open_to_read
from rocketstore.values import counted

__all__ = ["command"]

DETAILS = (
    "topic            %t\nqueue            %p\nqueue offset     %o\nphysical offset  %O\n"
    "stored at        %T\nmessage id       %i\nkeys             %k\ntags             %g\n"
    "properties       %h\nbody             %S bytes\n\n%s"
)


@click.command
@STORE
@click.argument("physical_offset", type=click.IntRange(0))
@commit_log_dir_option
@format_option
def command(store: str, physical_offset: int, commit_log_dir: str, form: str | None) -> int:
    """Prints the message whose record begins at PHYSICAL_OFFSET of the commit log.

    \b
    Examples:
      rocketstore get data/orders 1048576
      rocketstore get data/orders 1048576 --format '%s\\c' > body
    """
    with open_to_read(store, commit_log_dir=commit_log_dir, index_enabled=False) as opened:
        message = opened.get(physical_offset)
        details = DETAILS.replace("%S bytes", counted(len(message.body), "byte"))
        print_messages([message], form or details)
    return 0
