"""Where a reader of scans has come, and whether a log is still the one in which it came there.

A number alone does not say. A copy that was put back has the name of the store that it was made of,
and may have grown beyond the place since. So a bookmark carries `last`, the record before its place.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from rocketstore.archive.object_store import ObjectStore
from rocketstore.archive.segments import ArchivePart
from rocketstore.errors import (
    BookmarkError,
    CorruptRecordError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
)
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.values.bounded_json import LIMITS, parse_json
from rocketstore.values.public import public
from rocketstore.values.record_filter import RecordFilter

__all__ = ["Bookmark", "bookmark_of", "check_bookmark", "record_at", "record_before"]

VERSION: Final = 1
#: Bytes before a place in which its last record is looked for, at first and at most.
LOOK_BACK_BYTES: Final = 64 << 10
LOOK_BACK_MOST_BYTES: Final = 64 << 20
COLUMNS: Final = ("physical_offset", "store_timestamp_ms", "size", "body")

#: "phys", "stored", "size", "crc": physical offset, store time, bytes of the record, CRC-32 of the
#: body.
Record = dict[str, int]
#: A `scan.Scan`, whose module imports this one.
Scan = Any


@public
@dataclass(frozen=True)
class Bookmark:
    """Where a scan ended, to go on there: `Scan.bookmark`, and `rocketstore.scan(path, after=…)`.

    `to_json` gives a text to keep, `from_json` takes it.
    """

    #: The store's uuid; empty where only RocketMQ wrote it.
    store: str
    #: Everything below this physical offset was read.
    offset: int
    #: The record before it; None where none is kept there.
    last: Record | None = None
    version: int = VERSION

    def to_json(self) -> str:
        """Gives one line of JSON. Raises nothing."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Bookmark:
        """Makes a bookmark of what `to_json` gave.

        Raises:
            BookmarkError: It is no bookmark, or one of a newer release.
        """
        try:
            found = parse_json(text, LIMITS["bookmark"])
        except (ValueError, TypeError) as error:
            raise BookmarkError("form", f"{text!r:.200} is no JSON of a bookmark") from error
        return cls.of(found)

    @classmethod
    def of(cls, given: object) -> Bookmark:
        """Makes a bookmark of one, of its JSON, or of the mapping that the JSON holds.

        Raises:
            BookmarkError: It is no bookmark, or one of a newer release.
        """
        if isinstance(given, str | bytes):
            return cls.from_json(given)
        found: Any = asdict(given) if isinstance(given, Bookmark) else given
        if not isinstance(found, Mapping):
            raise BookmarkError("form", f"{given!r:.200} is no Bookmark, and no JSON of one")
        version = found.get("version")
        if type(version) is int and version > VERSION:
            raise BookmarkError(
                "release", f"version {version} is of a newer release; this one knows {VERSION}"
            )
        store, offset, last = found.get("store"), found.get("offset"), found.get("last")
        sound = version == VERSION and isinstance(store, str)
        if not (sound and type(offset) is int and offset >= 0 and _is_record(last)):
            raise BookmarkError("form", f"{given!r:.200} has not the parts of a bookmark")
        return cls(str(store), offset, None if last is None else dict(last), VERSION)


def _is_record(last: Any) -> bool:
    names = {"phys", "stored", "size", "crc"}
    return last is None or (
        isinstance(last, Mapping)
        and set(last) == names
        and all(type(number) is int for number in last.values())
    )


def bookmark_of(scan: Scan) -> Bookmark:
    """Where `scan` ends."""
    # The record may lie below its begin.
    whole = replace(_whole(scan), begin_offset=0, aligned=False)
    return Bookmark(_store_of(scan), scan.end_offset, record_before(whole, scan.end_offset))


def check_bookmark(log: Scan, bookmark: Bookmark) -> int:
    """Where to go on in `log`, a scan of all of it: at the first record that was not read.

    Raises:
        BookmarkError: `log` is not the one in which the bookmark was made.
    """
    log = _whole(log)
    store, last, place = _store_of(log), bookmark.last, bookmark.offset
    if bookmark.store not in (store, ""):
        raise BookmarkError(
            "store", f"{log.path} is store {store or 'without a name'}, not {bookmark.store}"
        )
    if place > log.end_offset:
        text = f"{log.path} ends at {log.end_offset}, below the bookmark's {place}"
        raise BookmarkError("cut", f"{text}: a recovery cut it, or an older copy has its place")
    if last is None or last["phys"] < log.begin_offset or not _holds(log, last["phys"]):
        return place
    found = record_at(log, last["phys"])
    if found != last:
        was = "no record" if found is None else f"another record, {found}"
        text = f"{log.path} has {was} at {last['phys']}; the bookmark was made behind {last}"
        raise BookmarkError("history", f"{text}: an older copy has its place")
    return max(place, last["phys"] + last["size"])


def record_before(log: Scan, place: int) -> Record | None:
    """The last record that begins below `place`; None where the log begins there, or where only
    damage is near."""
    begin, back = log.begin_offset, LOOK_BACK_BYTES
    while begin < place and back <= LOOK_BACK_MOST_BYTES:
        first = max(begin, place - back)
        found = _last(log, first, place, aligned=first == begin and log.aligned)
        if found is not None or first == begin:
            return found
        back *= 8
    return None


def record_at(log: Scan, place: int) -> Record | None:
    """The record that begins at `place`, or None."""
    return _last(log, place, place + 1, aligned=True)


def _holds(log: Scan, place: int) -> bool:
    """Whether the scan reads there: an archive may have holes."""
    parts = None if log.archive is None else log.archive.segments
    return parts is None or any(one.start_offset <= place < one.end_offset for one in parts)


def _whole(scan: Scan) -> Scan:
    """One of an archive leaves out segments by what is wanted, which may have the record."""
    if scan.archive is None:
        return scan
    manifest = ObjectStore(scan.archive.uri).manifest()
    return replace(scan, archive=ArchivePart.of(scan.archive.uri, manifest, RecordFilter()))


def _last(log: Scan, begin: int, end: int, *, aligned: bool) -> Record | None:
    found = None
    part = replace(
        log,
        columns=COLUMNS,
        filter=RecordFilter(),
        begin_offset=begin,
        end_offset=end,
        aligned=aligned,
        whole=False,
        verify=False,
        on_damage="skip",
        threads=1,
    )
    try:
        for columns in part:
            if columns.rows:
                row = columns.rows - 1
                found = {
                    "phys": int(columns["physical_offset"][row]),
                    "stored": int(columns["store_timestamp_ms"][row]),
                    "size": int(columns["size"][row]),
                    "crc": zlib.crc32(columns["body"][row]),
                }
    except (CorruptRecordError, MessageNotFoundError, OffsetOutOfRangeError):
        return None
    return found


def _store_of(scan: Scan) -> str:
    if scan.archive is not None:
        return str(scan.archive.store)
    state = load_store_state(scan._layout())
    return "" if state is None else str(state.uuid)
