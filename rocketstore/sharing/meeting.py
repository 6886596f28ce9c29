"""Where guests and host of a store meet: a Unix socket in its directory, and its users.

Only the process that holds the store's lock binds, replaces or removes the socket, so one that it finds is
stale. The path goes through the descriptor of the directory: it may have any length, and a change of the
current directory does not matter.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
import struct
from typing import TYPE_CHECKING, Any, Final

from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.values.limits import explained

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout

__all__ = [
    "Listener",
    "adopt",
    "connect",
    "give",
    "peer_of",
    "process_name",
    "process_state",
    "receive",
]

#: Connections that wait until the host takes them, count.
BACKLOG: Final = 4096
_CREDENTIALS: Final = struct.Struct("iII")


class Listener:
    """The socket of a host. One thread accepts; any other closes."""

    def __init__(self, layout: StoreLayout) -> None:
        """The caller has the lock of the store. Raises OSError."""
        self._name = layout.host_socket.name
        self._closed = False
        self._leaving = SignalSafeLock("the socket of a host")
        with _born():
            self._socket = _new_socket()
        self._directory = -1
        try:
            self._directory = syscalls.open_directory(os.fspath(layout.own))
            adopt(self._directory)
            self._remove(self._directory)
            try:
                self._socket.bind(f"/proc/self/fd/{self._directory}/{self._name}")
            except OSError as error:
                text = f"no socket can be made here: {error.strerror}"
                raise OSError(error.errno, text, os.fspath(layout.host_socket)) from None
            self._give_away()
            self._socket.setblocking(False)
            self._socket.listen(BACKLOG)
        except BaseException:
            self.leave()
            raise

    def accept(self) -> tuple[socket.socket, int]:
        """The next connection of a process that may come, and its pid. Others are sent away, unread.

        Raises:
            OSError: the system has no descriptor left, or the listener is closed (EINVAL).
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            poll.poll()
            if self._closed:
                raise OSError(errno.EINVAL, "the host ends")
            with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
                with _born():
                    sock = self._socket.accept()[0]
                    adopt(sock.fileno())
                try:
                    return sock, peer_of(sock, os.fstat(self._directory).st_uid)
                except PermissionError:
                    sock.close()

    def close(self) -> None:
        """Removes the name, and wakes the thread that accepts. The lock is still held."""
        with self._leaving():
            self._closed = True
            if self._directory >= 0:
                self._remove(self._directory)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Lets the descriptors go; nobody accepts any more. Idempotent."""
        with self._leaving():
            self._socket.close()
            directory, self._directory = self._directory, -1
            if directory < 0:
                return
            with contextlib.suppress(OSError):  # the next host removes what stays
                if not self._closed:
                    self._remove(directory)
            with contextlib.suppress(OSError):  # it is closed all the same
                syscalls.close(directory)

    def _remove(self, directory: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=directory)

    def _give_away(self) -> None:
        """Mode 0600, and the owner of the directory: a host that root runs serves the store's user."""
        fd = os.open(self._name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._directory)
        try:
            made, owner = os.fstat(fd), os.fstat(self._directory)
            if not stat.S_ISSOCK(made.st_mode) or made.st_uid != os.geteuid() or made.st_nlink != 1:
                raise PermissionError(errno.EPERM, "another program has changed it", self._name)
            os.chmod(f"/proc/self/fd/{fd}", 0o600)
            if owner.st_uid != made.st_uid:
                os.chown(f"/proc/self/fd/{fd}", owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)


def connect(layout: StoreLayout) -> tuple[socket.socket, int] | None:
    """A connection to the process that listens, and its pid. None: none does, or it has no time.

    Raises:
        PermissionError: it is of another user. OSError: the system has no descriptor left.
    """
    try:
        directory = syscalls.open_directory(os.fspath(layout.own))
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        with _born():
            sock = _new_socket()
        try:
            sock.setblocking(False)  # a full backlog is no reason to wait here
            sock.connect(f"/proc/self/fd/{directory}/{layout.host_socket.name}")
            return sock, peer_of(sock, os.fstat(directory).st_uid)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            sock.close()
            return None
        except BaseException:
            sock.close()
            raise
    finally:
        syscalls.close(directory)


def receive(sock: socket.socket, limit_s: float) -> bytes | int | None:
    """A byte, or the descriptor that came with it; b"": the connection has ended; None: nothing came in time.
    Raises OSError."""
    looks = select.poll()
    looks.register(sock, select.POLLIN)
    if not looks.poll(limit_s * 1000):
        return None
    with _born():  # no child has a copy of it
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        said, descriptors, _, _ = socket.recv_fds(sock, 1, 1, flags)
        if descriptors:
            adopt(descriptors[0])
            return descriptors[0]
    return said


def give(sock: socket.socket, descriptor: int) -> bool:
    """Sends a copy of a descriptor; whether it went."""
    with contextlib.suppress(OSError):
        return socket.send_fds(sock, [b"!"], [descriptor], socket.MSG_DONTWAIT) == 1
    return False


def peer_of(sock: socket.socket, owner: int) -> int:
    """The pid of the process at the other end, 0 for one of another pid namespace. PermissionError: its
    user is neither this one nor the owner of the store nor root."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(data)
    if user not in (os.geteuid(), owner, 0):
        text = f"the process at the other end ({pid}) is of user {user}, the store of {owner}"
        raise PermissionError(errno.EPERM, text)
    return int(pid)


# ---- processes ----


def process_name(pid: int) -> str:
    """What runs as a process, as `ps` names it; "?" of one that is gone."""
    return _read(pid, "comm").decode(errors="replace").strip() or "?"


def process_state(pid: int | None) -> str:
    """Whether a process is "running", "stopped", or "gone": has ended, or is not seen from here."""
    state = _read(pid or 0, "stat").rpartition(b")")[2].strip()[:1]
    return "gone" if state in b"ZX" else "stopped" if state in b"Tt" else "running"


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(4096)
    return b""


# ---- forks ----

#: Descriptors of this module's callers, with the device and number of what each had open: the child of a
#: fork must not keep them open, as the other side learns of a death by the end of the last copy.
_adopted: dict[int, tuple[int, int]] = {}


def adopt(fd: int) -> None:
    """A descriptor that a forked child does not get. One that was closed since, or is another's by now, is
    let be."""
    _adopted[fd] = _identity(fd)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _new_socket() -> socket.socket:
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(error.errno, explained(error.errno or 0)) from None
    adopt(sock.fileno())
    return sock


#: Held while a descriptor is made and adopted; a fork waits for it.
_born: SignalSafeLock
_forking: list[Any] = []


def _before_fork() -> None:
    passage = _born()
    passage.__enter__()
    _forking.append(passage)


def _after_fork() -> None:
    _forking.pop().__exit__(None, None, None)


def _leave_in_child() -> None:
    """Puts /dev/null in the place of each descriptor: its number stays in use until its object goes."""
    global _born
    _born = SignalSafeLock("the birth of a connection")
    _forking.clear()
    adopted = list(_adopted.items())
    _adopted.clear()
    null = -1
    for fd, identity in adopted:
        with contextlib.suppress(OSError):
            if _identity(fd) == identity:
                os.close(fd)
                null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if null < 0 else null
                if null != fd:
                    os.dup2(null, fd, inheritable=False)


_born = SignalSafeLock("the birth of a connection")
os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_leave_in_child
)
