"""What a compacted store says of itself (format.md 20.21), and whether it can be the base of another
compaction: it has all that the log had up to some offset, and the log is still the same one."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Final

from rocketstore.config import StoreConfig
from rocketstore.engine.engine import Engine
from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import Options
from rocketstore.errors import ConfigError
from rocketstore.log.layout.log_place import LogPlace, place_at, place_in, stands
from rocketstore.log.layout.state_files import read_json_file, write_own_json
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.values.bounded_json import LIMITS

__all__ = ["describe", "note_origin", "open_base"]

VERSION: Final = 1


def describe(engine: Engine, topics: frozenset[str], keep_offsets: bool) -> dict[str, Any]:
    """What must be the same in a compaction and its base."""
    state = load_store_state(engine.layout)
    return {
        "version": VERSION,
        "store": "" if state is None else state.uuid,
        "topics": sorted(topics),
        "keep_offsets": keep_offsets,
    }


def note_origin(made: Engine, origin: dict[str, Any], source: LogPlace) -> None:
    """Writes it into the store that was made of a log up to the place. OSError."""
    own = place_at(made.reader.source.segments(), made.positions.visible)
    document = {**origin, "source": list(source), "made": list(own)}
    write_own_json(made.layout, made.layout.compacted, document)


def open_base(
    path: str | os.PathLike[str], engine: Engine, origin: dict[str, Any], end: int
) -> tuple[Engine, int]:
    """The base, open to read, and up to where it knows the log of `engine`, which is visible up to
    `end`. The caller closes it.

    Raises:
        ConfigError: it is no base of this compaction; the error says why.
        MissingSegmentsError, ReadFailedError, OSError: it cannot be opened.
    """
    base = open_engine(os.fspath(path), "r", Options(StoreConfig(index_enabled=False)))
    try:
        known = _origin_of(base)
        source, made = place_in(known.get("source")), place_in(known.get("made"))
        if source is None or made is None or known.get("version") != VERSION:
            why = "no store that compact made, or rocketstore/compacted.json in it is damaged"
            raise ConfigError("base", os.fspath(path), why)
        kept = f"of the topics {known.get('topics')}, keep_offsets={known.get('keep_offsets')}"
        begin = engine.begin_offset
        gap = f"it knows the log up to {source.end}, and the log begins at {begin} now"
        for wrong, why in (
            (known.get("store") != origin["store"], "it was made of another store"),
            ({**known, **origin} != known, kept),
            (made.end != base.positions.visible or _differs(base, made), "it was changed since"),
            (source.end > end or _differs(engine, source), "the log lost its end since"),
            (source.end < begin, f"{gap}; retention.hold keeps what a base lacks"),
        ):
            if wrong:
                raise ConfigError("base", os.fspath(path), why)
        return base, source.end
    except BaseException:
        base.close()
        raise


def _origin_of(base: Engine) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError, ValueError):
        found = read_json_file(base.layout.compacted, LIMITS["compacted.json"])
        if isinstance(found, dict):
            return found
    return {}


def _differs(engine: Engine, place: LogPlace) -> bool:
    return stands(engine.reader.source.segments(), place) is False
