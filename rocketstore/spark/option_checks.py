"""Checks of options that the source and the sink share. Spark lowers the names of all options."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping, Sequence

from rocketstore.errors import FilterSyntaxError
from rocketstore.filters import sql_filter
from rocketstore.spark.errors import SparkFaceError, bad_option

__all__ = [
    "check_names",
    "choice",
    "duration",
    "number",
    "size",
    "sql_expression",
    "switch",
    "without_kafkas",
]

logger = logging.getLogger(__name__)

#: What was warned of in this process.
_warned: set[str] = set()

#: Options that Spark itself adds to those of a source or sink.
SPARK_OWN = {"checkpointlocation", "queryname", "header", "__internal"}
#: Options that Spark adds for a table of its catalog (CREATE TABLE … USING rocketstore).
TABLE_OWN = {"owner", "provider"}
#: The library's own names of options, which are not those of Spark in snake case.
LIBRARYS = {"commit_log_file_size_bytes": "segmentbytes"}
#: Options that only this package gives to itself: errors do not name them.
INNER = {"conditions", "askFilters"}
#: Options of Kafka's connector that are about its clients, as Spark lowers them.
KAFKAS_OWN = {"groupidprefix", "maxrecordsperpartition"}
KAFKAS_OWN_PREFIXES = ("fetchoffset.", "kafkaconsumer.")
DURATION = re.compile(r"([0-9]{1,18})\s*(ms|s|m|min|h)", re.IGNORECASE)
DURATIONS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}
SIZE = re.compile(r"([0-9]{1,18})\s*([kmg]?)i?b?", re.IGNORECASE)
UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


def check_names(options: Mapping[str, str], known: Mapping[str, str], what: str) -> dict[str, str]:
    """Options with lower-case names; refuses those that are unknown, and tables of Spark's catalog.
    Names in snake case, as the arguments of the library have them, mean the same.

    Raises:
        SparkFaceError: RS_UNKNOWN_OPTION, which names the one that may be meant; RS_NO_PATH;
            RS_BAD_OPTION: a table of the catalog, one option by two names.
    """
    given = _by_sparks_names({name.lower(): value for name, value in options.items()}, known)
    if set(given) >= TABLE_OWN:
        raise SparkFaceError(
            "RS_BAD_OPTION",
            "a table of Spark's catalog: Spark tells a source in Python none of its options when "
            "it is queried; CREATE TEMPORARY VIEW … USING rocketstore OPTIONS (…) keeps them",
        )
    unknown = sorted(set(given) - {name.lower() for name in known} - SPARK_OWN)
    if unknown:
        shown = {name.lower(): name for name in known if name not in INNER}
        near = [word for name in unknown for word in difflib.get_close_matches(name, shown, 1)]
        meant = f"; perhaps {', '.join(shown[word] for word in near)} is meant" if near else ""
        raise SparkFaceError(
            "RS_UNKNOWN_OPTION",
            f"{what} has no option {', '.join(unknown)}{meant}; known: "
            f"{', '.join(sorted(shown.values()))}",
        )
    if not given.get("path"):
        raise SparkFaceError(
            "RS_NO_PATH",
            f"{what} needs the option path: a store's directory; a table of Spark's catalog has no "
            "options, CREATE TEMPORARY VIEW … USING rocketstore OPTIONS (…) keeps them",
        )
    return given


def _by_sparks_names(given: dict[str, str], known: Mapping[str, str]) -> dict[str, str]:
    there = {name.lower(): name for name in known}
    found: dict[str, str] = {}
    for name, value in given.items():
        sparks = name if name in there else LIBRARYS.get(name, name.replace("_", ""))
        if sparks not in there:
            sparks = name
        elif sparks != name and sparks in given:
            raise bad_option(name, value, f"not together with {there[sparks]}, which it is")
        found[sparks] = value
    return found


def without_kafkas(options: Mapping[str, str], what: str) -> dict[str, str]:
    """The options but those of Kafka's clients, which have no meaning here. `kafka.…` is expected,
    of the others a warning says so, once."""
    kept, aside = {}, []
    for name, value in options.items():
        lower = name.lower()
        if lower in KAFKAS_OWN or lower.startswith(KAFKAS_OWN_PREFIXES):
            aside.append(name)
        elif not lower.startswith("kafka."):
            kept[name] = value
    text = f"{what} leaves aside options of Kafka's clients: {', '.join(sorted(aside))}"
    if aside and text not in _warned:
        _warned.add(text)
        logger.warning("%s", text)
    return kept


def duration(given: Mapping[str, str], name: str, default_s: float) -> float:
    """Seconds of a text as Spark writes it: `30s`, `15m`, `500ms`."""
    text = given.get(name.lower())
    if text is None:
        return default_s
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise bad_option(name, text, "a number and ms, s, m, min or h, like 15m")
    return int(match[1]) * DURATIONS_S[match[2].lower()]


def number(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number, and no size: `5m` is most likely meant as minutes."""
    return _whole(given, name, default, low, high, units=False)


def size(given: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A number of bytes, which may end in k, m or g."""
    return _whole(given, name, default, low, high, units=True)


def _whole(
    given: Mapping[str, str], name: str, default: int, low: int, high: int, *, units: bool
) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    match = SIZE.fullmatch(text.strip())
    if match and not units and match[0] != match[1]:
        match = None
    value = int(match[1]) << UNITS[match[2].lower()] if match else -1
    if not low <= value <= high:
        raise bad_option(name, text, f"a whole number, {low} … {high}")
    return value


def choice(given: Mapping[str, str], name: str, default: str, words: Sequence[str]) -> str:
    """One of some words, whose case does not matter."""
    text = given.get(name.lower(), default)
    if text.lower() not in words:
        raise bad_option(name, text, f"{', '.join(words[:-1])} or {words[-1]}")
    return text.lower()


def switch(given: Mapping[str, str], name: str, default: bool) -> bool:
    return choice(given, name, str(default).lower(), ("true", "false")) == "true"


def sql_expression(text: str) -> str:
    """The option `where`: an expression of RocketMQ's SQL92."""
    try:
        return sql_filter(text).text
    except FilterSyntaxError as error:
        raise bad_option("where", text, f"{error.hint}, at position {error.position}") from error
