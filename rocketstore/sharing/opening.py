"""`rocketstore.open(path, shared=…)`: as the process that holds the store, or as a guest of it; and a store that
becomes a host after its open."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rocketstore._native.sync.futex import EventCount
from rocketstore.engine.memory_directory import MEMORY
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError, StoreLockedError, StoreRecoveringError
from rocketstore.log.layout.lock import HELD_HERE
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing.host import host_of
from rocketstore.sharing.link import HostLink
from rocketstore.store import Mode, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketstore.engine.open_options import Options
    from rocketstore.log.layout.lock import StoreLock

__all__ = ["Shared", "check_shared", "open_shared", "serve_guests"]

Shared: TypeAlias = bool | Literal["guest", "host"]
#: How long an open looks for a host, or for the lock, where it is not said, seconds.
OPEN_S: Final = 5.0
#: First and longest pause between two looks, ms.
SHORTEST_MS: Final = 10
LONGEST_MS: Final = 50
REMEDY: Final = (
    "open it with shared=True there, too, or have `rocketstore serve` hold it; mode='r' reads it"
)


def check_shared(shared: object, mode: str, path: str, **refused: object) -> None:
    """Raises ConfigError for what `shared` is not, and for arguments that are `refused` with it."""
    if not (isinstance(shared, bool) or shared in ("guest", "host")):
        raise ConfigError("shared", shared, "True, False, 'guest' or 'host'")
    if not shared:
        return
    if mode == "r":
        raise ConfigError("mode", mode, "'rw' or 'r+' with shared=: a reader needs no host")
    if path == MEMORY:
        raise ConfigError("path", path, "with shared=False: a store in memory is of one process")
    if refused.pop("on_arrival") is not None and shared != "host":
        text = "with shared='host', since it is called where the store is held; or use a consumer"
        raise ConfigError("on_arrival", "given", text)
    if shared != "guest":
        del refused["retention"]
    for name, value in refused.items():
        if value:
            raise ConfigError(name, value, f"not with shared={shared!r}")


def open_shared(
    path: str,
    mode: Mode,
    shared: Shared,
    options: Options,
    begin: Callable[[str, Mode, Options], WritingEngine],
) -> Store:
    """The store of the process that holds it, or that of a guest. `begin` opens it for writing, with
    its services.

    Raises:
        StoreLockedError: a process has the store, and serves no guests, or has not answered; or none has it, with
            "guest". GuestStoreError: it does not take this guest. ConfigError, OSError: as `rocketstore.open` says.
    """
    if shared == "host":
        return Store(_serving(begin(path, mode, options)), mode)
    layout = StoreLayout(Path(os.path.abspath(path)))
    at_once = dataclasses.replace(options, at_once=True, wait_s=0.0)

    def become(lock: StoreLock | None) -> WritingEngine:
        given = dataclasses.replace(at_once, lock=lock)
        return _serving(begin(os.fspath(layout.root), "r+", given))  # it makes no store

    link = HostLink(layout, None if shared == "guest" else become)
    began, limit_s = time.monotonic(), options.wait_s or OPEN_S
    pause_ms = SHORTEST_MS
    try:
        while True:
            left_s = began + limit_s - time.monotonic()
            with contextlib.suppress(StoreRecoveringError):  # of another host already
                if link.connect(max(left_s, SHORTEST_MS / 1000)):
                    return _guest(path, layout, options, link)
            if shared != "guest":
                try:
                    engine = _serving(begin(path, mode, at_once))
                except StoreLockedError as error:
                    if error.remedy == HELD_HERE:
                        raise
                else:
                    link.close()
                    return Store(engine, mode)
            if left_s <= 0:
                waited_s, holder = limit_s - left_s, link.host_state()
                raise StoreLockedError(
                    os.fspath(layout.root), holder, _remedy(layout, holder), waited_s
                )
            EventCount().wait(0, pause_ms)
            pause_ms = min(2 * pause_ms, LONGEST_MS)
    except BaseException:
        link.close()
        raise


def _remedy(layout: StoreLayout, holder: str) -> str:
    if not layout.root.is_dir():
        return "there is no store here: see whether the path is right; shared=True makes one"
    if "which is stopped" in holder:
        return "continue that process, or end it"
    return REMEDY


def _guest(path: str, layout: StoreLayout, options: Options, link: HostLink) -> Store:
    from rocketstore.sharing.guest import guest_store

    store = guest_store(path, layout, options, link)
    try:
        link.start()
        link.await_host(time.monotonic_ns() + int((options.wait_s or OPEN_S) * 1e9))
    except BaseException:
        store.close()
        raise
    return store


def _serving(engine: WritingEngine) -> WritingEngine:
    """A store that guests find from here on."""
    try:
        host_of(engine)
    except BaseException:
        engine.close()
        raise
    return engine


def serve_guests(store: Store) -> None:
    """Makes an open store the host of other processes until it closes. A host, or a guest of one, stays what it is.

    Raises:
        StoreReadOnlyError, StoreClosedError, ReplicaStoreError: the store takes no puts. OSError: it cannot listen.
    """
    engine = store._owning("serve")
    if isinstance(engine, WritingEngine):
        host_of(engine)
