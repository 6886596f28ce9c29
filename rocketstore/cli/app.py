"""The group of all commands: finds them, and turns every error into one line and an exit code.

What is imported here is in the start of every command: nothing but click and the names of errors.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NoReturn

import click

from rocketstore import __version__
from rocketstore.cli import exit_codes
from rocketstore.cli.signals import terminated_as_interrupted
from rocketstore.cli.standard_streams import NoReaderError, mute, readers
from rocketstore.errors import RocketStoreError

__all__ = ["cli", "run"]

#: Command → its line in the list of commands. The click command is `command` in
#: `cli.commands.<name>`, which is imported when the command is chosen: some need Rich or NumPy.
COMMANDS: Final = {
    "bench": "How fast this machine stores and reads.",
    "compact": "The latest message of each key, in a new store.",
    "follow": "Keep a copy of the store of a master, or of a broker of RocketMQ.",
    "get": "The message at a physical offset.",
    "ingest": "Store lines of a file or a pipe.",
    "promote": "Make a copy the master, in a new term.",
    "query": "Messages by key.",
    "rebuild": "Rebuild queues and index from the log, in parallel.",
    "recover": "Recover after a crash; exit code 3 when something is lost.",
    "repair": "Mend damage in the log, so that RocketMQ keeps what follows it.",
    "serve": "Hold a store open for other processes that share it.",
    "ship": "Copy sealed segments to an object store or another directory.",
    "spark": "Jobs on Spark: stats, audit, export, import, compact, replay, rebuild; offsets.",
    "stat": "Positions, topics, queues, sizes, lag.",
    "tail": "The last messages of a topic, and those that come later.",
    "trim": "Remove the oldest segments by age or size; --dry-run says which, and why.",
    "verify": "Check everything; exit code 3 on damage.",
}

EPILOG: Final = """
\b
Examples:
  rocketstore ingest data/logs access.log --topic access
  journalctl -f | rocketstore ingest data/logs --topic journal --durability os
  rocketstore tail data/logs access -n 20 -f
  rocketstore tail data/logs access --format json
  rocketstore query data/orders orders o-17 --begin 2026-01-01T00:00:00Z
  rocketstore stat data/orders
  rocketstore verify data/orders
  rocketstore recover data/orders
  rocketstore repair --dry-run data/orders
  rocketstore rebuild data/orders
  rocketstore serve data/orders
  rocketstore ship data/orders s3://lake/orders
  rocketstore trim --dry-run --max-age 7d data/orders
  rocketstore compact --topic profiles data/users data/users-latest
  rocketstore promote data/copy
  rocketstore follow store-1:10912 data/copy
  rocketstore spark export data/orders data/parquet
\b
Exit codes:
  0 done   1 failed   2 wrong arguments   3 damaged store   4 locked by another process
  130 stopped by Ctrl-C   141 no reader of its output   143 stopped by SIGTERM
"""


class Commands(click.Group):
    """Loads a command when it is asked for. `main` never lets a known error escape."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"rocketstore.cli.commands.{cmd_name}")
        found: click.Command = module.command
        found.short_help = COMMANDS[cmd_name]
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands; click would import all of them for it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        # click proposes names itself since 8.4, but looks for them among commands that are loaded.
        name = args[0]
        near = [] if name in COMMANDS else difflib.get_close_matches(name, COMMANDS)
        if near and not ctx.resilient_parsing:  # of the shell's completion
            meant = " or ".join(map(repr, near))
            ctx.fail(f"No such command {name!r}. Did you mean {meant}?")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        try:
            with terminated_as_interrupted(), readers():
                code = self._outcome(args, prog_name, complete_var, extra)
        except NoReaderError:
            mute()
            code = exit_codes.NO_READER
        sys.exit(code)

    def make_context(self, *args: Any, **named: Any) -> click.Context:
        with readers():  # of help texts
            return super().make_context(*args, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with readers():
            return super().invoke(ctx)

    def _outcome(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except (KeyboardInterrupt, click.Abort):
            return exit_codes.INTERRUPTED
        except (RocketStoreError, OSError, ValueError, ImportError) as error:
            click.echo(f"rocketstore: {exit_codes.in_one_line(error)}", err=True)
            return exit_codes.exit_code(error)
        return code if isinstance(code, int) else exit_codes.OK


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="rocketstore")
@click.option("-v", "--verbose", is_flag=True, help="Show also what the store logs.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool) -> None:
    """Reads, fills and checks stores in the format of Apache RocketMQ.

    STORE is the directory of a store. Commands that only read take no lock and change nothing. They
    follow a process that has the store open for writing.
    """
    if not verbose:
        # Errors come back as exceptions; slow files and the like are shown with --verbose.
        logger = logging.getLogger("rocketstore")
        ctx.call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.CRITICAL)


def run() -> int:
    """What the console script calls."""
    try:
        cli.main(prog_name="rocketstore")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else exit_codes.FAILED
