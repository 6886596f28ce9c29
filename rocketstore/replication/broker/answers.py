"""What the bodies of a broker's answers say. Each function raises ValueError for what is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rocketstore.consuming.offset_tables import split_key
from rocketstore.values.bounded_json import LIMITS, parse_json

__all__ = ["delay_offsets", "end_of_log", "group_offsets", "groups", "topics"]

#: Names and numbers in the JSON of RocketMQ.
NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
OFFSET_MOST: Final = 2**63 - 1

Document = dict[str, object]


def topics(body: bytes) -> Document:
    """What `topics.json` holds. A broker of RocketMQ 5 adds the mapping of static topics, which is
    in another file."""
    return _table_of(_document(body, "topics.json"), "topicConfigTable", ())


def groups(body: bytes) -> Document:
    """What `subscriptionGroup.json` holds."""
    document = _document(body, "subscriptionGroup.json")
    return _table_of(document, "subscriptionGroupTable", ("forbiddenTable",))


def group_offsets(body: bytes) -> dict[str, dict[int, int]]:
    """Next queue offsets by "topic@group" and queue id. A row of another name is of no group, and
    would stay for ever. A negative offset, which a client may have stored, says that there is
    none."""
    return {
        key: {_number(name): offset for name, offset in _offsets(row) if offset >= 0}
        for key, row in _object(_document(body, "consumerOffset.json"), "offsetTable").items()
        if split_key(key) is not None
    }


def delay_offsets(body: bytes) -> tuple[dict[int, int], Document]:
    """Next queue offsets by delay level, and what else `delayOffset.json` holds."""
    document = _document(body, "delayOffset.json")
    found: dict[int, int] = {}
    for name, offset in _offsets(document.get("offsetTable")):
        level = _number(name)
        if level < 1 or offset < 0:
            raise ValueError(f"level {name} at offset {offset}")
        found[level] = offset
    return found, _version(document)


def end_of_log(body: bytes) -> int:
    """Physical offset at which the broker's log ends, of its runtime information."""
    found = _object(_document(body, "answer"), "table").get("commitLogMaxOffset")
    if not isinstance(found, str) or not re.fullmatch(r"[0-9]{1,19}", found):
        raise ValueError(f"commitLogMaxOffset is {found!r}"[:100])
    return int(found)


def _table_of(document: Document, name: str, others: tuple[str, ...]) -> Document:
    table = _object(document, name)
    for key, row in table.items():
        if not isinstance(row, dict):
            raise ValueError(f"{name}: {key[:100]!r} is no object")
    kept = {other: _object(document, other) for other in others if other in document}
    return {**_version(document), **kept, name: table}


def _document(body: bytes, name: str) -> Document:
    found = parse_json(body, LIMITS[name])
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _object(document: Document, name: str) -> Document:
    found = document.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"no object {name!r}")
    return found


def _version(document: Document) -> Document:
    found = document.get("dataVersion")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("dataVersion is no object")
    return {"dataVersion": found}


def _offsets(row: object) -> list[tuple[str, int]]:
    if not isinstance(row, Mapping):
        raise ValueError("offsets that are no object")
    for name, offset in row.items():
        if type(offset) is not int or not -OFFSET_MOST <= offset <= OFFSET_MOST:
            raise ValueError(f"{name[:100]!r} has no offset")
    return list(row.items())


def _number(name: str) -> int:
    if not NUMBER.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is no number of a queue or a level")
    return int(name)
