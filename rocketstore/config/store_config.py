"""The options of a store: one frozen value, checked when it is built.

Names follow RocketMQ's, written out, with the unit last. `options` says what each option does;
`rocketmq` turns a broker's settings into a `StoreConfig`.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Unpack, cast

from rocketstore._native.format.constants import (
    BLANK_BYTES,
    RECORD_BYTES_MIN,
    RECORD_CRC_BYTES,
    UNIT_SIZE,
)
from rocketstore.config.options import Options, facts_of, help_text
from rocketstore.config.rocketmq import options_of_broker
from rocketstore.config.units import GIB, KIB, IgnoredOption
from rocketstore.errors import ConfigError
from rocketstore.values.delay_levels import parse_delay_levels
from rocketstore.values.durability import durability_of, split_host
from rocketstore.values.public import public

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from rocketstore.config.typed_options import StoreOptions

__all__ = ["StoreConfig"]

#: Room for topic, properties and header of a record with the largest body; RocketMQ's reserve.
RECORD_RESERVE_BYTES: Final = 64 * KIB
#: Options that take one of a few words; each has a check of its own.
OF_WORDS: Final = ("durability", "visible")
#: Names of options on the command line and in Spark that are not like those here.
ELSEWHERE: Final = dict.fromkeys(("segment_bytes", "segmentBytes"), "commit_log_file_size_bytes")


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig(Options):
    """Options of a store. Wrong names, types and values raise `ConfigError`.

    `given` names the options that the caller set. The sizes of an existing store come from its
    files: only an option that was *given* and disagrees with them is an error. The options marked
    as kept stay with the store; each open says the others again, or gets their defaults.

    Options:
        {options}
    """

    #: Names of the options that the caller set.
    given: frozenset[str] = field(init=False, repr=False, compare=False)
    #: What `from_rocketmq` could not take over.
    ignored: tuple[IgnoredOption, ...] = field(init=False, repr=False, compare=False)

    #: Names of the options that `Store.configure` may change while the store is open.
    LIVE: ClassVar[frozenset[str]] = frozenset(
        item.name for item in dataclasses.fields(Options) if facts_of(item).live
    )

    def __new__(cls, **options: object) -> Self:
        names = [item.name for item in dataclasses.fields(cls) if item.init]
        for name, value in options.items():
            if name not in names:
                close = difflib.get_close_matches(ELSEWHERE.get(name, name), names, n=1)
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
        units = -(-self.consume_queue_file_size_bytes // UNIT_SIZE)
        self._set("consume_queue_file_size_bytes", units * UNIT_SIZE)
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
        facts = item.metadata.get("facts")
        if facts is not None and facts.allowed is not None:
            low, high = facts.allowed
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise ConfigError(item.name, value, f"must be a whole number, {low} … {high}")
            number = operator.index(value)
            if not low <= number <= high:
                raise ConfigError(item.name, value, f"must be {low} … {high}")
            self._set(item.name, number)
        elif isinstance(item.default, bool):
            if not isinstance(value, bool):
                raise ConfigError(item.name, value, "must be True or False")
        elif item.default is None:
            if value is not None and not isinstance(value, bool):
                raise ConfigError(item.name, value, "must be True, False or None")
        elif item.name not in OF_WORDS and not isinstance(value, str):
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
        if "write_buffer_bytes" not in self.given:  # it follows the message size
            buffer = min(max(self.write_buffer_bytes, self.record_limit_bytes), GIB)
            self._set("write_buffer_bytes", buffer)
        if self.promises_disk and self.record_limit_bytes > self.write_buffer_bytes:
            raise ConfigError(
                "write_buffer_bytes",
                self.write_buffer_bytes,
                f"must hold the largest record, {self.record_limit_bytes} "
                f"for max_message_size_bytes={self.max_message_size_bytes}",
            )

    @property
    def record_limit_bytes(self) -> int:
        """Largest record: the largest body and RocketMQ's reserve for the rest, if a file has
        room."""
        return min(
            self.max_message_size_bytes + RECORD_RESERVE_BYTES,
            self.commit_log_file_size_bytes - BLANK_BYTES,
        )

    @property
    def visible_is_flushed(self) -> bool:
        """Whether readers see only what a loss of power cannot take back."""
        if self.visible == "auto":
            return self.promises_disk
        return self.visible == "flushed"

    @property
    def promises_disk(self) -> bool:
        """Whether a put returns only once the disk of this machine has its message."""
        return self.durability not in ("memory", "os")

    @property
    def delay_level_ms(self) -> tuple[int, ...]:
        """Delay of level 1, 2, …"""
        return parse_delay_levels(self.delay_levels)

    def replace(self, **changes: Unpack[StoreOptions]) -> StoreConfig:
        """Gives a copy with some options changed. An option that nobody gave keeps following its
        default.

        Raises:
            ConfigError: An option that there is not, or a wrong value.
        """
        options = {name: getattr(self, name) for name in self.given}
        config = StoreConfig(**{**options, **changes})
        object.__setattr__(config, "ignored", self.ignored)
        return config

    def __replace__(self, /, **changes: Unpack[StoreOptions]) -> StoreConfig:
        return self.replace(**changes)

    def to_dict(self) -> StoreOptions:
        """Gives the options and their values as plain types: `StoreConfig(**config.to_dict()) ==
        config`.

        Raises nothing.
        """
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
        """Takes over the settings of a broker: a mapping, or the path of its `broker.conf`.

        An option that the broker does not set gets RocketMQ's default, so that its promises stay
        the same. `options` win over both. `ignored` of the result lists the settings without effect
        here. Those with which the broker keeps what rocketstore does not, as queues in RocksDB, have
        `matters` there, and are logged as warnings.

        Raises:
            ConfigError: A setting that cannot be read, or an option that contradicts another.
            OSError: The file cannot be read.
        """
        found, ignored = options_of_broker(properties)
        given: dict[str, Any] = {**found, **options}
        config = cls(**given)
        config._set("ignored", ignored)
        return config


# The compiler of Python 3.13 takes the indentation from a docstring; earlier ones leave it.
_DOC = inspect.cleandoc(StoreConfig.__doc__ or "")
StoreConfig.__doc__ = _DOC.replace("    {options}", help_text())
