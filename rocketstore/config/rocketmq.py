"""What a broker's settings become here, by the table of `rocketmq_options`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

from rocketstore.config.rocketmq_options import OPTIONS, Option
from rocketstore.config.typed_options import StoreOptions
from rocketstore.config.units import IgnoredOption
from rocketstore.errors import ConfigError

__all__ = ["options_of_broker", "read_properties"]

logger = logging.getLogger(__name__)


_UNKNOWN = "not an option of the message store"
#: Options whose value is not simply carried over.
_SPECIAL: Final = frozenset(
    {
        "flushDiskType",
        "transientStorePoolEnable",
        "readUnCommitted",
        "messageIndexEnable",
        "indexFileWriteEnable",
        "brokerIP1",
        "listenPort",
        "storePathCommitLog",
        "readOnlyCommitLogStorePaths",
    }
)
#: Options by their names in small letters.
_BY_LOWER: Final = {java.lower(): java for option in OPTIONS for java in option.rocketmq}
#: Separator of the directories in one setting; a system property of the broker may change
#: it.
_BETWEEN_PATHS: Final = ","


def options_of_broker(
    properties: Mapping[str, str] | str | os.PathLike[str],
) -> tuple[dict[str, Any], tuple[IgnoredOption, ...]]:
    """The options of `StoreConfig` that a broker's settings ask for, and the settings without
    effect here. Of these the log names each that makes RocketMQ keep what rocketstore does not.

    Raises:
        ConfigError: a value that cannot be read.
        OSError: the file cannot be read.
    """
    if isinstance(properties, str | os.PathLike):
        properties = read_properties(properties)
    elif not isinstance(properties, Mapping):  # a number would be somebody's open file
        raise ConfigError(
            "properties", properties, "must be a mapping, or the path of a broker.conf"
        )
    for java, value in properties.items():
        if not isinstance(value, str):
            raise ConfigError(java, value, f"must be text, as in broker.conf: {str(value)!r}")
    found: dict[str, Any] = {
        "record_crc": False,
        **_promises(properties),
        **_log_directories(properties),
    }
    ignored = []
    by_name = {java: option for option in OPTIONS for java in option.rocketmq}
    rank = {java: place for option in OPTIONS for place, java in enumerate(option.rocketmq)}
    # The newest spelling wins over older ones, in any order.
    for java in sorted(properties, key=lambda name: -rank.get(name, 0)):
        option = by_name.get(java)
        if option is None or option.name is None:
            ignored.append(_ignored(java, properties[java], option))
        elif java not in _SPECIAL:
            found[option.name] = _convert(java, option.name, properties[java])
    return found, tuple(sorted(ignored))


def _ignored(java: str, value: str, option: Option | None) -> IgnoredOption:
    if option is None and (known := _BY_LOWER.get(java.lower())):
        note = f"no option of RocketMQ, which has {known} and takes its default: write it so"
        logger.warning("%s = %s: %s", java, value, note)
        return IgnoredOption(java, value, note, matters=True)
    if option is None:
        return IgnoredOption(java, value, _UNKNOWN)
    plain = option.harmless
    matters = plain is not None and value.strip().lower() != plain
    if plain == "false":
        matters = _java_bool(value)
    if matters:
        logger.warning("%s = %s: %s", java, value, option.note)
    return IgnoredOption(java, value, option.note, matters)


def _log_directories(properties: Mapping[str, str]) -> dict[str, str]:
    """Where the log lies. Paths under the broker's root are relative to it, so that a copy of a
    store does not lead to the log of its model."""
    root = properties.get("storePathRootDir", "").strip()
    found = {}
    for name, java in (
        ("commit_log_dir", "storePathCommitLog"),
        ("read_only_commit_log_dirs", "readOnlyCommitLogStorePaths"),
    ):
        text = properties.get(java, "").strip()
        if text:
            paths = [_under(root, path) for path in text.split(_BETWEEN_PATHS) if path]
            found[name] = _BETWEEN_PATHS.join(paths)
    return found


def _under(root: str, path: str) -> str:
    if not root or os.path.isabs(root) != os.path.isabs(path):
        return path
    inside = os.path.relpath(path, root)
    return path if inside.split(os.sep)[0] == os.pardir else inside


def _promises(properties: Mapping[str, str]) -> dict[str, Any]:
    """The options that RocketMQ spreads over several of its own."""
    mode = properties.get("flushDiskType", "ASYNC_FLUSH")
    if mode not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ConfigError("flushDiskType", mode, "must be ASYNC_FLUSH or SYNC_FLUSH")
    pool = _java_bool(properties.get("transientStorePoolEnable", "false"))
    found: dict[str, Any] = {}
    if mode == "SYNC_FLUSH":
        found["durability"] = "disk"  # with a pool as well: the promise is what counts (K-08)
    else:
        found["durability"] = "memory" if pool else "os"
    if _java_bool(properties.get("readUnCommitted", "false")):
        found["visible"] = "committed"
    indexes = ("messageIndexEnable", "indexFileWriteEnable")
    if any(name in properties for name in indexes):
        found["index_enabled"] = all(_java_bool(properties.get(name, "true")) for name in indexes)
    if "brokerIP1" in properties or "listenPort" in properties:
        address = properties.get("brokerIP1", "127.0.0.1")
        host = f"[{address}]" if ":" in address else address
        found["store_host"] = f"{host}:{properties.get('listenPort', '10911')}"
    return found


def _java_bool(text: str) -> bool:
    """As Boolean.parseBoolean: everything but true, in any case, is false."""
    return text.strip().lower() == "true"


def _convert(java: str, name: str, text: str) -> int | bool | str:
    kind = get_type_hints(StoreOptions)[name]
    if kind is bool:
        return _java_bool(text)
    if kind is not int:
        return text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
        raise ConfigError(java, text, "must be a whole number")
    return int(text)


# ---- Java properties files, in which a broker keeps its settings ----

#: A settings file is a few kilobytes; anything near this is not one.
PROPERTIES_BYTES_MAX: Final = 4 * 1024 * 1024


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """A Java properties file: `name = value`, `#` and `!` comments, continuation, escapes. UTF-8, or
    UTF-16 that begins with a byte order mark."""
    with open(path, "rb") as file:
        data = file.read(PROPERTIES_BYTES_MAX + 1)
    if len(data) > PROPERTIES_BYTES_MAX:
        raise ConfigError(
            "properties", os.fspath(path), f"must be at most {PROPERTIES_BYTES_MAX} bytes"
        )
    utf_16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if utf_16 else "utf-8-sig", errors="replace")
    if "\0" in text:  # else no name of an option would be known
        raise ConfigError("properties", os.fspath(path), "is no text in UTF-8: save it as UTF-8")
    found = {}
    for line in _logical_lines(text):
        # A name ends at the first =, : or blank that is not escaped.
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        assert match is not None  # every part of the pattern may be empty
        found[_unescape(match[1])] = _unescape(match[2]).strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; an odd number of backslashes at the end joins the next one."""
    parts: list[str] = []
    for raw in text.splitlines():
        line = raw.lstrip()
        if not parts and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        if part := line[: len(line) - goes_on]:
            parts.append(part)
        if not goes_on:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escaped, escaped)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text, flags=re.DOTALL)
