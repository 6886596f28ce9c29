"""Arguments and options that several commands share."""

from __future__ import annotations

import datetime
import errno
import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

import rocketstore
from rocketstore.cli.hints import in_commands

__all__ = [
    "ANY_STORE",
    "FORMAT_HELP",
    "QUEUE_ID",
    "STORE",
    "Moment",
    "commit_log_dir_option",
    "durability_option",
    "format_option",
    "index_shape",
    "open_to_read",
    "topic_name",
]

if TYPE_CHECKING:
    _Parameter = click.ParamType[datetime.datetime | int]
else:
    _Parameter = click.ParamType  # generic in newer versions only

#: Directories that only a store has; without any of them there is none.
PARTS_OF_A_STORE = {"commitlog", "consumequeue", "batchconsumequeue", "rocketstore"}


def _check_store(path: str, commit_log_dir: str = "") -> None:
    """Refuses a directory that is no store, in words for commands: the library speaks of its
    modes."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{path or repr(path)} is not the directory of a store")
    names = os.listdir(path)
    if not PARTS_OF_A_STORE.intersection(names):
        what = "holds other files and no store" if names else "an empty directory, no store"
        raise FileNotFoundError(errno.ENOENT, what, path)
    for name in filter(None, commit_log_dir.split(",")):
        if not os.path.isdir(os.path.join(path, name)):
            raise click.BadParameter(
                f"{name!r} is no directory, seen from {path}", param_hint="--commit-log-dir"
            )


#: The argument STORE of a command that may make the store, or checks the directory itself.
ANY_STORE = click.argument("store", type=click.Path(file_okay=False, path_type=str))


def STORE(function: Callable[..., Any]) -> Callable[..., Any]:
    """The argument STORE of a command that needs a store; checked after all other arguments."""

    @functools.wraps(function)
    def checked(**named: Any) -> Any:
        _check_store(named["store"], named.get("commit_log_dir", ""))
        return function(**named)

    return ANY_STORE(checked)


QUEUE_ID = click.IntRange(0, 2**31 - 1)

_TOPIC = re.compile("[%|a-zA-Z0-9_-]+")


def topic_name(bytes_max: int) -> Callable[[click.Context, click.Parameter, str], str]:
    """A callback that refuses names no topic can have, before anything is made or waited for."""

    def checked(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if not _TOPIC.fullmatch(value) or len(value) > bytes_max:
            raise click.BadParameter(
                f"{value[:bytes_max]!r}: 1 to {bytes_max} of % | - _ and ASCII letters and digits"
            )
        return value

    return checked


FORMAT_HELP = (
    "json (one object a line), or text with %t topic, %p queue id, %o queue offset, "
    "%O physical offset, %k keys, %g tags, %s body, %S its size, %T store time in ms, "
    "%h properties, %i message id, %u unique id, %% percent, \\n \\t, "
    "and \\c at the end for no newline there."
)


class Moment(_Parameter):
    """Milliseconds since 1970, or ISO 8601 with a time zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime.datetime | int:
        if isinstance(value, datetime.datetime | int):
            return value
        if value.isascii() and value.isdecimal():
            if len(value) > 19 or int(value) >= 2**63:
                self.fail(f"{value[:30]} does not fit 64 bits", param, ctx)
            return int(value)
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither ISO 8601 nor milliseconds since 1970", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no time zone: add Z or +01:00", param, ctx)
        return moment


_SHAPE = (
    click.option(
        "--index-slots",
        type=click.IntRange(1, 2**28),
        default=5_000_000,
        show_default=True,
        help="Slots of an index file, which the file does not hold; the default is RocketMQ's.",
    ),
    click.option(
        "--index-entries",
        type=click.IntRange(2, 100_000_000),
        default=20_000_000,
        show_default=True,
        help="Entries of an index file, which the file does not hold either.",
    ),
)


def index_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options for the shape of index files, which the files do not hold."""
    for option in reversed(_SHAPE):
        function = option(function)
    return function


commit_log_dir_option = click.option(
    "--commit-log-dir",
    default="",
    metavar="DIRS",
    help='Directories of the log, with "," between them, if not the one in the store.',
)

format_option = click.option("--format", "form", default=None, metavar="FORMAT", help=FORMAT_HELP)

durability_option = click.option(
    "--durability",
    type=click.Choice(["memory", "os", "disk"]),
    default="disk",
    show_default=True,
    help="What a stored message survives: nothing, the death of the process, a power cut.",
)


def open_to_read(path: str, **options: Any) -> rocketstore.Store:
    """Opens without a lock, and follows a live writer. A command that looks up no keys gives
    `index_enabled=False`: a missing index would be made in memory from the whole log."""
    store = rocketstore.open(path, "r", **options)
    for text in store.recovery.missing:  # what is shown may lack what they held
        click.echo(f"rocketstore: {in_commands(text)}", err=True)
    return store
