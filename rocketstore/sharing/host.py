"""The host's side: a service of a store that is open for writing, which listens for guests.

One thread accepts, and each connection has its own: a guest that is slow, stopped or hostile keeps nobody
but itself waiting. Puts are native (`HostLine`), all else are calls in JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rocketstore._native.append.put_result import as_waiting
from rocketstore._native.os import syscalls
from rocketstore._native.put.host_line import HostLine
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import GuestStoreError, MessageRejectedError, RocketStoreError
from rocketstore.log.layout.paths import QUEUE_ID_MAX
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.sharing import meeting, messages
from rocketstore.sharing.host_calls import CALLS, shared_options
from rocketstore.sharing.host_commits import delay_of
from rocketstore.stats.statistics import GuestFigures
from rocketstore.values.arguments import whole_number
from rocketstore.values.limits import explained
from rocketstore.values.reserved_names import is_system_topic
from rocketstore.values.threads import runs_here, start_thread

if TYPE_CHECKING:
    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.sync.queue_positions import QueueState
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["Desk", "GuestState", "Host", "host_of"]

logger = logging.getLogger(__name__)

#: Most connections of all guests together, and of one guest, count.
CONNECTIONS_MAX: Final = 4096
GUEST_CONNECTIONS_MAX: Final = 72
#: Within which a hello has to be there, and an answer has to be taken, seconds.
HELLO_S: Final = 5.0
ANSWER_S: Final = 10.0
#: Longest wait for what goes on when the store closes, or its guest has gone, and for threads to end, seconds.
STOP_S: Final = 5.0
LATE_S: Final = 1.0
#: Longest wait for a guest that says that it takes the store next, seconds: one may be stopped.
HEIR_S: Final = 0.5
#: Longest name of a guest, characters.
NAME_MAX: Final = 200
#: Between two lines of the log about guests that cannot come, seconds.
QUIET_S: Final = 10.0
#: Pause after no descriptor was left for a connection, ms.
PAUSE_MS: Final = 20
#: Bytes of requests that a guest may send at once, besides one largest message.
REQUEST_BYTES: Final = 4 << 20


@dataclasses.dataclass(eq=False, slots=True)
class GuestState:
    """What the host knows of a guest, for as long as its first connection is there."""

    guest: str
    pid: int
    name: str
    #: Its first connection; whether it may be asked there to take the store next, and has said that it does.
    first: socket.socket
    may_hold: bool = False
    holds_next: bool = False
    #: What calls keep for it: owners of groups, by the numbers that the guest gave them.
    claims: dict[int, Any] = dataclasses.field(default_factory=dict)
    connections: dict[socket.socket, threading.Thread] = dataclasses.field(default_factory=dict)
    lines: list[HostLine] = dataclasses.field(default_factory=list)
    #: Of lines that have ended.
    past_puts: int = 0
    past_bytes: int = 0
    #: The connections whose calls go on.
    running: set[socket.socket] = dataclasses.field(default_factory=set)
    heard_ns: int = dataclasses.field(default_factory=time.monotonic_ns)

    @property
    def puts(self) -> int:
        """Messages that it has put."""
        return self.past_puts + sum(line.puts for line in self.lines.copy())

    @property
    def bytes(self) -> int:
        return self.past_bytes + sum(line.bytes for line in self.lines.copy())

    @property
    def in_flight(self) -> int:
        """Requests that have begun and are not answered."""
        return len(self.running) + sum(line.want_count for line in self.lines.copy())

    @property
    def heard_s(self) -> float:
        """Seconds since something came of it."""
        last_ns = max(self.heard_ns, *(line.heard_ns for line in self.lines.copy()), 0)
        return max(0.0, (time.monotonic_ns() - last_ns) / 1e9)


class Desk:
    """What native lines ask Python for."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self.record_crc = engine.record_crc
        self.error_text = messages.error_text

    def queue_of(self, topic: bytes, queue_id: int) -> tuple[QueueState, bool]:
        """The queue that a put names, and whether messages wait there for their time, so that a service hears of each.
        Raises InvalidTopicError, MessageRejectedError, ValueError."""
        name, levels = topic.decode(errors="surrogateescape"), self._engine.config.delay_level_ms
        queues = {SCHEDULE_TOPIC: len(levels), TIMER_TOPIC: 1}.get(name)
        if is_system_topic(name) and queues is None:
            raise MessageRejectedError(f"topic = {name!r}: a guest puts nothing there")
        whole_number("queue_id", queue_id, 0, QUEUE_ID_MAX if queues is None else queues - 1)
        self._engine.check_topic(name)
        state = self._engine.queue_state(name, queue_id)
        self._engine.write.expect_put((state,))
        return state, queues is not None

    def told(self, topic: bytes, queue_id: int, properties: bytes) -> None:
        """A message that waits is in the log."""
        delay = delay_of(self._engine, topic.decode(), queue_id, properties)
        if delay is not None:
            delay.note()

    def unique_put(
        self,
        topic: str,
        unique_id: str,
        append: Callable[[], PutResult],
        own_topic: str,
        queue_id: int,
        properties: bytes,
    ) -> PutResult:
        """`topic`: where it is the only one with its id. The others are of the message itself, which may
        wait."""

        def put() -> PutResult:  # later puts get what is kept of this one
            delay = delay_of(self._engine, own_topic, queue_id, properties)
            return as_waiting(append(), delay, unique_id)

        return self._engine.unique_ids.put(topic, unique_id, put)


