"""The options of a store: one table with all that is known of each.

`help(rocketstore.StoreConfig)` and `docs/options.md` are made from it. RocketMQ's names are in
`rocketmq_options.OPTIONS`, from which its settings are read.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rocketstore._native.format.constants import UNIT_SIZE
from rocketstore.config.rocketmq_options import OPTIONS
from rocketstore.config.typed_options import Visible
from rocketstore.config.units import DAY_MS, GIB, INT32_MAX, KIB, MIB
from rocketstore.values.delay_levels import DEFAULT_DELAY_LEVELS
from rocketstore.values.durability import Durability

__all__ = ["Facts", "Options", "explain", "facts_of", "help_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of an option, apart from its name, type and default."""

    text: str
    #: Least and largest number.
    allowed: tuple[int, int] | None = None
    #: Unit of a number: "bytes", "ms" or "pages"; "" for a count.
    unit: str = ""
    #: The default in words, where the value does not say it.
    default: str = ""
    #: Whether the store keeps it: a later open takes it from the store's files.
    kept: bool = False
    #: Whether `Store.configure` may change it while the store is open.
    live: bool = False


def _option(default: Any, text: str, allowed: tuple[int, int] | None = None, **more: Any) -> Any:
    """A field of `Options`; `more` are fields of its `Facts`, `words` its default in words."""
    facts = Facts(text=text, allowed=allowed, default=more.pop("words", ""), **more)
    return field(default=default, metadata={"facts": facts})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The fields of `StoreConfig`, which checks them."""

    commit_log_file_size_bytes: int = _option(
        GIB,
        "Size of each commit log file, whose blocks are reserved ahead of the writer. A multiple "
        "of 4096 is advised.",
        (256, INT32_MAX),
        unit="bytes",
        kept=True,
    )
    consume_queue_file_size_bytes: int = _option(
        6_000_000,
        "Size of each consume queue file. It is rounded up to whole units of 20 bytes.",
        (UNIT_SIZE, 2_147_483_640),
        unit="bytes",
        words="6,000,000 bytes (300,000 units)",
        kept=True,
    )
    commit_log_dir: str = _option(
        "",
        "Directories with files of the commit log, separated by commas. Relative ones begin at the "
        "store's directory. A store with several directories, or with another one than its own, "
        "can be read and not written.",
        words='"": `commitlog` in the store',
    )
    read_only_commit_log_dirs: str = _option(
        "", "More directories with files of the commit log. RocketMQ does not write to these."
    )
    max_message_size_bytes: int = _option(
        4 * MIB,
        'Largest body of a message. It must fit a commit log file. In a "disk" store it can grow '
        "as far as the write buffer has room that the store was opened with.",
        (1, INT32_MAX),
        unit="bytes",
        words="4 MiB, or what fits a commit log file where that is less",
        live=True,
    )
    auto_wide_topic: bool = _option(
        False,
        "Whether topics of 128 to 255 bytes are stored. Their records are V2 records; RocketMQ "
        "before 5.1 cannot read these.",
    )
    store_host: str = _option(
        "127.0.0.1:10911",
        'Address of this store in its records and message ids: "ip:port", IPv6 in brackets.',
    )
    durability: Durability = _option(  # noqa: RUF009  # it is dataclasses.field
        "disk",
        'What is true when a put returns. "disk": the message survives the loss of power. "os": it '
        'survives the death of the process. "memory": nothing is promised before the commit. '
        '"replicas(n)", n 2 … 9: on the disks of n machines, this one included. "replicas" is '
        '"replicas(2)".',
    )
    visible: Visible = _option(  # noqa: RUF009
        "auto",
        'How far readers see: "flushed", "committed", or "auto". "auto" is "flushed" in a store '
        'with durability "disk" or "replicas(n)", else "committed".',
    )
    max_unflushed_bytes: int = _option(
        256 * MIB,
        "Bytes that are written and not flushed. Puts wait while there are more.",
        (64 * KIB, 64 * GIB),
        unit="bytes",
    )
    max_undispatched_bytes: int = _option(
        64 * MIB,
        "Bytes that are visible and not dispatched. Puts wait while there are more.",
        (64 * KIB, 64 * GIB),
        unit="bytes",
    )
    max_wait_ms: int = _option(
        5000, "Longest time that a put waits for room, a file or a lock.", (0, DAY_MS), unit="ms"
    )
    sync_flush_timeout_ms: int = _option(
        5000,
        "Longest time that a put waits for its sync. From 1000 on a put that waits alone may sync "
        "in its own thread, where a signal does not interrupt it.",
        (1, DAY_MS),
        unit="ms",
    )
    allow_network_file_system: bool = _option(
        False,
        "Whether a store on a network file system may be opened for writing. Such file systems do "
        "not keep the promises on locks and syncs that durability needs.",
    )
    record_crc: bool = _option(
        True,
        "Whether each record carries a CRC over all its bytes. It costs 20 bytes a message. A "
        "reader always verifies it where it is present.",
        kept=True,
    )
    check_crc_on_recover: bool = _option(
        True, "Whether the recovery verifies the CRC of each body."
    )
    write_buffer_bytes: int = _option(
        8 * MIB,
        'Ring in which records of a "disk" store wait for the next sync. It must hold the largest '
        "record, and follows `max_message_size_bytes` unless it is given. A batch takes at most "
        "half of it.",
        (64 * KIB, GIB),
        unit="bytes",
    )
    prewrite: bool = _option(
        False,
        'Whether a new commit log file of a "disk" store is filled with zeros before it is used. A '
        "sync then overwrites blocks and changes no metadata. A thread of its own makes the file, "
        "which takes longer. Without it small flushes write zeros for the next 512 KiB.",
    )
    populate_window_bytes: int = _option(
        32 * MIB,
        'How far a thread populates pages ahead of the writer of an "os" store. With 0 each put '
        "makes its pages itself, and batches are written by system calls.",
        (0, GIB),
        unit="bytes",
    )
    transient_pool_buffers: int = _option(
        5,
        'Write buffers of a "memory" store. Each has the size of a commit log file.',
        (1, 1024),
    )
    transient_pool_fast_fail: bool = _option(
        False,
        'Whether a put of a "memory" store fails at once when no write buffer is left. Else the '
        "next file goes without one.",
    )
    flush_interval_ms: int = _option(
        500,
        'Time between flushes of an "os" or "memory" store.',
        (1, DAY_MS),
        unit="ms",
        live=True,
    )
    flush_timed: bool = _option(
        True, "Whether the flusher sleeps its whole interval. Else a put may wake it.", live=True
    )
    flush_least_pages: int = _option(
        4,
        "Pages of 4096 bytes that must be dirty before a timed flush acts.",
        (0, INT32_MAX),
        unit="pages",
        live=True,
    )
    flush_thorough_interval_ms: int = _option(
        10_000,
        "Time after which a flush takes every dirty page.",
        (0, DAY_MS),
        unit="ms",
        live=True,
    )
    wake_flush_on_put: bool = _option(False, 'Whether each put of an "os" store wakes the flusher.')
    commit_interval_ms: int = _option(
        200, 'Time between commits of a "memory" store.', (1, DAY_MS), unit="ms", live=True
    )
    commit_least_pages: int = _option(
        4,
        "Pages of 4096 bytes that must wait before a commit acts.",
        (0, INT32_MAX),
        unit="pages",
        live=True,
    )
    commit_thorough_interval_ms: int = _option(
        200,
        "Time after which a commit takes every page that waits.",
        (0, DAY_MS),
        unit="ms",
        live=True,
    )
    wake_commit_on_put: bool = _option(
        True, 'Whether each put of a "memory" store wakes the committer.'
    )
    consume_queue_flush_interval_ms: int = _option(
        1000, "Time between flushes of the consume queues.", (1, DAY_MS), unit="ms", live=True
    )
    index_enabled: bool = _option(
        True, "Whether the store keeps an index of keys. `Store.query` needs it."
    )
    index_slots: int = _option(
        5_000_000, "Hash slots of a new index file, 4 bytes each.", (1, 2**28)
    )
    index_entries: int = _option(
        20_000_000,
        "Entries of a new index file, 20 bytes each. The first entry is never used.",
        (2, 100_000_000),
    )
    multi_dispatch_enabled: bool = _option(
        False, "Whether a message may name further queues that get a unit of it."
    )
    light_queue_enabled: bool = _option(
        False,
        "Whether such a name may be a light queue (`%LMQ%…`). It needs `multi_dispatch_enabled`.",
    )
    max_light_queues: int = _option(20_000, "Most light queues in a store.", (1, 10_000_000))
    delay_levels: str = _option(
        DEFAULT_DELAY_LEVELS,
        "Delays of the levels 1, 2, … of delayed messages: numbers with s, m, h or d, separated by "
        "blanks.",
        words="RocketMQ's 18 levels, 1s to 2h",
    )
    deliver_delayed: bool = _option(
        True,
        "Whether an open store puts delayed messages into their own topics when they are due. "
        "Without it they wait for the next open that does.",
    )
    index_tags: bool | None = _option(
        None,
        "Whether the index has the tags of each message, too, as RocketMQ 5.4 and later writes it. "
        "A broker finds no message by its tags without it.",
        words="as the store has it; `False` in a new store",
        kept=True,
    )
    lock_segments: bool = _option(
        False,
        "Whether the segment that puts go to is locked into memory, page by page as it is used, "
        "until it is full. RLIMIT_MEMLOCK has to allow the sizes of two; else a warning says that "
        "nothing is locked.",
    )


def facts_of(item: dataclasses.Field[Any]) -> Facts:
    """The facts of a field of `Options`."""
    facts: Facts = item.metadata["facts"]
    return facts


def number_text(number: int, unit: str) -> str:
    """A number as people write it: 64 KiB, one day, 2^28."""
    if unit == "bytes":
        for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
            if number and number % size == 0:
                return f"{number // size} {name}"
    if unit == "ms" and number == DAY_MS:
        return "one day"
    return f"{number:,} {unit}".strip()


@dataclass(frozen=True, slots=True)
class Explained:
    """An option in words, for the table of `docs/options.md` and for `help`."""

    name: str
    text: str
    default: str
    allowed: str
    rocketmq: tuple[str, ...]
    where: str


def explain() -> Iterator[Explained]:
    """Every option in words, in the order of `Options`."""
    theirs = {option.name: option.rocketmq for option in OPTIONS}
    for item in dataclasses.fields(Options):
        facts = facts_of(item)
        value: Any = item.default
        number = facts.allowed is not None
        default = number_text(value, facts.unit) if number else repr(value)
        allowed = ""
        if facts.allowed is not None:
            low, high = facts.allowed
            least = number_text(low, facts.unit).removesuffix(f" {facts.unit}")
            allowed = f"{least} … {number_text(high, facts.unit)}"
        elif isinstance(value, bool):
            allowed = "True, False"
        elif value is None:
            allowed = "True, False, None"
        yield Explained(
            name=item.name,
            text=facts.text,
            default=facts.default or default.replace("'", '"'),
            allowed=allowed,
            rocketmq=theirs.get(item.name, ()),
            where="kept with the store"
            if facts.kept
            else "given at each open; may change while the store is open"
            if facts.live
            else "given at each open",
        )


def help_text() -> str:
    """All options in words, for a docstring."""
    lines = []
    for one in explain():
        facts = [f"Default {one.default}"]
        facts += [f"allowed {one.allowed}"] if one.allowed else []
        facts += [one.where]
        facts += [f"RocketMQ: {', '.join(one.rocketmq)}"] if one.rocketmq else []
        text = f"{one.name}: {one.text} {'; '.join(facts)}."
        wrapped = textwrap.wrap(text, 88, subsequent_indent="    ", break_on_hyphens=False)
        lines += [f"    {line}" for line in wrapped]
    return "\n".join(lines)
