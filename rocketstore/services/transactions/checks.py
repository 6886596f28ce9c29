"""Asks the program about transactions that nobody has settled, as RocketMQ asks producers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.log.worker import Worker
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.threads import start_thread

if TYPE_CHECKING:
    from rocketstore._native.format.message import Message
    from rocketstore.services.transactions.open_table import Entry
    from rocketstore.services.transactions.settling import Settling
    from rocketstore.values.clock import Clock

__all__ = ["Answer", "Checks", "OnCheck"]

logger = logging.getLogger(__name__)

Answer = Literal["commit", "rollback"]
#: Is given the half message; None: ask again later.
OnCheck = Callable[["Message"], Answer | None]
#: Questions under way at a time, count: if all their callbacks hang, no more are asked.
QUESTIONS_MAX: Final = 5
#: Shortest and longest pause after an error, seconds.
RETRY_S: Final = (1.0, 60.0)
#: How long a close waits for callbacks that run, seconds.
LAST_ANSWERS_S: Final = 1.0


class Checks(Worker):
    """Asks `on_check` about each open transaction that is old enough, again and again.

    Each question has a thread of its own, so that a callback that hangs holds up no other.
    """

    def __init__(
        self,
        settling: Settling,
        clock: Clock,
        on_check: OnCheck,
        *,
        immunity_ms: int,
        interval_ms: int,
        max_checks: int,
    ) -> None:
        super().__init__("rocketstore-transaction-checks", self._died)
        self._settling = settling
        self._clock = clock
        self._on_check = on_check
        self._immunity_ms = immunity_ms
        self._interval_ms = interval_ms
        self._max_checks = max_checks
        self._questions: set[threading.Thread] = set()
        self._lock = SignalSafeLock("the questions of checks", reentrant=False)
        self._retries = 0
        self._unfollow = clock.follow(lambda now_ms: self.wake())
        #: The last error of a callback, or of a round.
        self.error: BaseException | None = None

    def step(self) -> float | None:
        try:
            pause_s = self._round()
        except Exception as error:
            self._keep(error)
            pause_s = min(RETRY_S[0] * 2**self._retries, RETRY_S[1])
            self._retries = min(self._retries + 1, 10)
        else:
            self._retries = 0
        return pause_s

    def end(self) -> None:
        """No question is asked from here on; a callback that hangs is left alone."""
        self._unfollow()
        self.stop(LAST_ANSWERS_S)
        with self._lock():
            questions = [one for one in self._questions if one is not threading.current_thread()]
        for question in questions:
            question.join(LAST_ANSWERS_S / len(questions))

    def _round(self) -> float | None:
        self._settling.refresh()
        now_ms = self._clock.now_ms()
        next_ms = now_ms + max(1, self._immunity_ms)
        for entry in self._settling.table.entries():
            if entry.asking or isinstance(entry.error, CorruptRecordError):
                continue
            due_ms = self._due_ms(entry, now_ms)
            if due_ms > now_ms:
                next_ms = min(next_ms, due_ms)
            elif entry.checks >= self._max_checks:
                self._give_up(entry)
            elif not self._ask(entry, now_ms):
                break  # the end of a question wakes this thread
        return self._clock.pause_s(next_ms)

    def _give_up(self, entry: Entry) -> None:
        """One whose half message cannot be read stays open, and the others are asked about."""
        try:
            self._settling.end(entry, "dead", None)
        except (CorruptRecordError, ReadFailedError) as error:
            self._keep(error)

    def _due_ms(self, entry: Entry, now_ms: int) -> int:
        """Of one born after now, the clock was set back: RocketMQ asks at once, too."""
        immunity_ms = self._immunity_ms if entry.immunity_ms is None else entry.immunity_ms
        due_ms = now_ms if entry.born_ms > now_ms else entry.born_ms + immunity_ms
        if entry.asked_ms is not None:
            due_ms = max(due_ms, min(entry.asked_ms, now_ms) + self._interval_ms)
        return due_ms

    def _ask(self, entry: Entry, now_ms: int) -> bool:
        """False: too many questions are under way."""
        thread = threading.Thread(
            target=self._question, args=(entry,), name="rocketstore-on-check", daemon=True
        )
        with self._lock():
            if len(self._questions) >= QUESTIONS_MAX:
                return False
            self._questions.add(thread)
        entry.asking, entry.asked_ms = True, now_ms
        entry.checks += 1  # before the answer, after which anybody may look
        try:
            start_thread(thread)
        except BaseException:
            entry.checks -= 1
            self._answered(entry, thread)
            raise
        return True

    def _question(self, entry: Entry) -> None:
        try:
            answer = self._on_check(self._settling.half(entry))
            if answer in ("commit", "rollback"):
                self._settling.end(entry, answer, None)
            elif answer is not None:
                raise ValueError(f"on_check gave {answer!r}: expected commit, rollback or None")
        except Exception as error:
            self._keep(error)
        finally:
            self._answered(entry, threading.current_thread())

    def _answered(self, entry: Entry, thread: threading.Thread) -> None:
        with self._lock():
            self._questions.discard(thread)
        entry.asking = False
        self.wake()

    def _keep(self, error: BaseException) -> None:
        self.error = without_frames(error)
        logger.warning("a check of open transactions failed, it is tried again: %r", error)

    def _died(self, error: BaseException) -> None:
        self._keep(error)
