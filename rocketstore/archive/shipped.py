"""`rocketstore/shipped.json`: what of a log each archive has, noted beside the log by each shipment.

    {"version": 1, "archives": {"s3://lake/orders": [[0, 3221225472]]}}

A retention that keeps what was not shipped reads it. It is a note, so it may lack what an archive
has: a shipment by a user who may not write here leaves none. It never says more than a manifest
said: each shipment writes the whole range list of its archive once the manifest is in place.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from rocketstore.log.layout.atomic_files import write_state_file
from rocketstore.log.layout.rocketmq_json import read_json

if TYPE_CHECKING:
    from rocketstore.archive.manifest import Manifest
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["note_shipped", "unshipped_from"]

logger = logging.getLogger(__name__)

VERSION: Final = 1
MAX_BYTES: Final = 16 << 20
MAX_DEPTH: Final = 8

#: Begin and end of a part of the log, physical offsets.
Range = tuple[int, int]


def note_shipped(layout: StoreLayout, uri: str, manifest: Manifest) -> None:
    """Notes what the archive at `uri` has of this log. A log that cannot be written to is not noted
    on: a line in the log says so."""
    whole = [segment for segment in manifest.segments if not segment.tail_of]
    ranges = _joined((segment.start_offset, segment.end_offset) for segment in whole)
    found = _load(layout)
    if found.get(uri) == ranges:
        return
    document = {"version": VERSION, "archives": {**found, uri: ranges}}
    try:
        write_state_file(layout, layout.shipped, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        logger.info("%s: what was shipped is not noted: %s", layout.root, error)


def unshipped_from(layout: StoreLayout, begin: int, end: int) -> tuple[int, list[str]]:
    """The first physical offset from `begin` on that no archive has, and the archives that are
    known. `end`: of the log; a note that names more is of another log, and not believed."""
    archives = {
        uri: ranges
        for uri, ranges in _load(layout).items()
        if all(last <= end for _, last in ranges)
    }
    at = begin
    for first, last in _joined(part for ranges in archives.values() for part in ranges):
        if first <= at < last:
            at = last
    return at, sorted(archives)


def _load(layout: StoreLayout) -> dict[str, list[Range]]:
    found = read_json(layout.shipped, MAX_BYTES, MAX_DEPTH)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        return {}
    archives = found.get("archives")
    if not isinstance(archives, dict):
        return {}
    try:
        return {str(uri): _joined(map(_range, ranges)) for uri, ranges in archives.items()}
    except (TypeError, ValueError) as error:
        logger.warning("%s is no note of shipments, nothing counts as shipped: %r",
                       layout.shipped, error)  # fmt: skip
        return {}


def _range(found: Any) -> Range:
    first, last = found
    if type(first) is not int or type(last) is not int or not 0 <= first <= last < 2**63:
        raise ValueError(f"{found!r} is no part of a log")
    return first, last


def _joined(parts: Iterable[Range]) -> list[Range]:
    """The same bytes as ranges that are sorted and apart."""
    joined: list[Range] = []
    for first, last in sorted(parts):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined
