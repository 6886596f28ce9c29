"""The hook in front of every call of the table: it records sites, or fails one call of one site.

A site is an entry of the table and the two nearest functions of rocketstore that lead to it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final

from rocketstore.log.commitlog import committer, flusher
from tests.support.small_store import engine_of, parts

__all__ = ["ERRNOS", "Case", "Injector", "Recorder", "site_of"]

#: What each call may answer: its manual page, and what file systems are known to answer besides.
ERRNO_NAMES: Final = {
    "open": "EACCES EDQUOT EINTR EIO EMFILE ENFILE ENOMEM ENOSPC EOPNOTSUPP EROFS",
    "close": "EDQUOT EINTR EIO ENOSPC",
    "duplicate": "EINTR EMFILE ENOMEM",
    "linkat": "EACCES EDQUOT EEXIST EINTR EIO EMLINK ENOMEM ENOSPC EPERM EROFS EXDEV",
    "renameat2": "EACCES EDQUOT EINTR EINVAL EIO ENOMEM ENOSPC ENOSYS EROFS EXDEV",
    "unlink": "EACCES EBUSY EINTR EIO ENOENT ENOMEM EPERM EROFS",
    "mkdir": "EACCES EDQUOT EEXIST EINTR EIO EMLINK ENOMEM ENOSPC EROFS",
    "rmdir": "EACCES EBUSY EINTR EIO ENOENT ENOTEMPTY EROFS",
    "fchown": "EINTR EIO EPERM EROFS",
    "fchmod": "EINTR EIO EPERM EROFS",
    "fstat": "EIO ENOMEM EOVERFLOW",
    "link_count": "EIO ENOMEM",
    "statfs": "EACCES EINTR EIO ENOMEM ENOSYS",
    "lock": "EACCES EAGAIN EINTR EINVAL EIO ENOLCK",
    "fallocate": "EDQUOT EFBIG EINTR EIO ENOSPC ENOSYS EOPNOTSUPP EPERM",
    "ftruncate": "EDQUOT EFBIG EINTR EIO ENOSPC EPERM EROFS",
    "lseek": "EINVAL EIO ENXIO",
    "pread": "EINTR EIO ENOMEM",
    "pwrite": "EDQUOT EFBIG EINTR EIO ENOMEM ENOSPC EPERM EROFS",
    "pwritev2": "EDQUOT EFBIG EINTR EIO ENOMEM ENOSPC ENOSYS EOPNOTSUPP EROFS",
    "fdatasync": "EDQUOT EINTR EIO ENOSPC EROFS",
    "fsync": "EDQUOT EINTR EIO EINVAL ENOSPC EROFS",
    "syncfs": "EDQUOT EINTR EIO ENOSPC EROFS",
    "mmap": "EACCES EAGAIN ENFILE ENODEV ENOMEM EPERM",
    "munmap": "ENOMEM",
    "msync": "EBUSY EINTR EIO ENOMEM",
    "madvise": "EAGAIN EBADF EFAULT EINTR EINVAL EIO ENOMEM",
    "mlock": "EAGAIN ENOMEM EPERM",
    "mlock2": "EAGAIN ENOMEM ENOSYS EPERM",
    "munlock": "ENOMEM",
    "memfd_create": "EMFILE ENFILE ENOMEM ENOSYS EPERM",
    "futex": "EAGAIN EINTR ETIMEDOUT",
    "signal_event": "EBADF ENOMEM",
    "send": "ECONNRESET EINTR ENOBUFS ENOMEM EPIPE",
    "receive": "ECONNRESET EINTR ENOMEM",
    "shut_down": "ENOTCONN",
    "give_way": "ENOSYS",
}
ERRNOS: Final = {entry: tuple(names.split()) for entry, names in ERRNO_NAMES.items()}
#: Entries whose failure may have lost bytes of the log.
SYNCS: Final = frozenset({"pwrite", "pwritev2", "fdatasync", "msync"})
#: Where a failed call of these may have lost bytes of the log, as sites begin.
FLUSHER: Final = flusher.__file__.rpartition("/rocketstore/")[2]
COMMITTER: Final = committer.__file__.rpartition("/rocketstore/")[2]
#: Answers after which the same promise is kept in another way.
FALLBACKS: Final = frozenset({"EINTR", "ENOSYS", "EOPNOTSUPP"})
FOREVER: Final = -1


@dataclass(frozen=True)
class Case:
    """Call number `nth` (from 0) of `entry` at `site` in a scene gets `answer`.

    `answer`: the name of an errno; "short", it moves half of one byte more; "KILL", the process dies;
    "late", it takes 0.6 s. `times`: 1, or FOREVER: every later call of the entry, at any site.
    """

    scene: str
    entry: str
    site: str
    nth: int
    answer: str
    times: int = 1


_names: dict[CodeType, str] = {}


def _name(code: CodeType) -> str:
    found = _names.get(code)
    if found is None:
        path = code.co_filename.rpartition("/rocketstore/")[2]
        found = f"{path}:{code.co_qualname}"
        if "/rocketstore/" not in code.co_filename:
            found = ""
        _names[code] = found
    return found


def site_of(frame: FrameType | None) -> str:
    """The two nearest functions of the package."""
    near: list[str] = []
    while frame is not None and len(near) < 2:
        name = _name(frame.f_code)
        if name:
            near.append(name)
        frame = frame.f_back
    return " < ".join(near)


class Recorder:
    """Counts the calls of each entry at each site."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, entry: str) -> int:
        self.calls[entry, site_of(sys._getframe(1))] += 1
        return 0


