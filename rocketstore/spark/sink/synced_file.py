"""A new file that goes to the disk while it is written."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["SyncedFile"]

#: A sync begins each time so much was written, unless the last one still goes on.
STEP_BYTES = 16 << 20


class SyncedFile:
    """Writes `path`, which must not be there; on disk, its name apart, once `finish` has returned.
    Of one that is left by an exception nothing stays."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._behind = ThreadPoolExecutor(1, "rocketstore-staging-sync")
        self._sync: Future[None] | None = None
        self._unsynced = 0

    def write(self, data: memoryview) -> None:
        """Appends all of it. Raises OSError, also for an earlier write that did not reach the
        disk."""
        done = 0
        while done < len(data):
            done += self._file.write(data[done:])
        self._unsynced += done
        if self._unsynced >= STEP_BYTES and (self._sync is None or self._sync.done()):
            self._wait()
            self._sync = self._behind.submit(os.fdatasync, self._file.fileno())
            self._unsynced = 0

    def finish(self) -> None:
        self._wait()
        os.fsync(self._file.fileno())

    def _wait(self) -> None:
        if self._sync is not None:
            self._sync.result()

    def __enter__(self) -> SyncedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._behind.shutdown()
        self._file.close()
        if kind is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
