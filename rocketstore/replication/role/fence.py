"""The fence of a master: why it takes no puts, though it is open for them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import FencedError
from rocketstore.log.commitlog.running_flags import FlagReason
from rocketstore.replication.role.state import ReplicationState, fenced, load_state, save_state

__all__ = ["Fence", "fence_of"]

logger = logging.getLogger(__name__)


class Fence:
    """Why a master takes no puts: another was promoted, or its lease is not held. A guest of the
    engine; any thread may call it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._flags = engine.commit_log.flags
        self._lock = SignalSafeLock("the roles", reentrant=False)
        self._by_term = self._by_lease = ""
        #: Called with the error when puts are refused from now on: it ends puts that wait.
        self.on_fence: Callable[[FencedError], None] = _nobody

    def stop(self) -> None:
        """It has no thread."""

    @property
    def error(self) -> FencedError | None:
        """What a put raises; None while puts are taken."""
        why = self._by_term or self._by_lease
        return FencedError(why) if why else None

    def hear(self, term: int) -> None:
        """A peer of this history knows a later term: another store was promoted. That stays, also
        over restarts, until this store is promoted by hand."""
        state = load_state(self._engine.layout)
        if state is None or term <= max(state.term, state.fenced_by or 0):
            return
        self._set_term(term)
        logger.error("%s: %s", self._engine.path, self._by_term)
        try:
            save_state(self._engine.layout, fenced(state, term))
        except OSError as error:  # the peer comes again
            logger.error("%s: that is not kept over a restart: %s", self._engine.path, error)
            raise

    def lease(self, why: str) -> None:
        """The lease is not held, for the reason `why`; "": it is held."""
        with self._lock():
            was, self._by_lease = self._by_lease, why
            if not why and not self._by_term:
                self._flags.clear(FlagReason.FENCED)
        if why and not was and not self._by_term:
            self._refuse(why)

    def restore(self, state: ReplicationState) -> None:
        """As an earlier run of this store has heard."""
        if state.fenced_by is not None:
            self._set_term(state.fenced_by)

    def _set_term(self, term: int) -> None:
        self._by_term = (
            f"another store was promoted in term {term}: follow it with this one, or promote this "
            "one again ('rocketstore promote'), which fences the other"
        )
        self._refuse(self._by_term)
        self.on_fence(
            FencedError(f"whether replicas have the message is not known: {self._by_term}")
        )

    def _refuse(self, why: str) -> None:
        with self._lock():
            self._flags.set(FlagReason.FENCED, why, newest=True)


def _nobody(error: FencedError) -> None:
    """No put waits for replicas."""


def fence_of(engine: WritingEngine) -> Fence:
    """The one fence of an open store."""
    return engine.guests.get(Fence, lambda: Fence(engine))
