"""Leases: a master takes puts only while something outside says that it is the master.

rocketstore elects nobody. An agent renews a lease in a system that is made for it (etcd, Kubernetes),
and the store asks how long the lease is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from rocketstore._native.os import syscalls
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError
from rocketstore.log.worker import Worker
from rocketstore.replication.role.fence import Fence, fence_of
from rocketstore.values.bounded_json import LIMITS, parse_json
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.public import public

__all__ = ["FileLease", "Lease", "LeaseWatch", "keep_lease"]

#: Between two questions, seconds, where the lease is not held or has long to go.
ASK_EVERY_S: Final = 0.5
#: Longest wait for the first answer, seconds.
ANSWER_S: Final = 5.0
#: Longest wait at the end of a store for a question that goes on, seconds: it writes nothing.
STOP_S: Final = 1.0
#: Longest time for which a lease of a file is held, seconds: one that says more is damaged.
SECONDS_MOST: Final = 86_400.0
NOT_HELD: Final = "the lease of this master is not held: no put is taken until it is held again"


@public
class Lease(Protocol):
    """What `Master(lease=…)` takes: any object with this method."""

    def deadline(self) -> float | None:
        """Until when the lease is held, by `time.monotonic()`; None or a time that has passed: it
        is not held. Called from a thread of the store, often; it should not wait. While it waits
        the answer before holds: puts are refused from that deadline on."""


@public
class FileLease:
    """A lease in a file that processes of one machine share: for tests and trials.

    Args:
        path: The file; all candidates name the same one. It is made if it is missing. A link,
            another name of a file, or what is no plain file, is refused.
        owner: The name of this candidate.
        seconds: How long one `renew` holds, up to a day. A file that says more is damaged, and the
            lease is free, as one that cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], owner: str, seconds: float = 10.0) -> None:
        if not owner or not 0 < seconds <= SECONDS_MOST:
            need = f"a name, and a time above 0, up to {SECONDS_MOST:g}"
            raise ConfigError("owner, seconds", (owner, seconds), need)
        self._path = Path(path)
        self._owner = owner
        self._seconds = seconds

    def renew(self) -> bool:
        """Takes or extends the lease. False: another holds it."""
        with self._file() as (file, holder, until):
            now = time.monotonic()
            if holder != self._owner and now < until:
                return False
            self._write(file, now + self._seconds)
            return True

    def release(self) -> None:
        """Lets others take it at once."""
        with self._file() as (file, holder, _):
            if holder == self._owner:
                self._write(file, 0.0)

    def deadline(self) -> float | None:
        """Until when this candidate holds it; None: it does not."""
        with self._file() as (_, holder, until):
            return until if holder == self._owner else None

    @contextlib.contextmanager
    def _file(self) -> Iterator[tuple[int, str, float]]:
        """The locked file, the holder of the lease, and until when it is held."""
        file = syscalls.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                raise ConfigError("path", str(self._path), "a plain file with one name")
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                found: Any = parse_json(os.pread(file, 4096, 0), LIMITS["lease"])
                holder, until = str(found["owner"]), float(found["until"])
            except (ValueError, TypeError, KeyError):
                holder, until = "", 0.0
            if not until <= time.monotonic() + SECONDS_MOST:  # or no number
                holder, until = "", 0.0
            yield file, holder, until
        finally:
            syscalls.close(file)

    def _write(self, file: int, until: float) -> None:
        text = json.dumps({"owner": self._owner, "until": until}).encode()
        syscalls.pwrite(file, text, 0)
        syscalls.ftruncate(file, len(text))


class LeaseWatch:
    """Closes the fence when the lease ends, and opens it when it is held again. A guest of the
    engine."""

    def __init__(self, engine: WritingEngine, lease: Lease) -> None:
        self._clock = _Clock(fence_of(engine))
        self._poller = _LeasePoller(lease, self._clock)

    def start(self) -> None:
        """The first question is answered when this returns, or the fence is closed. Raises what the
        lease raised."""
        self._clock.hear(None)
        self._clock.start()
        self._poller.start()
        self._poller.answered.wait(0, int(ANSWER_S * 1000))
        if self._poller.failure is not None:
            raise without_frames(self._poller.failure)

    def wake(self) -> None:
        """Asks now."""
        self._poller.wake()

    def stop(self) -> None:
        """Asks no more."""
        self._poller.stop(STOP_S)
        self._clock.stop()


class _Clock(Worker):
    """Closes the fence when the last known deadline has come, whatever holds up the poller."""

    def __init__(self, fence: Fence) -> None:
        super().__init__("rocketstore-lease-clock", lambda error: fence.lease(repr(error)))
        self._fence = fence
        self._hearing = SignalSafeLock("the deadline of the lease")
        self._until, self._why = 0.0, NOT_HELD

    def hear(self, until: float | None, why: str = NOT_HELD) -> None:
        """The lease is held until then; `why` it is not afterwards."""
        with self._hearing():
            self._until, self._why = until or 0.0, why
            self._look()
        self.wake()

    def step(self) -> float | None:
        """Looks once; seconds until the deadline."""
        with self._hearing():
            return self._look()

    def _look(self) -> float | None:
        left_s = self._until - time.monotonic()
        self._fence.lease("" if left_s > 0 else self._why)
        return min(left_s, SECONDS_MOST) if left_s > 0 else None


class _LeasePoller(Worker):
    def __init__(self, lease: Lease, clock: _Clock) -> None:
        super().__init__("rocketstore-lease", self._lost)
        self._lease = lease
        self._clock = clock
        #: Moves once the first question is answered, or failed.
        self.answered = EventCount()

    def step(self) -> float:
        """Asks once; seconds until it asks again."""
        until = self._lease.deadline()
        self._clock.hear(until)
        self.answered.notify()
        left_s = 0.0 if until is None else until - time.monotonic()
        return min(left_s, ASK_EVERY_S) if left_s > 0 else ASK_EVERY_S

    def _lost(self, error: BaseException) -> None:
        """A lease that cannot be asked is not held."""
        self._clock.hear(None, f"{NOT_HELD} (it cannot be asked: {error!r}; open the store again)")
        self.answered.notify()


def keep_lease(engine: WritingEngine, lease: Lease) -> LeaseWatch:
    """Has puts refused while the lease is not held, from this call on."""
    if not callable(getattr(lease, "deadline", None)):
        raise ConfigError("lease", lease, "an object with a method deadline()")
    before = engine.guests.made(LeaseWatch)
    if before is not None:
        return before
    watch = engine.guests.get(LeaseWatch, lambda: LeaseWatch(engine, lease))
    watch.start()
    return watch
