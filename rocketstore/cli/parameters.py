"""Arguments and options that several commands share."""

from __future__ import annotations

import datetime
import errno
import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

import rocketstore
from rocketstore.cli.hints import in_commands
from rocketstore.cli.standard_streams import as_text
from rocketstore.filters import sql_filter
from rocketstore.values import foreign_names, is_system_topic, no_store

__all__ = [
    "ANY_STORE",
    "FORMAT_HELP",
    "QUEUE_ID",
    "STORE",
    "Moment",
    "Span",
    "allow_stale_crc_option",
    "commit_log_dir_option",
    "config_option",
    "config_options",
    "durability_option",
    "file_options",
    "format_option",
    "goes_by",
    "index_shape",
    "open_to_read",
    "rule_options",
    "topic_name",
    "where_option",
]

if TYPE_CHECKING:
    _Parameter = click.ParamType[datetime.datetime | int]
    _Span = click.ParamType[datetime.timedelta]
    _Size = click.ParamType[int]
else:
    _Parameter = _Span = _Size = click.ParamType  # generic in newer versions only

_SPANS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SIZES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

#: Directories that only a store has; without any of them there is none.
PARTS_OF_A_STORE = {"commitlog", "consumequeue", "batchconsumequeue", "rocketstore"}


def _check_store(path: str, commit_log_dir: str = "") -> None:
    """Refuses a directory that is no store, in words for commands: the library speaks of its
    modes."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{path or repr(path)} is not the directory of a store")
    names = os.listdir(path)
    if not PARTS_OF_A_STORE.intersection(names):
        foreign = foreign_names(names)
        what = no_store(foreign) if foreign else "an empty directory, no store"
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
    """A callback that refuses names that no topic can have, and topics that services use themselves,
    before anything is made or waited for."""

    def checked(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if not _TOPIC.fullmatch(value) or len(value) > bytes_max:
            raise click.BadParameter(
                f"{value[:bytes_max]!r}: 1 to {bytes_max} of % | - _ and ASCII letters and digits"
            )
        if is_system_topic(value):
            raise click.BadParameter(f"{value!r}: services of a store act upon what lies there")
        return value

    return checked


def read_topic(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """A callback of a command that reads: another program may have stored a name that rocketstore
    refuses to store. Refuses what no record can have, as a name that leads out of a store."""
    value = as_text(value)
    size = len(value.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= 255 or value in (".", "..") or "/" in value or not value.isprintable():
        raise click.BadParameter(f"{value[:255]!r}: no topic has this name, 1 to 255 bytes")
    return value


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


class Span(_Span):
    """A time span: a whole number and s, m, h, d or w."""

    name = "span"

    def __init__(self, *, zero: bool = False) -> None:
        """`zero`: whether it may be 0."""
        self._zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime.timedelta:
        if isinstance(value, datetime.timedelta):
            return value
        found = re.fullmatch(r"([0-9]{1,9})([smhdw])", value)
        if found is None or not (self._zero or int(found[1])):
            above = "" if self._zero else " above 0"
            self.fail(f"{value!r} is no span{above}, such as 90m, 12h, 7d or 2w", param, ctx)
        try:
            return datetime.timedelta(**{_SPANS[found[2]]: int(found[1])})
        except OverflowError:
            self.fail(f"{value!r} is longer than any clock counts", param, ctx)


class Size(_Size):
    """A number of bytes: a whole number and nothing, K, M, G or T."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]{1,18})([KMGT]?)(?:i?B)?", value)
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is no size above 0, such as 50G or 1048576", param, ctx)
        return int(found[1]) * _SIZES[found[2]]


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


_COMMIT_LOG_DIR = click.option(
    "--commit-log-dir",
    default="",
    metavar="DIRS",
    help='Directories of the log, with "," between them, if not the one in the store.',
)

#: Settings of a broker that say what its files are; the others are of a running broker.
_OF_FILES = (
    "commit_log_dir",
    "read_only_commit_log_dirs",
    "commit_log_file_size_bytes",
    "consume_queue_file_size_bytes",
    "index_enabled",
    "index_slots",
    "index_entries",
    "record_crc",
    "delay_levels",
    "max_message_size_bytes",
)
_CONFIG = "rocketstore.broker_config"


def _read_config(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Keeps what a broker.conf says of files, as defaults of the command's own options, too."""
    if path is None:
        return
    config = rocketstore.StoreConfig.from_rocketmq(path)
    for name, value, reason, matters in config.ignored:
        if matters:
            click.echo(f"rocketstore: {path}: {name} = {value}: {reason}", err=True)
    found = {name: getattr(config, name) for name in _OF_FILES if name in config.given}
    ctx.meta[_CONFIG] = found
    ctx.default_map = {**(ctx.default_map or {}), **found}


config_option = click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    expose_value=False,
    is_eager=True,
    callback=_read_config,
    help="A broker.conf: where the log is, sizes of files, delay levels.",
)


