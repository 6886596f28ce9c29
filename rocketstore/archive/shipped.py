"""`rocketstore/shipped.json`: what of a log each archive has, noted next to the log by each shipment.

    {"version": 2, "archives": {"s3://lake/orders": [[0, 3221225472, 2774501893]]}}

A retention that keeps what was not shipped reads it. It is a note, so it may lack what an archive
has: a shipment by a user that may not write here leaves none. It never says more than a manifest
said: each shipment writes the whole range list of its archive once the manifest is in place.

A range has the checksum of a `LogPlace` at its end. It counts while the log has these bytes: a log
that lost its tail and grew again has others, which no archive has. An open that finds such a log
empties the note: then nothing shows that the log goes on an archive that it has trimmed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.archive.manifest import Manifest
from rocketstore.log.layout.log_place import LogPlace, place_at, stands
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json, write_own_json
from rocketstore.log.read.column_reader import LogFiles

__all__ = ["is_noted", "note_shipped", "unshipped_from"]

logger = logging.getLogger(__name__)

#: The first version has no checksums: its ranges count for nothing, the next shipment adds them.
VERSION: Final = 2

#: Begin and end of a part of the log, physical offsets, and the checksum of the place at its end;
#: None: it was trimmed before its end was noted.
Range = tuple[int, int, int | None]


def note_shipped(layout: StoreLayout, uri: str, manifest: Manifest, files: LogFiles) -> None:
    """Notes what the archive at `uri` has of this log. A log that cannot be written to is not noted
    on: a line in the log says so."""
    found = _load(layout)
    known = {last: crc for _, last, crc in found.get(uri, ())}
    ranges = [
        (first, last, known.get(last) if file is None else place_at((file,), last).crc)
        for first, last in _of(manifest)
        for file in (files.at(last - 1),)
    ]
    if found.get(uri) == ranges:
        return
    try:
        _write(layout, {**found, uri: ranges})
    except OSError as error:
        logger.info("%s: what was shipped is not noted: %s", layout.root, error)


def is_noted(layout: StoreLayout, uri: str, manifest: Manifest) -> bool:
    """Whether the log has a note of just what the archive at `uri` has."""
    return [(first, last) for first, last, _ in _load(layout).get(uri, ())] == _of(manifest)


def unshipped_from(
    layout: StoreLayout, files: Sequence[MappedFile], begin: int, end: int
) -> tuple[int, list[str]]:
    """The first physical offset from `begin` on that no archive is known to have, and the archives
    that are noted. `files`: those of the log, which ends at `end`."""
    archives = _load(layout)
    at = begin
    for first, last in _joined(
        (first, last)
        for ranges in archives.values()
        for first, last, crc in ranges
        if begin < last <= end and crc is not None and stands(files, LogPlace(last, crc))
    ):
        if first <= at < last:
            at = last
    return at, sorted(archives)


def _write(layout: StoreLayout, archives: dict[str, list[Range]]) -> None:
    document = {"version": VERSION, "archives": archives}
    write_own_json(layout, layout.shipped, document)


def _load(layout: StoreLayout) -> dict[str, list[Range]]:
    found = read_json(layout.shipped)
    if not isinstance(found, dict) or found.get("version") not in (1, VERSION):
        return {}
    archives = found.get("archives")
    if not isinstance(archives, dict):
        return {}
    try:
        return {str(uri): sorted(map(_range, ranges)) for uri, ranges in archives.items()}
    except (TypeError, ValueError) as error:
        logger.warning("%s is no note of shipments, nothing counts as shipped: %r",
                       layout.shipped, error)  # fmt: skip
        return {}


def _range(found: Any) -> Range:
    first, last, crc = found if len(found) == 3 else (*found, None)
    whole = all(type(one) is int for one in (first, last, 0 if crc is None else crc))
    if not whole or not 0 <= first <= last < 2**63:
        raise ValueError(f"{found!r} is no part of a log")
    return first, last, crc


def _of(manifest: Manifest) -> list[tuple[int, int]]:
    return _joined((s.start_offset, s.end_offset) for s in manifest.segments)


def _joined(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes as ranges that are sorted and apart."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(parts):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined
