"""`rocketstore/retention.json`: what retention gave up in an emergency, newest last."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any, Final

from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json, write_own_json
from rocketstore.values.public import public

__all__ = ["EventLog", "RetentionEvent"]

logger = logging.getLogger(__name__)

VERSION: Final = 1
#: Events kept, count.
KEPT: Final = 100


@public
@dataclass(frozen=True, slots=True)
class RetentionEvent:
    """Segments from `begin_offset` to `new_begin_offset` went at `time_ms` although something held
    them (`given_up`), because `disk_used`, a fraction, of the file system was used."""

    time_ms: int
    begin_offset: int
    new_begin_offset: int
    disk_used: float
    given_up: tuple[str, ...] = ()

    def __str__(self) -> str:
        held = "; ".join(self.given_up) or "max_age"
        return (
            f"the disk was used to {self.disk_used:.1%}: the log was removed from "
            f"{self.begin_offset} to {self.new_begin_offset}, although it was held: {held}"
        )


class EventLog:
    """The last events of one store. One thread at a time adds."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self.events = _load(layout)

    def add(self, event: RetentionEvent) -> None:
        """Keeps an event, and on the disk where there is room."""
        logger.warning("%s: %s", self._layout.root, event)
        self.events = (*self.events, event)[-KEPT:]
        self.save()

    def save(self) -> None:
        document = {
            "version": VERSION,
            "emergencies": [dataclasses.asdict(event) for event in self.events],
        }
        try:
            write_own_json(self._layout, self._layout.retention, document)
        except OSError as error:  # a full disk must not keep what makes room
            logger.warning("%s: the event is not on the disk: %s", self._layout.root, error)


def _load(layout: StoreLayout) -> tuple[RetentionEvent, ...]:
    found = read_json(layout.retention)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        return ()
    events = found.get("emergencies")
    try:
        return tuple(map(_event, events if isinstance(events, list) else ()))[-KEPT:]
    except (TypeError, ValueError, KeyError) as error:
        logger.warning("%s has no events of retention: %r", layout.retention, error)
        return ()


def _event(found: dict[str, Any]) -> RetentionEvent:
    return RetentionEvent(
        int(found["time_ms"]),
        int(found["begin_offset"]),
        int(found["new_begin_offset"]),
        float(found["disk_used"]),
        tuple(map(str, found["given_up"])),
    )