def config_options(*without: str) -> dict[str, Any]:
    """Options of `rocketstore.open` by the `--config` of the command that runs, but for those that
    the command has itself."""
    found: dict[str, Any] = click.get_current_context().meta.get(_CONFIG, {})
    return {name: value for name, value in found.items() if name not in without}


def commit_log_dir_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--commit-log-dir`, and `--config`, which may name the directories."""
    return config_option(_COMMIT_LOG_DIR(function))


def file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--config`, `--commit-log-dir`, `--index-slots` and `--index-entries` of a command that writes
    files, as one argument `options` for `rocketstore.open`. Nothing is in it that was not given:
    the store takes it from its files."""

    @functools.wraps(function)
    def gathered(**named: Any) -> Any:
        own = {name: named.pop(name) for name in _OWN_OPTIONS}
        given = {name: value for name, value in own.items() if value not in (None, "")}
        return function(**named, options={**config_options(), **given})

    for option in reversed(_SHAPE_IF_GIVEN):
        gathered = option(gathered)
    return commit_log_dir_option(gathered)


_OWN_OPTIONS = ("commit_log_dir", "index_slots", "index_entries")
_SHAPE_IF_GIVEN = (
    click.option(
        "--index-slots",
        type=click.IntRange(1, 2**28),
        help="Slots of a new index file; default: those of the files that are there.",
    ),
    click.option(
        "--index-entries",
        type=click.IntRange(2, 100_000_000),
        help="Entries of a new index file; default: those of the files that are there.",
    ),
)

_RULE = (
    click.option("--max-age", type=Span(), help="Messages older than this may go: 12h, 7d, 2w."),
    click.option("--max-bytes", type=Size(), help="The log may have no more bytes: 50G."),
    click.option(
        "--keep-unconsumed-by",
        multiple=True,
        metavar="GROUP",
        help='What this group has not consumed stays; "all": any group. May be given several '
        "times.",
    ),
    click.option("--keep-unshipped", is_flag=True, help="What no archive has stays."),
)


def rule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a rule of retention, as one argument `rule` for `rocketstore.Retention`."""

    @functools.wraps(function)
    def gathered(**named: Any) -> Any:
        names = ("max_age", "max_bytes", "keep_unconsumed_by", "keep_unshipped")
        rule = {name: named.pop(name) for name in names}
        groups = rule["keep_unconsumed_by"]
        if "all" in groups and len(groups) > 1:
            raise click.UsageError("--keep-unconsumed-by all includes every other group")
        rule["keep_unconsumed_by"] = "all" if groups == ("all",) else groups or None
        return function(**named, rule=rule)

    for option in reversed(_RULE):
        gathered = option(gathered)
    return gathered


def goes_by(rule: dict[str, Any]) -> bool:
    """Whether anything would leave a log by the options of a rule."""
    return rule["max_age"] is not None or rule["max_bytes"] is not None


allow_stale_crc_option = click.option(
    "--allow-stale-crc",
    is_flag=True,
    help="Let records pass whose own checksum does not hold where RocketMQ wrote.",
)

format_option = click.option("--format", "form", default=None, metavar="FORMAT", help=FORMAT_HELP)

durability_option = click.option(
    "--durability",
    type=click.Choice(["memory", "os", "disk"]),
    default="disk",
    show_default=True,
    help="What a stored message survives: nothing, the death of the process, a power cut.",
)


def _where(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Refuses what is no expression, before a store is opened."""
    if value is None:
        return None
    try:
        return sql_filter(as_text(value)).text
    except rocketstore.errors.FilterSyntaxError as error:
        raise click.BadParameter(str(error)) from error


where_option = click.option(
    "--where",
    default=None,
    metavar="SQL",
    callback=_where,
    help="Only messages whose properties match, as in \"price > 10 AND region = 'eu'\".",
)


def open_to_read(path: str, **options: Any) -> rocketstore.Store:
    """Opens without a lock, and follows a live writer; says which files of the log are missing. A
    command that looks up no keys gives
    `index_enabled=False`: a missing index would be made in memory from the whole log."""
    given = {**config_options(*options), **options}
    store = rocketstore.open(path, "r", force=True, **given)
    for text in store.recovery.missing:  # what is shown may lack what they held
        click.echo(f"rocketstore: {in_commands(text)}", err=True)
    return store
