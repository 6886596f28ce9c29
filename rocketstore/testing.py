"""For tests of programs that use a store: small stores, a clock that is moved by hand, and crashes.

    from rocketstore.testing import ManualClock, crash_and_reopen, temporary_store

Begin with `temporary_store`. Nothing here needs pytest; docs/testing.md shows fixtures.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Unpack

import rocketstore
from rocketstore.values import ManualClock

if TYPE_CHECKING:
    from rocketstore.config import OpenOptions
    from rocketstore.values import Durability

__all__ = ["ManualClock", "crash_and_reopen", "small_config", "temporary_store"]

#: Sizes of some 200 KiB in all, and no sync: what a test needs to see is there.
_SMALL: Final[dict[str, Any]] = {
    "commit_log_file_size_bytes": 1 << 16,
    "index_slots": 100,
    "index_entries": 400,
    "durability": "os",
}
#: Longest wait of a crash for the dispatch of what is visible, seconds.
_DISPATCH_S: Final = 10.0


def small_config(
    *, durability: Durability = "os", **options: Unpack[OpenOptions]
) -> rocketstore.StoreConfig:
    """Gives the options of a store with small files, for `rocketstore.open(path, config=…)`.

    A file of its log has 64 KiB, which also limits a message; one of its index 400 entries. `options`
    win over these.

    Raises:
        ConfigError: An unknown or wrong option.
    """
    return rocketstore.StoreConfig(**{**_SMALL, "durability": durability, **options})


@contextlib.contextmanager
def temporary_store(
    *,
    durability: Durability = "os",
    clock: ManualClock | None = None,
    retention: rocketstore.Retention | None = None,
    **options: Unpack[OpenOptions],
) -> Iterator[rocketstore.Store]:
    """Opens a new store with small files in a directory of its own, in memory where the system has
    /dev/shm; both are gone at the end. Until then it can be closed, and opened again at its path.

    Args:
        durability, options: As of `small_config`.
        clock, retention: As of `rocketstore.open`.

    Raises:
        ConfigError: An unknown or wrong option.
    """
    config = small_config(durability=durability, **options)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    made = tempfile.mkdtemp(prefix="rocketstore-", dir=memory)
    held = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX)
    # By this name a later store in memory removes it, should this process be killed.
    directory = made.replace("/rocketstore-", "/rocketstore-memory-")
    os.rename(made, directory)
    path = os.path.join(directory, "store")
    try:
        with rocketstore.open(path, config=config, clock=clock, retention=retention) as store:
            yield store
    finally:
        with contextlib.suppress(rocketstore.StoreClosedError):
            rocketstore.opened(path).close()  # that of a crash_and_reopen
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def crash_and_reopen(store: rocketstore.Store) -> rocketstore.Store:
    """Gives the store as it is found after the death of this process at this moment, open for writing.

    `store` is closed; the new one is at the same path, with the same config and clock. What a put
    promised is there: with durability "memory" that is what was committed. Nothing else may use the
    store meanwhile. A loss of power takes more; this does not simulate one.

    Raises:
        StoreReadOnlyError: The store was opened with mode "r".
        StoreClosedError: The store was closed.
        OSError: There is no room for a copy of the store.
    """
    config, clock, path = store.configure(), store.clock, os.path.realpath(store.path)
    deadline = time.monotonic() + _DISPATCH_S
    while store.dispatched_offset < store.visible_offset and time.monotonic() < deadline:
        time.sleep(0.001)
    copy = tempfile.mkdtemp(prefix=os.path.basename(path) + "-", dir=os.path.dirname(path))
    try:
        _copy(path, copy)
        store.close()
        shutil.rmtree(path, ignore_errors=True)  # one in memory went with the close
        os.rename(copy, path)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise
    return rocketstore.open(path, config=config, clock=clock)


def _copy(path: str, copy: str) -> None:
    """The log last: what is derived from it may end before it, as at a death, but not after it."""
    names = sorted(os.listdir(path), key=lambda name: name == "commitlog")
    for name in names:
        source, target = os.path.join(path, name), os.path.join(copy, name)
        if os.path.isdir(source):
            shutil.copytree(source, target, copy_function=_copy_if_there)
        else:
            _copy_if_there(source, target)


def _copy_if_there(source: str, target: str) -> None:
    """Files that are made ahead go away at any time."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)