class Host:
    """Serves the guests of one store until it closes."""

    def __init__(self, engine: WritingEngine) -> None:
        """Listens from here on. Raises OSError: it cannot."""
        self._engine = engine
        self._desk = Desk(engine)
        self._lock = SignalSafeLock("the guests of a host")
        self._guests: dict[str, GuestState] = {}
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._ending = False
        self._pause = EventCount()
        self.max_request_bytes = engine.config.max_message_size_bytes + REQUEST_BYTES
        self._listener = meeting.Listener(engine.layout)
        self._thread = threading.Thread(target=self._accept, name="rocketstore-host", daemon=True)
        try:
            start_thread(self._thread)
        except BaseException:
            self._listener.close()
            self._listener.leave()
            raise
        engine.guests.figures = self.figures

    def figures(self) -> tuple[GuestFigures, ...]:
        """The guests that are there, the oldest first."""
        return tuple(
            GuestFigures(one.pid, one.name, one.puts, one.bytes, one.in_flight, one.heard_s)
            for one in self._guests.copy().values()
        )

    # ---- the end ----

    def stop(self) -> None:
        """Calls and puts that have begun are answered, those that have not hear "again". Then the
        connections end, those of guests that take no answer after some seconds. That of a guest which takes the
        store next goes on, until it has the lock."""
        with self._lock():
            begun, self._ending = self._ending, True
        if begun:
            return
        self._listener.close()
        self._pause.notify()
        deadline = time.monotonic() + STOP_S
        threads = []
        for guest in self._guests.copy().values():
            for line in guest.lines.copy():
                line.end()
            for sock, thread in guest.connections.copy().items():
                _shut(sock, socket.SHUT_RD)  # what has come is still read
                threads.append(thread)
        for thread in threads:
            _ended(thread, deadline)
        # The first connection of a guest comes last: it says that the host is gone.
        heir = heir_of(self._guests.copy().values(), self._pause)
        if heir is not None:
            self._engine.write.lock.bequeath = partial(_bequeath, heir)
        threads = [self._thread]
        for sock, thread in self._connections.copy().items():
            if sock is not heir:
                _shut(sock, socket.SHUT_RDWR)
                threads.append(thread)
        late = [thread.name for thread in threads if not _ended(thread, deadline + LATE_S)]
        if late:  # it finds a store that is closed, as a thread of the program does
            logger.warning("%s: a call goes on, of %s", self._engine.path, ", ".join(late))

    # ---- connections ----

    def _accept(self) -> None:
        spare, quiet_until = _spare(), 0.0
        while True:
            try:
                self._begin(*self._listener.accept())
            except (OSError, MemoryError) as error:
                if self._ending:
                    break
                if time.monotonic() > quiet_until:
                    quiet_until = time.monotonic() + QUIET_S
                    logger.warning("%s: a guest cannot come: %s", self._engine.path, error)
                spare = self._send_away(spare, error)
                self._pause.wait(self._pause.count, PAUSE_MS)
        _close(spare)
        self._listener.leave()

    def _send_away(self, spare: int, error: BaseException) -> int:
        """Answers the next connection that there is no descriptor left, in the place of `spare`."""
        number = getattr(error, "errno", 0)
        if spare >= 0 and number in (errno.EMFILE, errno.ENFILE):
            said = explained(number)
            _close(spare)
            with contextlib.suppress(OSError):
                sock, _ = self._listener.accept()
                self._refuse(sock, OSError(number, f"the process that holds the store: {said}"))
            spare = -1
        return _spare() if spare < 0 else spare

    def _begin(self, sock: socket.socket, pid: int) -> None:
        """Gives the connection a thread. Raises OSError, which the guest hears too: it cannot."""
        thread = threading.Thread(
            target=self._attend, args=(sock, pid), name=f"rocketstore-guest-{pid}", daemon=True
        )
        self._connections[sock] = thread
        try:
            if len(self._connections) > CONNECTIONS_MAX:
                text = f"the process that holds the store has {CONNECTIONS_MAX} connections"
                raise OSError(errno.EUSERS, text)
            start_thread(thread)
        except OSError as error:
            del self._connections[sock]
            self._refuse(sock, error)
            raise

    def _refuse(self, sock: socket.socket, error: Exception) -> None:
        with contextlib.suppress(OSError), sock:
            messages.send_hello(sock, {"error": messages.error_fields(error)}, 0.0)

    def _attend(self, sock: socket.socket, pid: int) -> None:
        """One connection, in its thread, from its hello to its end."""
        state: GuestState | None = None
        kind = ""
        try:
            hello = messages.receive_hello(sock, HELLO_S)
            try:
                kind, state = self._admit(sock, hello, pid)
            except (GuestStoreError, ValueError) as error:
                self._refuse(sock, error)
                return
            messages.send_hello(sock, self._greeting(), ANSWER_S)
            if kind == "guest":
                sock.settimeout(None)
                state.may_hold = hello.get("heir") is True
                while sock.recv(1):  # the end of the guest is the end of it
                    state.holds_next = True
                    self._pause.notify()
            elif kind == "call":
                self._answer_calls(sock, state)
            else:
                sock.settimeout(None)
                self._take_puts(sock, state)
        except (OSError, ValueError) as error:
            logger.debug("%s: a connection of process %d ended: %r", self._engine.path, pid, error)
        finally:
            if state is not None and kind == "guest":
                self._forget(state)
            elif state is not None:
                state.connections.pop(sock, None)
            self._connections.pop(sock, None)
            sock.close()

    def _admit(
        self, sock: socket.socket, hello: dict[str, Any], pid: int
    ) -> tuple[str, GuestState]:
        """Raises GuestStoreError, ValueError: it is refused. EndedError: it may ask again."""
        protocol, kind, guest = (hello.get(name) for name in ("protocol", "kind", "guest"))
        if protocol != messages.PROTOCOL:
            raise GuestStoreError(messages.other_protocol(protocol, hello.get("release")))
        if kind not in ("guest", "call", "puts") or not isinstance(guest, str) or len(guest) != 32:
            raise ValueError(f"a hello of kind {kind!r:.40} of {guest!r:.40}")
        with self._lock():
            state = self._guests.get(guest)
            if self._ending or (state is not None and kind == "guest"):
                raise messages.EndedError(
                    "the host ends, or the end of this guest's last connection"
                )
            if kind == "guest":
                said = hello.get("pid")
                name = str(hello.get("name"))[:NAME_MAX]
                pid = pid or (said if type(said) is int else 0)
                state = GuestState(guest, pid, name, sock)
                self._guests[guest] = state
            elif state is None:
                raise messages.EndedError("this guest has gone")
            elif len(state.connections) >= GUEST_CONNECTIONS_MAX:
                raise GuestStoreError(f"a guest has {GUEST_CONNECTIONS_MAX} connections at most")
            else:
                state.connections[sock] = threading.current_thread()
        return str(kind), state

    def _greeting(self) -> dict[str, Any]:
        engine = self._engine
        return {
            "protocol": messages.PROTOCOL,
            "release": messages.release(),
            "pid": os.getpid(),
            "life": engine.write.page.positions.run_id.hex(),
            "recovered_end": engine.recovery.end,
            "max_request_bytes": self.max_request_bytes,
            "config": shared_options(engine),
        }

    def _forget(self, state: GuestState) -> None:
        """The guest has gone: its other connections end, and then what it has claimed."""
        deadline = time.monotonic() + STOP_S
        others = state.connections.copy()
        for sock in others:
            _shut(sock, socket.SHUT_RDWR)
        for thread in others.values():
            _ended(thread, deadline)
        state.claims.clear()
        with self._lock():
            del self._guests[state.guest]

    # ---- what guests ask ----

    def _take_puts(self, sock: socket.socket, state: GuestState) -> None:
        line = HostLine(self._engine.commit_log.log, self._desk, self.max_request_bytes)
        state.lines.append(line)
        if self._ending:  # `stop` may not have seen it
            line.end()
        try:
            line.serve(sock)
        finally:
            with self._lock():
                state.lines.remove(line)
                state.past_puts += line.puts
                state.past_bytes += line.bytes

    def _answer_calls(self, sock: socket.socket, state: GuestState) -> None:
        while True:
            fields, blob = messages.receive_call(sock, self.max_request_bytes)
            state.heard_ns = time.monotonic_ns()
            state.running.add(sock)
            try:
                answer, data = self._answer(state, fields, blob)
                try:
                    messages.send_call(sock, answer, data, ANSWER_S)
                except (ValueError, TypeError) as error:  # more than an answer may have
                    told = {"error": messages.error_fields(error)}
                    messages.send_call(sock, told, b"", ANSWER_S)
            finally:
                state.running.discard(sock)

    def _answer(
        self, state: GuestState, fields: dict[str, Any], blob: bytes
    ) -> tuple[dict[str, Any], bytes]:
        if self._ending:
            return {"again": True}, b""
        try:
            call = CALLS.get(str(fields.get("call")))
            if call is None:
                raise GuestStoreError(
                    f"call = {fields.get('call')!r:.80}: rocketstore {messages.release()}, which "
                    "holds the store, does not know it; upgrade it there"
                )
            value, data = call(self._engine, state, fields, blob)
            return {"ok": value}, data
        except Exception as error:
            if not isinstance(error, RocketStoreError | ValueError | TypeError | OSError):
                logger.error("%s: a call of %s: %r", self._engine.path, state.name, error)
            return {"error": messages.error_fields(error)}, b""


