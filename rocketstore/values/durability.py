"""Options and arguments: what they may say and what they mean."""

from __future__ import annotations

import ipaddress
import operator
import re
from collections.abc import Sequence
from typing import Final, Literal, SupportsIndex, get_args

from rocketstore.errors import ConfigError

__all__ = [
    "Durability",
    "check_port",
    "durability_of",
    "queue_ids_of",
    "split_host",
]

#: What is true when a put returns. Each promise survives more than the one before it.
#: "memory": copied to the write buffer; survives nothing before it is committed (RocketMQ:
#: ASYNC_FLUSH with transientStorePoolEnable). "os": handed to the kernel; survives the death of the
#: process (ASYNC_FLUSH). "disk": covered by a sync; survives the loss of power (SYNC_FLUSH).
#: "replicas(n)": on the disks of n machines, this one included; survives the loss of n - 1 of them
#: (SYNC_MASTER). "replicas" alone means two.
Durability = Literal[
    "memory",
    "os",
    "disk",
    "replicas",
    "replicas(2)",
    "replicas(3)",
    "replicas(4)",
    "replicas(5)",
    "replicas(6)",
    "replicas(7)",
    "replicas(8)",
    "replicas(9)",
]


DURABILITIES: Final[tuple[Durability, ...]] = get_args(Durability)


def durability_of(value: object) -> Durability:
    """Checks that `value` names a promise, and gives it as a plain text.

    Raises:
        ConfigError: it names none.
    """
    for known in DURABILITIES:
        if isinstance(value, str) and value == known:
            found: Durability = "replicas(2)" if known == "replicas" else known
            return found
    raise ConfigError(
        "durability", value, 'must be "memory", "os", "disk" or "replicas(n)", n 2 … 9'
    )


def split_host(host: str) -> tuple[bytes, int]:
    """ "ip:port" or "[ipv6]:port" as address bytes and port."""
    address, separator, port = host.rpartition(":")
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
        family: type[ipaddress.IPv4Address | ipaddress.IPv6Address] = ipaddress.IPv6Address
    else:
        family = ipaddress.IPv4Address
    try:
        packed = family(address).packed
    except ValueError:
        packed = b""
    number = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else -1
    if not separator or not packed or not 0 <= number <= 65535:
        raise ConfigError(
            "store_host", host, 'must be "1.2.3.4:port" or "[ipv6]:port", port 0 … 65535'
        )
    return packed, number


def check_port(name: str, host: str) -> None:
    """Raises ValueError for a port that Java's InetSocketAddress does not take."""
    port = host.rpartition(":")[2]
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{name} = {host!r}: a port is a number, 0 … 65535")


def queue_ids_of(queue_id: int | None, queues: int | None) -> Sequence[int]:
    """The queues that a writer's arguments name; 0 without any. Raises ConfigError."""
    if queue_id is not None and queues is not None:
        raise ConfigError("queues", queues, "not together with queue_id")
    if queues is not None:
        return range(_number("queues", queues, 1, 65536))
    return (_number("queue_id", 0 if queue_id is None else queue_id, 0, 2**31 - 1),)


def _number(name: str, value: object, low: int, high: int) -> int:
    """A whole number in [low, high]; a bool is none, whatever Python says."""
    if type(value) is int and low <= value <= high:
        return value  # the look at a protocol takes its time
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
        if low <= number <= high:
            return number
    raise ConfigError(name, value, f"must be a whole number, {low} … {high}")
