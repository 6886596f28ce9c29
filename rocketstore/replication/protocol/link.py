"""What both protocols are to the loop that moves their bytes: bytes in, events out, and no socket.

A link is one connection as one of its ends sees it. The loop calls `start` once and sends what that
gives. Then it gives each piece that arrives to `receive`, and sends what `replies` gives before
anything else. It sends and asks for data only once the link is `ready`. What a peer must not say
is a `ReplicationError`: the loop then sends the last `replies`, and disconnects.

A link belongs to one thread and knows no time, no file and no log.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

__all__ = [
    "Acknowledged",
    "Asked",
    "Buffer",
    "CutTo",
    "Data",
    "Ended",
    "Event",
    "Fenced",
    "Heartbeat",
    "Link",
    "MasterLink",
    "Offsets",
    "ReplicaLink",
]

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Asked:
    """The replica wants the log from a physical offset on. The first event of a master's link.
    `begin`: where what it has begins, as far as that is known."""

    offset: int
    begin: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The replica has received everything below one offset, and synced everything below another.
    A protocol with one number says it twice."""

    received: int
    synced: int


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of the master's log. `data` is valid until the next `receive`."""

    offset: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The master is there, and has nothing to send. `offset`: where its next bytes will be."""

    offset: int


@dataclass(frozen=True, slots=True)
class CutTo:
    """The replica's log has bytes from `offset` on that are not of the master's history. Its owner
    cuts them off and makes another connection."""

    offset: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The peer knows a later epoch of this history than this end: another store is the master."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The peer takes part no more, for a reason that may have passed when this end comes again."""

    why: str


@dataclass(frozen=True, slots=True)
class Offsets:
    """Next queue offsets of the master's groups, by "topic@group" and queue id; none of a group that
    is gone; None: they are more than a store may have. They speak of the log below `end`. `whole`: of
    all groups, else of those that changed."""

    end: int
    whole: bool
    groups: dict[str, dict[int, int]] | None


Event: TypeAlias = Asked | Acknowledged | Data | Heartbeat | CutTo | Fenced | Ended | Offsets


class Link(Protocol):
    """One end of a connection."""

    @property
    def ready(self) -> bool:
        """Whether the peer has said, and proved, all that it must before bytes of a log may move."""

    @property
    def codec(self) -> int:
        """How bytes of the log are compressed, once the link is ready: a `Codec`. Not 0: `data`
        takes long, and any thread may call it."""

    def start(self) -> Sequence[Buffer]:
        """What this end says first. Called once."""

    def receive(self, data: memoryview) -> Sequence[Event]:
        """Takes the next bytes of the peer, of any number; gives what they mean.

        Raises:
            ReplicationError: what no peer may say. `replies` may have a last word.
            DivergedError: peer and this end have different bytes.
        """

    def replies(self) -> Sequence[Buffer]:
        """What the bytes that were received call for; each is given once."""


class MasterLink(Link, Protocol):
    """The end that sends a log."""

    @property
    def replica_id(self) -> Hashable:
        """Identifies the replica, once the link is ready; None: the protocol does not say. Of two
        connections of one replica the newer one counts."""

    @property
    def data_most(self) -> int:
        """Most bytes of a log that a call of `data` may be given."""

    def data(self, offset: int, data: memoryview) -> Sequence[Buffer]:
        """A frame of the log's bytes from a physical offset on, all in one segment: in the order in
        which they are sent. `data` may be among them as it is, without a copy."""

    @property
    def compares(self) -> bool:
        """Whether a replica asks for the log only after its last bytes were found the same."""

    @property
    def carries_offsets(self) -> bool:
        """Whether the protocol has offsets of groups."""

    def offsets(self, offsets: Offsets) -> Iterator[Buffer]:
        """Frames of offsets, of some KiB each. Any thread may take them."""

    def heartbeat(self, offset: int) -> Sequence[Buffer]:
        """A frame without bytes. `offset`: where the next bytes will be."""

    def no_place(self, why: str) -> None:
        """The replica is to come again later: `replies` says so, and nothing else. A protocol that
        has no word for it gives no reply."""


class ReplicaLink(Link, Protocol):
    """The end that receives a log."""

    def ask(self, offset: int) -> Sequence[Buffer]:
        """Asks for the log from a physical offset on. Called once, before any `acknowledge`."""

    def acknowledge(self, received: int, synced: int) -> Sequence[Buffer]:
        """Says how far this end has come, which is its heartbeat as well."""
