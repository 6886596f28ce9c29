"""The processes that share a store, for a process that does not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rocketstore.errors import (
    BackpressureError,
    GuestStoreError,
    OutcomeUnknownError,
    StoreLockedError,
)
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing.link import HostLink
from rocketstore.stats.statistics import GuestFigures

__all__ = ["guests_of"]

#: Longest wait for the answer of a host, seconds.
ANSWER_S: Final = 2.0


def guests_of(path: str | os.PathLike[str]) -> tuple[GuestFigures, ...]:
    """Gives the guests of the store in directory `path`, as its host knows them, without this process.

    None where no process holds the store for others, or where the host does not answer soon.

    Raises:
        OSError: The host is of another user, or a descriptor is not to be had.
    """
    link = HostLink(StoreLayout(Path(os.path.abspath(path))))
    try:
        if not link.connect(ANSWER_S):
            return ()
        link.start()
        (rows, _), _ = link.call("figures", limit_s=ANSWER_S, again=True)
    except (BackpressureError, GuestStoreError, OutcomeUnknownError, StoreLockedError):
        return ()
    finally:
        link.close()
    guests = (GuestFigures(*row) for row in rows)
    return tuple(one for one in guests if one.pid != os.getpid())
