"""What a process asks the host of a store of which it is no guest: one call, at the host that is there, and at no
other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from rocketstore.errors import GuestStoreError, OutcomeUnknownError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing.link import HostLink
from rocketstore.sharing.messages import meant
from rocketstore.stats.statistics import GuestFigures

__all__ = ["ask_host", "guests_of"]

#: Longest wait for figures, seconds.
FIGURES_S: Final = 2.0


def ask_host(
    path: str | os.PathLike[str], name: str, blob: bytes, hello_s: float, limit_s: float
) -> Any:
    """What the host of a store answers to a call; None: no process takes calls, or it says no hello in time. The call
    may be done twice: a caller whose host has gone asks the next one.

    Raises:
        ConnectionResetError: the host has ended before it answered. OutcomeUnknownError: no answer has come in time.
        GuestStoreError: the host does not take this process. MessageTooLargeError: it takes fewer bytes at once.
        OSError: the host is of another user, or there is no descriptor left. And what the call raises at the host.
    """
    link = HostLink(StoreLayout(Path(os.path.abspath(path))))
    try:
        if not link.connect(hello_s):
            return None
        (value, _), _ = link.call(name, None, blob, limit_s, again=True, once=True)
        return meant(value)
    finally:
        link.close()


def guests_of(path: str | os.PathLike[str]) -> tuple[GuestFigures, ...]:
    """Gives the guests of the store in directory `path`, as its host knows them, without this process.

    None where no process holds the store for others, or where the host does not answer soon.

    Raises:
        OSError: The host is of another user, or a descriptor is not to be had.
    """
    try:
        rows = ask_host(path, "figures", b"", FIGURES_S, FIGURES_S)
    except (ConnectionError, GuestStoreError, OutcomeUnknownError):
        return ()
    guests = (GuestFigures(*row) for row in rows or ())
    return tuple(one for one in guests if one.pid != os.getpid())
