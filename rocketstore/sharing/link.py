"""A guest's side: its connections to whichever process holds the store, and what happens when that ends.

A thread waits for the end of the first connection. Then it takes the lock of the store, at once, and opens
the store for writing as a hidden store of this process; or it finds the process that was quicker. The guest
stays a guest of its own process in the first case, so nothing of it changes its kind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from rocketstore._native.os import syscalls
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    GuestStoreError,
    MessageTooLargeError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreLockedError,
    StoreReplacedError,
)
from rocketstore.log.layout.identity import StoreIdentity
from rocketstore.log.layout.lock import StoreLock, describe_holder
from rocketstore.log.layout.positions_page import writer_pid
from rocketstore.sharing import hidden, meeting, messages
from rocketstore.sharing.meeting import process_name, process_state
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.threads import runs_here, start_thread

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["HostLink"]

logger = logging.getLogger(__name__)

#: First and longest pause between two looks for a host, and the longest after an error, ms.
SHORTEST_MS: Final = 2
LONGEST_MS: Final = 50
AFTER_ERROR_MS: Final = 1000
#: Longest wait for a host's answer to a hello, seconds; a host that is stopped gives none.
HELLO_S: Final = 30.0
#: For how long a session whose lines have ended may go on, so that its host can answer what it has begun, seconds.
LAST_WORDS_S: Final = 6.0
#: Between two looks whether a store that this process holds for its guests has failed, seconds.
LOOK_S: Final = 1.0
#: Most calls of a guest at a time, count.
CALLS_MAX: Final = 60
#: Longest wait for the thread at the end, seconds: it may recover the store.
STOP_S: Final = 10.0
REMEDY: Final = "ask again once a process holds the store"


class HostLink:
    """The connections of one guest. Any thread may use it."""

    def __init__(
        self, layout: StoreLayout, become: Callable[[StoreLock | None], WritingEngine] | None = None
    ) -> None:
        """`become` opens the store for writing, with the lock if it is given, and serves guests of it;
        StoreLockedError at once: another process has it. None: this process never holds the store."""
        self.layout = layout
        self.guest = uuid.uuid4().hex
        #: Count of connected hosts; each has its own connections.
        self.session = 0
        #: What the host said in its hello.
        self.host_pid = self.recovered_end = self.max_request_bytes = 0
        self.life = ""
        self.config: Mapping[str, Any] = {}
        #: Called in the order of the list once a host is there, before anybody else hears of it; an error of one
        #: ends that session.
        self.on_connected: list[Callable[[HostLink], object]] = []
        self._become = become
        self._token = syscalls.process_token()
        self._lock = SignalSafeLock("the connections to a host")
        self._changed = EventCount()
        self._ready = self._closing = False
        self._main: socket.socket | None = None
        #: Connections for calls of the present session.
        self._free: list[socket.socket] = []
        self._calls = 0
        self._maker = 0
        self._said_pid = 0
        self._why: BaseException | None = None
        self._identity: StoreIdentity | None = None
        #: The lock of the store, which a host that has closed has given to this guest.
        self._given: StoreLock | None = None
        self._thread: threading.Thread | None = None
        if become is not None:
            hidden.come(self)

    @property
    def root(self) -> str:
        return os.fspath(self.layout.root)

    # ---- to a host ----

    def connect(self, limit_s: float) -> bool:
        """Whether a host has answered. Called before `start`, and by the thread.

        Raises:
            GuestStoreError: the host does not take this guest. PermissionError: it is of another user. OSError:
                one of both has no descriptor left.
        """
        found = meeting.connect(self.layout)
        if found is None:
            return False
        sock, self.host_pid = found
        before, self._main = self._main, sock  # `end` ends it
        if before is not None:
            before.close()
        self._drop()
        try:
            if self._closing:
                raise messages.EndedError("the store is closed")
            hello = self._greet(sock, "guest", limit_s)
            life, self.config = str(hello["life"]), dict(hello["config"])
            self.recovered_end = int(hello["recovered_end"])
            self.max_request_bytes = int(hello["max_request_bytes"])
            self._said_pid = int(hello["pid"])
            self._identity = self._identity or StoreIdentity(self.layout)
            with self._lock():
                self.life = life
                self.session += 1
            return True
        except (TimeoutError, ConnectionError):
            sock.close()
            return False
        except (KeyError, TypeError, ValueError) as error:
            sock.close()
            raise GuestStoreError(f"the host says what none says: {error!r}") from error
        except BaseException:
            sock.close()
            raise

    def start(self) -> None:
        """Calls `on_connected`, and starts the thread that looks for the next host, after `connect`.
        Idempotent."""
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._stand_by, name="rocketstore-standby", daemon=True)
        with contextlib.suppress(
            ConnectionError
        ):  # of a host that has gone: the thread finds the next
            self._tell()
        start_thread(thread)
        self._thread = thread

    def line(self) -> socket.socket:
        """A new connection for puts, which the caller owns. Raises OSError: there is none."""
        return self._opened("puts", HELLO_S)[0]

    def _tell(self) -> None:
        self._maker = threading.get_ident()
        try:
            for told in self.on_connected:
                told(self)
            self._why = None
            self._ready = True
            self._changed.notify()
        finally:
            self._maker = 0

    def _opened(self, kind: str, limit_s: float) -> tuple[socket.socket, str]:
        """A connection, and the life of the host, which may be one that the link has not met yet."""
        found = meeting.connect(self.layout)
        if found is None:
            raise ConnectionRefusedError("no process holds the store")
        try:
            return found[0], str(self._greet(found[0], kind, limit_s).get("life"))
        except BaseException:
            found[0].close()
            raise

    def _greet(self, sock: socket.socket, kind: str, limit_s: float) -> dict[str, Any]:
        hello = {
            "protocol": messages.PROTOCOL,
            "release": messages.release(),
            "guest": self.guest,
            "pid": os.getpid(),
            "name": process_name(os.getpid()),
            "kind": kind,
            "heir": self._become is not None,
        }
        with contextlib.suppress(BrokenPipeError):  # of one that refuses it unheard, and says why
            messages.send_hello(sock, hello, limit_s)
        answer = messages.receive_hello(sock, limit_s)
        if "error" in answer:
            raise messages.error_of(answer["error"])
        if answer.get("protocol") != messages.PROTOCOL:
            raise GuestStoreError(
                messages.other_protocol(answer.get("protocol"), answer.get("release"))
            )
        sock.settimeout(None)
        return answer

    # ---- calls ----

    def call(
        self,
        name: str,
        fields: Mapping[str, Any] | None = None,
        blob: bytes = b"",
        limit_s: float = 30.0,
        *,
        again: bool = False,
        once: bool = False,
        asks: Callable[[str, int], bool] | None = None,
    ) -> tuple[Any, bytes]:
        """What the host answers to a call: a value out of JSON, and bytes. `again`: the call may be done twice, so
        that it is asked again where no answer comes. `once`: only of the host that `connect` has found.
        `asks` hears the life and the session of each host right before it is asked; False: not this one, now.

        Raises:
            OutcomeUnknownError: no answer has come; it may have been done. MessageTooLargeError: the host takes fewer
                bytes at once.
            ConnectionResetError: with `once`, the host has ended before it answered.
            StoreLockedError: no host is there within the time. BackpressureError: too many calls go on.
            StoreClosedError: this store is closed. Else what the host says.
        """
        syscalls.check_forked(self._token)
        began_ns = time.monotonic_ns()
        deadline_ns = began_ns + int(limit_s * 1e9)
        message = {"call": name, **(fields or {})}
        if len(blob) > self.max_request_bytes:
            raise MessageTooLargeError(
                f"{name}: {len(blob)} bytes; process {self.host_pid}, which holds the store, takes "
                f"{self.max_request_bytes} at once"
            )
        self._begin_call(deadline_ns)
        try:
            while True:
                if not (makes := once or self._maker == threading.get_ident()):
                    self.await_host(deadline_ns)
                session = self.session
                answer = self._asked(message, blob, deadline_ns, again, asks)
                if answer is not None:
                    said, data = answer
                    if "error" in said:
                        raise messages.error_of(said["error"])
                    return said.get("ok"), data
                if makes:
                    raise ConnectionResetError("the host has ended")
                if time.monotonic_ns() >= deadline_ns:
                    raise self._without_host(began_ns)
                self._pause(session, deadline_ns)
        finally:
            with self._lock():
                self._calls -= 1
            if self._calls == CALLS_MAX - 1:
                self._changed.notify()

    def _begin_call(self, deadline_ns: int) -> None:
        while True:
            seen = self._changed.count
            with self._lock():
                if self._calls < CALLS_MAX:
                    self._calls += 1
                    return
            if not self._wait(seen, deadline_ns):
                raise BackpressureError(f"{CALLS_MAX} calls of this store go on; nothing was done")

    def _asked(
        self,
        message: Mapping[str, Any],
        blob: bytes,
        deadline_ns: int,
        again: bool,
        asks: Callable[[str, int], bool] | None,
    ) -> tuple[dict[str, Any], bytes] | None:
        """The answer of a host; None: it has not done it, or `again` is meant."""
        with self._lock():
            sock = self._free.pop() if self._free else None
            life = self.life
        if sock is None:
            try:
                sock, life = self._opened("call", _left_s(deadline_ns))
            except (ConnectionError, TimeoutError):
                return None
        kept = False
        try:
            with self._lock():
                session = self.session
                if life != self.life:  # the link has not met this host yet
                    return None
            if asks is not None and not asks(life, session):
                return None
            try:
                messages.send_call(sock, message, blob, _left_s(deadline_ns))
            except messages.UnsentError:
                return None
            try:
                left_s = _left_s(deadline_ns)
                said, data = messages.receive_call(sock, self.max_request_bytes, left_s)
            except (OSError, ValueError) as error:
                late = isinstance(error, TimeoutError)
                if again and not late:
                    return None
                raise self.unknown(f"call {message['call']!r}", late=late) from None
            if "again" in said:
                return None
            with self._lock():
                kept = session == self.session and not self._closing
                if kept:
                    self._free.append(sock)
            return said, data
        finally:
            if not kept:
                sock.close()

    def unknown(self, what: str, *, late: bool) -> OutcomeUnknownError:
        """The error of a request without an answer. `late`: its time is over."""
        pid, why = self.host_pid, "has not answered in time" if late else "has not answered"
        return OutcomeUnknownError(
            f"{what}: process {pid}, which is {process_state(pid)}, {why}; it may have been done"
        )

    # ---- waiting for a host ----

    def await_host(self, deadline_ns: int, ended: int | None = None) -> None:
        """Returns once a host is connected. `ended`: the session whose lines have ended; the next one is waited
        for.

        Raises:
            StoreLockedError: not by then (`time.monotonic_ns`). StoreClosedError, StoreReplacedError.
        """
        began_ns = time.monotonic_ns()
        while True:
            seen = self._changed.count
            syscalls.check_forked(self._token)
            if self._closing:
                raise StoreClosedError("the store is closed")
            if self._ready and self.session != ended:
                return
            why = self._why
            if isinstance(why, StoreReplacedError):
                raise StoreReplacedError(*why.args)
            now_ns = time.monotonic_ns()
            if now_ns >= deadline_ns:
                raise self._without_host(began_ns)
            until_ns = deadline_ns
            if self._ready and ended is not None:
                until_ns = began_ns + int(LAST_WORDS_S * 1e9)
                if now_ns >= until_ns:
                    self._shut(ended)
                    until_ns = deadline_ns
            self._wait(seen, min(deadline_ns, until_ns))

    def _without_host(self, began_ns: int) -> StoreLockedError:
        waited_s = (time.monotonic_ns() - began_ns) / 1e9
        error = StoreLockedError(self.root, self.host_state(), REMEDY, waited_s)
        error.__cause__ = self._why
        return error

    def host_state(self) -> str:
        """The process that holds the store, its name, and whether it runs. "": none does."""
        holder = describe_holder(self.layout)
        if holder is None:
            return ""
        # The page has pids as the holder counts them.
        pid = writer_pid(self.layout.positions)
        pid = self.host_pid if pid in (None, self._said_pid) else pid
        state = process_state(pid)
        return (
            holder if state == "gone" else f"process {pid} ({process_name(pid)}), which is {state}"
        )

    def _wait(self, seen: int, deadline_ns: int) -> bool:
        left_ms = -((time.monotonic_ns() - deadline_ns) // 1_000_000)
        self._changed.wait(seen, max(1, left_ms)) if left_ms > 0 else None
        return left_ms > 0

    def _pause(self, session: int, deadline_ns: int) -> None:
        """Before the next try of a call: until something changes, and a little while."""
        seen = self._changed.count
        if session == self.session:
            until_ns = time.monotonic_ns() + LONGEST_MS * 1_000_000
            self._wait(seen, min(deadline_ns, until_ns))

    def _drop(self) -> None:
        """The connections of calls that nobody uses now are used no more."""
        with self._lock():
            free, self._free = self._free, []
        for sock in free:
            sock.close()

    def _shut(self, session: int) -> None:
        with self._lock(), contextlib.suppress(OSError):
            if session == self.session and self._main is not None:
                self._main.shutdown(socket.SHUT_RDWR)

    # ---- the thread ----

    def _stand_by(self) -> None:
        while not self._closing:
            self._await_end()
            self._ready = False
            self._changed.notify()
            if not self._find_next():
                return

    def _await_end(self) -> None:
        """Of the connection to the host. One that closes asks here whether this guest takes the store next, and
        gives the lock to one that does."""
        main = self._main
        assert main is not None
        with contextlib.suppress(OSError), main:
            while (said := meeting.receive(main, LOOK_S)) != b"":
                if isinstance(said, int):
                    self._given = StoreLock.inherited(self.layout, said)
                    return
                if said is not None:
                    main.send(said)  # it does
                hidden.close_failed(self.root)

    def _find_next(self) -> bool:
        """Returns once there is a host; False: none is looked for any more."""
        pause_ms = SHORTEST_MS
        while not self._closing:
            seen = self._changed.count
            longest_ms = LONGEST_MS
            try:
                if self._try_next():
                    return True
            except Exception as error:
                longest_ms = AFTER_ERROR_MS
                if repr(error) != repr(self._why):
                    logger.warning("%s: no host yet: %s", self.root, error)
                self._why = without_frames(error)
                if isinstance(error, StoreReplacedError):
                    self._changed.notify()
                    break
            self._changed.wait(seen, pause_ms)
            pause_ms = min(2 * pause_ms, longest_ms)
        if self._given is not None:
            self._given.release()
        return False

    def _try_next(self) -> bool:
        assert self._identity is not None
        given, self._given = self._given, None
        try:
            self._identity.check()
            if self._become is not None and (given or StoreLock.probe(self.layout) is None):
                with contextlib.suppress(StoreLockedError):
                    hidden.hold(self.root, self._become(given))
                    given = None
        finally:
            if given is not None:
                given.release()
        if not self.connect(HELLO_S):
            return False
        self._tell()
        return True

    # ---- the end ----

    def close(self) -> None:
        """Ends the connections, and the hidden store of this process with its last guest. Idempotent."""
        self.end()
        thread = self._thread
        if thread is not None and not runs_here(thread):
            thread.join(STOP_S)
        if self._main is not None:
            self._main.close()
        if self._identity is not None:
            self._identity.close()
        hidden.go(self)

    def end(self) -> None:
        """No host is looked for any more, and nobody waits for one. Idempotent."""
        self._closing = True
        self._drop()
        self._shut(self.session)
        self._changed.notify()


def _left_s(deadline_ns: int) -> float:
    return max(0.001, (deadline_ns - time.monotonic_ns()) / 1e9)
