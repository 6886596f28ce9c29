"""The options of a store: one frozen value, checked when it is built.

Names follow RocketMQ's, written out, with the unit last. Every field says what it does, its unit,
its default, what is allowed and what RocketMQ calls it; `rocketstore.config.rocketmq` turns a
broker's settings into a `StoreConfig`.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack, cast

from rocketstore.config.rocketmq import options_of_broker
from rocketstore.config.typed_options import Visible
from rocketstore.config.units import DAY_MS, GIB, INT32_MAX, KIB, MIB, IgnoredOption
from rocketstore.errors import ConfigError
from rocketstore.values.durability import (
    DEFAULT_DELAY_LEVELS,
    Durability,
    durability_of,
    parse_delay_levels,
    split_host,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from rocketstore.config.typed_options import StoreOptions

__all__ = ["StoreConfig"]

#: Bytes that stay free at the end of each commit log file: the header of the blank (format.md 3.2).
BLANK_BYTES: Final = 8
#: An IPv4 record without body and properties and with a topic of one byte.
RECORD_BYTES_MIN: Final = 92
#: The record CRC property (format.md 2.6).
RECORD_CRC_BYTES: Final = 20
#: Room for topic, properties and header beside a body of the largest size, as RocketMQ reserves it.
RECORD_RESERVE_BYTES: Final = 64 * KIB
QUEUE_UNIT_BYTES: Final = 20


def _number(default: int, low: int, high: int) -> int:
    """A field that holds a whole number in [low, high]."""
    number: Any = field(default=default, metadata={"range": (low, high)})
    return number  # type: ignore[no-any-return]  # dataclass puts the number in its place


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Options of a store. Wrong names, types and values raise `ConfigError`.

    `given` names the options that were set by the caller: sizes of an existing store come from its
    files, and only an option that was *given* and disagrees with them is an error.
    """

    #: Size of each commit log file, in bytes. A multiple of 4096 is advised. Default 1 GiB,
    #: allowed 256 … 2,147,483,647. RocketMQ: `mappedFileSizeCommitLog`.
    commit_log_file_size_bytes: int = _number(GIB, 256, INT32_MAX)
    #: Size of each consume queue file, in bytes, rounded up to whole units of 20. Default 6,000,000
    #: (300,000 units), allowed 20 … 2,147,483,640. RocketMQ: `mappedFileSizeConsumeQueue`.
    consume_queue_file_size_bytes: int = _number(6_000_000, QUEUE_UNIT_BYTES, 2_147_483_640)

    #: Directories with files of the commit log, with "," between them; relative ones count from the
    #: store's directory. One that is not the store's own, or several, can be read and not written.
    #: Default "": `commitlog` in the store. RocketMQ: `storePathCommitLog`.
    commit_log_dir: str = ""
    #: More of them, to which RocketMQ does not write. Default "". RocketMQ:
    #: `readOnlyCommitLogStorePaths`.
    read_only_commit_log_dirs: str = ""

    #: Largest body, in bytes. Default 4 MiB, or what fits a commit log file where that is less;
    #: allowed 1 … what fits a file. May change while running, in a "disk" store to no more than its write
    #: buffer was made for. RocketMQ: `maxMessageSize`.
    max_message_size_bytes: int = _number(4 * MIB, 1, INT32_MAX)
    #: Whether topics of 128 to 255 bytes are stored, as V2 records, which RocketMQ before 5.1
    #: cannot read. Default False. RocketMQ: `autoMessageVersionOnTopicLen`.
    auto_wide_topic: bool = False
    #: Address of this store in its records and message ids, "ip:port", IPv6 in brackets.
    #: Default "127.0.0.1:10911". RocketMQ: `brokerIP1` and `listenPort`.
    store_host: str = "127.0.0.1:10911"

    #: What is true when `put` returns: "memory", "os" or "disk". Default "disk". RocketMQ:
    #: `flushDiskType`, with `transientStorePoolEnable` for "memory".
    durability: Durability = "disk"
    #: How far readers see: "flushed", "committed", or "auto": flushed in a store whose durability
    #: is "disk", else committed. Default "auto". RocketMQ: `readUnCommitted` is "committed".
    visible: Visible = "auto"
    #: Bytes written and not yet flushed, at which puts wait. Default 256 MiB, allowed 64 KiB … 64
    #: GiB. RocketMQ: none; it guesses from lock times (`osPageCacheBusyTimeOutMills`).
    max_unflushed_bytes: int = _number(256 * MIB, 64 * KIB, 64 * GIB)
    #: Bytes visible and not yet dispatched, at which puts wait. Default 64 MiB, allowed 64 KiB … 64
    #: GiB. RocketMQ: none.
    max_undispatched_bytes: int = _number(64 * MIB, 64 * KIB, 64 * GIB)
    #: Longest that a put waits for room, a file or a lock, in ms. Default 5000, allowed 0 … one
    #: day. RocketMQ: `putMessageTimeout`.
    max_wait_ms: int = _number(5000, 0, DAY_MS)
    #: Longest that a put waits for its sync, in ms. Default 5000, allowed 1 … one day. From 1000 on a put
    #: that waits alone syncs in its own thread while the disk is quick, and is not interrupted there.
    #: RocketMQ: `syncFlushTimeout`.
    sync_flush_timeout_ms: int = _number(5000, 1, DAY_MS)
    #: Whether a store on a network file system may be opened for writing: such systems do not keep
    #: the promises on locks and syncs that durability needs. Default False. RocketMQ: none.
    allow_network_file_system: bool = False

    #: Whether each record carries a CRC over all its bytes, 20 more a message. Default True; it is
    #: always verified where it is present. RocketMQ: `enabledAppendPropCRC` (default false).
    record_crc: bool = True
    #: Whether recovery verifies body CRCs. Default True. RocketMQ: `checkCRCOnRecover`.
    check_crc_on_recover: bool = True

    #: Ring in which records of a "disk" store wait for the next sync, in bytes. Default 8 MiB,
    #: allowed 64 KiB … 1 GiB, at least one record of the largest size. RocketMQ: none.
    write_buffer_bytes: int = _number(8 * MIB, 64 * KIB, GIB)
    #: Whether a new commit log file of a "disk" store is filled with zeros before it is used, so that a
    #: sync overwrites blocks and changes no metadata. Its making takes longer, in a thread of its own.
    #: Without it small flushes bring zeros for the next 512 KiB along. Default False. RocketMQ:
    #: `warmMapedFileEnable`.
    prewrite: bool = False
    #: How far pages are populated ahead of the writer in an "os" store, in bytes; 0 never: single puts make each
    #: page themselves, batches are written by calls. Default 32 MiB, allowed 0 … 1 GiB. RocketMQ:
    #: `warmMapedFileEnable`.
    populate_window_bytes: int = _number(32 * MIB, 0, GIB)
    #: Write buffers, each of a commit log file's size, of a "memory" store. Default 5, allowed 1 …
    #: 1024. RocketMQ: `transientStorePoolSize`.
    transient_pool_buffers: int = _number(5, 1, 1024)
    #: Whether a put of a "memory" store fails at once when no write buffer is left; else the next
    #: file goes without one. Default False. RocketMQ: `fastFailIfNoBufferInStorePool`.
    transient_pool_fast_fail: bool = False

    #: Time between flushes of an "os" or "memory" store, in ms. Default 500, allowed 1 … one day.
    #: May change while running. RocketMQ: `flushIntervalCommitLog`.
    flush_interval_ms: int = _number(500, 1, DAY_MS)
    #: Whether the flusher sleeps its whole interval; else a put may wake it. Default True. May
    #: change while running. RocketMQ: `flushCommitLogTimed`.
    flush_timed: bool = True
    #: Pages of 4096 bytes that must be dirty before a timed flush acts. Default 4, allowed 0 …
    #: 2,147,483,647. May change while running. RocketMQ: `flushCommitLogLeastPages`.
    flush_least_pages: int = _number(4, 0, INT32_MAX)
    #: Time after which a flush takes whatever is dirty, in ms. Default 10,000, allowed 0 … one day.
    #: May change while running. RocketMQ: `flushCommitLogThoroughInterval`.
    flush_thorough_interval_ms: int = _number(10_000, 0, DAY_MS)
    #: Whether each put of an "os" store wakes the flusher. Default False. RocketMQ:
    #: `wakeFlushWhenPutMessage`.
    wake_flush_on_put: bool = False
    #: Time between commits of a "memory" store, in ms. Default 200, allowed 1 … one day. May change
    #: while running. RocketMQ: `commitIntervalCommitLog`.
    commit_interval_ms: int = _number(200, 1, DAY_MS)
    #: Pages of 4096 bytes that must be waiting before a commit acts. Default 4, allowed 0 …
    #: 2,147,483,647. May change while running. RocketMQ: `commitCommitLogLeastPages`.
    commit_least_pages: int = _number(4, 0, INT32_MAX)
    #: Time after which a commit takes whatever is waiting, in ms. Default 200, allowed 0 … one day.
    #: May change while running. RocketMQ: `commitCommitLogThoroughInterval`.
    commit_thorough_interval_ms: int = _number(200, 0, DAY_MS)
    #: Whether each put of a "memory" store wakes the committer. Default True. RocketMQ:
    #: `wakeCommitWhenPutMessage`.
    wake_commit_on_put: bool = True
    #: Time between flushes of consume queues, in ms. Default 1000, allowed 1 … one day. May change
    #: while running. RocketMQ: `flushIntervalConsumeQueue`.
    consume_queue_flush_interval_ms: int = _number(1000, 1, DAY_MS)

    #: Whether keys are indexed. Default True. RocketMQ: `messageIndexEnable`.
    index_enabled: bool = True
    #: Hash slots of a new index file, 4 bytes each. Default 5,000,000, allowed 1 … 2²⁸. RocketMQ:
    #: `maxHashSlotNum`.
    index_slots: int = _number(5_000_000, 1, 2**28)
    #: Entries of a new index file, 20 bytes each; the first is never used. Default 20,000,000,
    #: allowed 2 … 100,000,000. RocketMQ: `maxIndexNum`.
    index_entries: int = _number(20_000_000, 2, 100_000_000)
    #: Most messages that one query by key gives. Default 64, allowed 1 … 1,000,000. RocketMQ:
    #: `maxMsgsNumBatch`.
    max_query_results: int = _number(64, 1, 1_000_000)
    #: Messages that a query by key gives when it does not say how many. Default 32, allowed
    #: 1 … 1,000,000. RocketMQ: `defaultQueryMaxNum`.
    default_query_results: int = _number(32, 1, 1_000_000)

    #: Whether a message may name further queues that get a unit too. Default False. RocketMQ:
    #: `enableMultiDispatch`.
    multi_dispatch_enabled: bool = False
    #: Whether such names may be light queues (`%LMQ%…`); needs `multi_dispatch_enabled`. Default
    #: False. RocketMQ: `enableLmq`.
    light_queue_enabled: bool = False
    #: Most light queues in a store. Default 20,000, allowed 1 … 10,000,000. RocketMQ:
    #: `maxLmqConsumeQueueNum`.
    max_light_queues: int = _number(20_000, 1, 10_000_000)
    #: Delays of the levels 1, 2, … of delayed messages: numbers with s, m, h or d, blanks between.
    #: Default RocketMQ's 18 levels, 1s to 2h. RocketMQ: `messageDelayLevel`.
    delay_levels: str = DEFAULT_DELAY_LEVELS

    #: Names of the options that the caller set.
    given: frozenset[str] = field(init=False, repr=False, compare=False)
    #: What `from_rocketmq` could not take over.
    ignored: tuple[IgnoredOption, ...] = field(init=False, repr=False, compare=False)

    #: What `Store.configure` may change while the store runs.
    LIVE: ClassVar[frozenset[str]] = frozenset(
        {
            "commit_interval_ms",
            "commit_least_pages",
            "commit_thorough_interval_ms",
            "consume_queue_flush_interval_ms",
            "flush_interval_ms",
            "flush_least_pages",
            "flush_thorough_interval_ms",
            "flush_timed",
            "max_message_size_bytes",
        }
    )

    def __new__(cls, **options: object) -> Self:
        names = [item.name for item in dataclasses.fields(cls) if item.init]
        for name, value in options.items():
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ConfigError(name, value, f"there is no such option{hint}")
        self = object.__new__(cls)
        object.__setattr__(self, "given", frozenset(options))
        object.__setattr__(self, "ignored", ())
        return self

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            if item.init:
                self._check(item)
        self._set("durability", durability_of(self.durability))
        self._check_texts()
        units = -(-self.consume_queue_file_size_bytes // QUEUE_UNIT_BYTES)
        self._set("consume_queue_file_size_bytes", units * QUEUE_UNIT_BYTES)
        self._check_message_size()
        if self.light_queue_enabled and not self.multi_dispatch_enabled:
            raise ConfigError(
                "light_queue_enabled", True, "needs multi_dispatch_enabled=True as well"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check(self, item: dataclasses.Field[Any]) -> None:
        """Type and range of one option. A bool is not a number, whatever Python says."""
        value = getattr(self, item.name)
        if "range" in item.metadata:
            low, high = item.metadata["range"]
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise ConfigError(item.name, value, f"must be a whole number, {low} … {high}")
            number = operator.index(value)
            if not low <= number <= high:
                raise ConfigError(item.name, value, f"must be {low} … {high}")
            self._set(item.name, number)
        elif isinstance(item.default, bool):
            if not isinstance(value, bool):
                raise ConfigError(item.name, value, "must be True or False")
        elif not isinstance(value, str):
            raise ConfigError(item.name, value, "must be text")

    def _check_texts(self) -> None:
        if self.visible not in ("auto", "flushed", "committed"):
            raise ConfigError("visible", self.visible, 'must be "auto", "flushed" or "committed"')
        split_host(self.store_host)
        parse_delay_levels(self.delay_levels)

    def _check_message_size(self) -> None:
        """A message that is allowed must fit: in a file (K-20), and in the write buffer."""
        overhead = BLANK_BYTES + RECORD_BYTES_MIN + (RECORD_CRC_BYTES if self.record_crc else 0)
        fitting = self.commit_log_file_size_bytes - overhead
        if "max_message_size_bytes" not in self.given:
            self._set("max_message_size_bytes", min(self.max_message_size_bytes, fitting))
        elif self.max_message_size_bytes > fitting:
            raise ConfigError(
                "max_message_size_bytes",
                self.max_message_size_bytes,
                f"must be at most {fitting} in files of {self.commit_log_file_size_bytes}",
            )
        if self.durability == "disk" and self.record_limit_bytes > self.write_buffer_bytes:
            raise ConfigError(
                "write_buffer_bytes",
                self.write_buffer_bytes,
                f"must hold the largest record, {self.record_limit_bytes} "
                f"for max_message_size_bytes={self.max_message_size_bytes}",
            )

    @property
    def record_limit_bytes(self) -> int:
        """Largest record: the largest body and RocketMQ's reserve beside it, if a file has room."""
        return min(
            self.max_message_size_bytes + RECORD_RESERVE_BYTES,
            self.commit_log_file_size_bytes - BLANK_BYTES,
        )

    @property
    def visible_is_flushed(self) -> bool:
        """Whether readers see only what a loss of power cannot take back."""
        if self.visible == "auto":
            return self.durability == "disk"
        return self.visible == "flushed"

    @property
    def delay_level_ms(self) -> tuple[int, ...]:
        """Delay of level 1, 2, …"""
        return parse_delay_levels(self.delay_levels)

    def replace(self, **changes: Unpack[StoreOptions]) -> StoreConfig:
        """A copy with some options changed. What was never given follows the defaults anew."""
        options = {name: getattr(self, name) for name in self.given}
        config = StoreConfig(**{**options, **changes})
        object.__setattr__(config, "ignored", self.ignored)
        return config

    def __replace__(self, /, **changes: Unpack[StoreOptions]) -> StoreConfig:
        return self.replace(**changes)

    def to_dict(self) -> StoreOptions:
        """Options and values as plain types: `StoreConfig(**config.to_dict()) == config`."""
        options = {
            item.name: str(value) if isinstance(value, str) else value
            for item in dataclasses.fields(self)
            if item.init
            for value in (getattr(self, item.name),)
        }
        return cast("StoreOptions", options)

    @classmethod
    def from_rocketmq(
        cls, properties: Mapping[str, str] | str | os.PathLike[str], **options: Unpack[StoreOptions]
    ) -> StoreConfig:
        """The settings of a broker: a mapping, or the path of its `broker.conf`.

        What a broker does not set gets RocketMQ's default, so that its promises stay the same;
        `options` win over both. `ignored` of the result lists the settings without effect here.
        """
        found, ignored = options_of_broker(properties)
        given: dict[str, Any] = {**found, **options}
        # A broker has no such buffer, and knows no bound but `maxMessageSize`.
        least = cls(**{**given, "durability": "os"})
        if least.record_limit_bytes > least.write_buffer_bytes:
            given = {"write_buffer_bytes": min(least.record_limit_bytes, GIB), **given}
        config = cls(**given)
        config._set("ignored", ignored)
        return config
