"""Refuses calls to a store that is closed, that a fork has inherited, or that takes no reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore._native.os import syscalls
from rocketstore.errors import ReadFailedError, StoreClosedError

if TYPE_CHECKING:
    from rocketstore.log.commitlog.running_flags import RunningFlags

__all__ = ["Guard"]


class Guard:
    """Whether one open store may be used. Any thread asks; only the thread that closes the store
    writes `over`."""

    def __init__(self, path: str, flags: RunningFlags) -> None:
        self.flags = flags
        self.over = False
        self._path = path
        self._token = syscalls.process_token()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that opened the store (D-35)."""
        return syscalls.forked_since(self._token)

    @property
    def closed(self) -> bool:
        return self.over or self.forked

    def check_open(self) -> None:
        """Raises StoreClosedError after a close, and in a forked child."""
        if self.over:
            raise StoreClosedError(
                f"the store is closed; open it again with rocketstore.open({self._path!r})"
            )
        syscalls.check_forked(self._token)

    def check_readable(self) -> None:
        """Called by readers before each look at a queue. Raises StoreClosedError,
        ReadFailedError."""
        self.check_open()
        if not self.flags.readable:
            raise ReadFailedError(f"the store takes no reads: {self.flags}")