class Injector:
    """Lets one case happen, and watches what follows a failed sync of the log."""

    def __init__(self, case: Case, run: Any) -> None:
        self._case = case
        self._run = run
        self._seen = 0
        self._active = False
        self._positions: Any = None
        # Where it may come to, once a sync or write of the log has failed.
        self._flushed: int | None = None
        self._failing = 0  # the thread whose call failed
        self._under_way = True  # the other thread may have looked before the store had failed

    def __call__(self, entry: str) -> int:
        case = self._case
        frame = sys._getframe(1)
        if self._flushed is not None and entry in SYNCS:
            self._after_failure(entry, site_of(frame))
        if entry != case.entry:
            return 0
        if self._active:
            return self._answer() if case.times == FOREVER else 0
        site = site_of(frame)
        if site != case.site:
            return 0
        self._seen += 1
        if self._seen <= case.nth:
            return 0
        self._active = True
        self._run.say("fired", 1)
        if (
            entry in SYNCS
            and case.answer.startswith("E")
            and case.answer not in FALLBACKS
            and site.startswith((FLUSHER, COMMITTER))
            and self._run.store is not None
        ):
            self._run.say("sync_failed", True)
            self._positions = positions = engine_of(self._run.store).positions
            # What is committed may be in the flusher's hands while the committer's write fails.
            self._flushed = positions.flushed if site.startswith(FLUSHER) else positions.committed
            self._failing = threading.get_ident()
        return self._answer()

    def _answer(self) -> int:
        answer = self._case.answer
        if answer == "KILL":
            os.kill(os.getpid(), signal.SIGKILL)
        if answer == "late":
            time.sleep(0.6)
            return 0
        if answer == "short":
            return -1
        return errno_of(answer)

    def _after_failure(self, entry: str, site: str) -> None:
        """D-12 D-13: nothing writes or syncs the log again, `flushed` stands still."""
        if site.startswith((FLUSHER, COMMITTER)) and not self._has_begun_before():
            self._run.say("wrong", f"{entry} at {site} after a sync or write of the log failed")
        if self._positions.flushed > self._flushed:
            self._run.say(
                "wrong", f"flushed moved to {self._positions.flushed} after a failed sync"
            )

    def _has_begun_before(self) -> bool:
        """Of flusher and committer, one cannot know that the other's call fails until the store has failed."""
        if threading.get_ident() == self._failing:
            return False
        if parts(self._run.store).commit_log.failure is None:
            return True
        begun, self._under_way = self._under_way, False
        return begun


def errno_of(name: str) -> int:
    import errno

    return int(getattr(errno, name))
