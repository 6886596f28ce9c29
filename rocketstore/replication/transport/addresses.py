"""Addresses of masters and brokers: their text, and what the system finds for it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from rocketstore.errors import ConfigError
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.threads import start_thread

__all__ = ["lookup", "split_address"]

#: One address, as `getaddrinfo` gives it: family, kind, protocol, name, address.
_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
#: What the system is asked: host, port, flags.
_Query = tuple[str, int, int]

#: What the system is being asked for: an attempt that comes meanwhile waits for the same answer.
_lookups: dict[_Query, Future[Sequence[_Address]]] = {}
# Their threads are not in a child.
os.register_at_fork(after_in_child=_lookups.clear)


def split_address(field: str, address: str) -> tuple[str, int]:
    """ "host:port" or "[ipv6]:port" in its two parts.

    Raises:
        ConfigError: it is no such text.
    """
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(field, address, 'must be "host:port" or "[ipv6]:port", port 0 … 65535')
    try:
        host.encode("idna")
    except UnicodeError:
        raise ConfigError(field, address, "must name a host that there can be") from None
    return host, int(port)


def lookup(host: str, port: int, flags: int = 0) -> Future[Sequence[_Address]]:
    """The addresses of a host, to come, or an OSError, also where the system has no thread left.

    The thread is a daemon: where the system has no answer for long, neither the end of the loop nor
    that of the process waits for it, as they do for a thread of the loop's executor.
    """
    answer: Future[Sequence[_Address]] = Future()
    answer.set_running_or_notify_cancel()  # others may wait for it, so none of them cancels it
    query = host, port, flags
    held = _lookups.setdefault(query, answer)
    if held is answer:
        name = "rocketstore-lookup"
        thread = threading.Thread(target=_resolve, args=(query, answer), name=name, daemon=True)
        try:
            start_thread(thread)
        except BaseException as error:
            _lookups.pop(query, None)
            if not isinstance(error, OSError):
                raise
            answer.set_exception(without_frames(error))  # another one may wait by now
    return held


def _resolve(query: _Query, answer: Future[Sequence[_Address]]) -> None:
    host, port, flags = query
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except Exception as error:
        _lookups.pop(query, None)
        answer.set_exception(without_frames(error))
    else:
        _lookups.pop(query, None)
        answer.set_result(found)