def host_of(engine: WritingEngine) -> Host:
    """The host of a store, which listens from the first call on. Raises OSError: it cannot."""
    return engine.guests.get(Host, lambda: Host(engine))


def _spare() -> int:
    """A descriptor that is given up where a guest must hear that there is none left; -1: none."""
    with contextlib.suppress(OSError):
        return syscalls.open_directory("/")
    return -1


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        with contextlib.suppress(OSError):  # it is closed all the same
            syscalls.close(descriptor)


def heir_of(guests: Iterable[GuestState], pause: EventCount) -> socket.socket | None:
    """The first connection of a guest that has the store next, if one says in time that it takes it. This process
    closes the store: it is none of its guests."""
    asked = [one for one in guests if one.may_hold and one.pid != os.getpid()]
    for one in asked:
        with contextlib.suppress(OSError):
            one.first.send(messages.ASKS, socket.MSG_DONTWAIT)
    deadline = time.monotonic() + HEIR_S
    while asked and time.monotonic() < deadline:
        seen = pause.count
        if any(one.holds_next for one in asked):
            break
        pause.wait(seen, PAUSE_MS)
    return next((one.first for one in asked if one.holds_next), None)


def _bequeath(heir: socket.socket, descriptor: int) -> bool:
    """Gives the descriptor of the lock to a guest. Nobody else gets the store in between."""
    given = meeting.give(heir, descriptor)
    _shut(heir, socket.SHUT_RDWR)
    return given


def _shut(sock: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        sock.shutdown(how)


def _ended(thread: threading.Thread, deadline: float) -> bool:
    if runs_here(thread):
        return True
    thread.join(max(0.0, deadline - time.monotonic()))
    return not thread.is_alive()
