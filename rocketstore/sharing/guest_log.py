"""The log of a guest: native puts that go to the host, and what Python says of them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from rocketstore._native.append.appender import Log
from rocketstore._native.append.elsewhere import Elsewhere
from rocketstore._native.append.put_result import PutResult
from rocketstore._native.sync.positions import Positions
from rocketstore.engine.tickets import Completions, Ticket
from rocketstore.errors import OutcomeUnknownError, StoreClosedError
from rocketstore.sharing.messages import error_from

if TYPE_CHECKING:
    import socket

    from rocketstore.config import StoreConfig
    from rocketstore.sharing.link import HostLink
    from rocketstore.values.timestamps import Duration

__all__ = ["GuestCompletions", "GuestLog", "deadline_of"]

logger = logging.getLogger(__name__)


class GuestLog:
    """The owner of the native log of a guest, which appends nothing itself."""

    def __init__(self, path: str, link: HostLink, config: StoreConfig) -> None:
        self._path, self._link = path, link
        #: What answers of hosts have said of the log.
        self.positions = Positions()
        self.log = Log(
            self,
            self.positions,
            buffered=True,  # an answer says what is met, not the kind of log: hosts may differ
            max_unflushed_bytes=config.max_unflushed_bytes,
            max_undispatched_bytes=config.max_undispatched_bytes,
            store_host=config.store_host,
        )
        self.log.max_message_size_bytes = config.max_message_size_bytes
        self.log.sync_flush_timeout_ms = config.sync_flush_timeout_ms
        self.elsewhere = self.log.elsewhere = Elsewhere(self, self.positions)
        self.log.start(0, -1, 0)
        self._shown_when_flushed = config.visible_is_flushed
        #: The run of the host to which puts go, and the number of the session with it.
        self.life, self._session = "", 0
        #: Between these ends of the log puts were lost that a host acknowledged with less than "disk"
        #: before it died. What was put there since is not known from it.
        self.lost = (0, 0)
        #: Up to where a host showed the log when it answered the last call.
        self.shown = 0
        self._closed = False

    def connected(self, waiting: socket.socket, quick: socket.socket) -> None:
        """Puts go to the host of the link from here on."""
        link, begun = self._link, self.life
        life, recovered = link.life, link.recovered_end
        last = self.elsewhere.last_end
        if life != begun:
            self.shown, known = recovered, self.positions
            known.flushed = min(known.flushed, recovered)
            known.committed = min(known.committed, recovered)
        if life != begun and recovered < last:
            begin, end = self.lost
            self.lost = (min(begin, recovered) if end else recovered, max(end, last))
            logger.error(
                "%s: the host died, and the log ends at %d instead of %d: puts that this process "
                "made with less than durability='disk' may be lost",
                *(self._path, recovered, last),
            )
        self.life = life  # now that readers know how far it goes
        self.elsewhere.connect(waiting, quick, link.max_request_bytes)
        self._session = link.session

    @property
    def own_end(self) -> int:
        """Up to where this guest has put, as far as readers are to see it."""
        known = self.positions
        most = known.flushed if self._shown_when_flushed else known.committed
        return max(self.shown, min(self.elsewhere.last_end, most))

    def check_lost(self, end_offset: int) -> None:
        """OutcomeUnknownError for an end where puts were lost."""
        begin, end = self.lost
        if begin < end_offset <= end:
            raise OutcomeUnknownError(
                f"end_offset = {end_offset}: the host died, and the log from {begin} to {end} is "
                "not what it was: whether this message is there is not known; look for it, or put "
                "with durability='disk'"
            )

    def wait_flushed(self, end_offset: int, limit_ms: int) -> bool:
        """Waits at most `limit_ms` milliseconds; whether all below `end_offset` is on the disk then."""
        self.check_lost(end_offset)
        known = self.positions.flushed >= end_offset
        try:
            return known or self.elsewhere.await_flushed(end_offset, limit_ms)
        finally:
            self.check_lost(end_offset)  # another host may have answered

    def close(self) -> None:
        """Refuses puts; those under way end with what their owner says."""
        self._closed = True
        self.log.refuse(True)
        self.elsewhere.disconnect()

    # ---- what the native log asks its owner ----

    def refusal(self) -> Exception:
        return StoreClosedError(
            f"the store is closed; open it again with rocketstore.open({self._path!r}, shared=True)"
        )

    def check_waitable(self) -> None:
        """Raises when waiting for a flush is in vain."""
        if self._closed:
            raise self.refusal()

    def await_host(self, deadline_ns: int) -> None:
        """Returns once puts go to a host; raises what the link does where none takes them in time."""
        self.check_waitable()
        session = self._session
        if not self.elsewhere.connected or time.monotonic_ns() >= deadline_ns:
            self._link.await_host(deadline_ns, ended=session)
        self.check_waitable()

    def unknown(self, deadline_passed: bool) -> BaseException:
        """What a put raises that was sent and has no answer."""
        return self._link.unknown("a put", late=deadline_passed)

    def error_from(self, text: bytes) -> BaseException:
        return error_from(text)

    def was_slow(self, nanoseconds: int, what: str) -> None:
        logger.warning("%s: %s took %d ms", self._path, what, nanoseconds // 1_000_000)

    def fail(self, cause: BaseException) -> None:
        logger.error("%s: %s", self._path, cause)

    def rolled(self) -> None:
        """A roll is the host's."""

    next_segment = half_full = wait_for_room = rolled

    def more_blocks(self, wanted: int) -> None:
        """Blocks are the host's."""

    def segment_faulted(self, start: int, error: int) -> None:
        """Segments are the host's."""


class GuestCompletions(Completions):
    """Tickets whose promise the put has waited for."""

    at_once = True

    def wait(self, result: PutResult, asked: int, timeout_s: Duration | None) -> None:
        """The put has waited."""

    def reached(self, offset: int, asked: int) -> bool:
        return True

    def watch(self, ticket: Ticket) -> None:
        ticket._complete(None)


def deadline_of(limit_ms: float) -> int:
    """CLOCK_MONOTONIC in ns, so long from now."""
    return time.monotonic_ns() + int(limit_ms * 1_000_000)
