"""Both ends of a connection in rocketstore's protocol: who may speak, of which log, from where on.

    replica                          master
    HELLO  random number        →
                                ←    CHALLENGE  random number
    PROOF  (with a key)         →
                                ←    PROOF
    ASK    identity, tail       →
                                ←    ACCEPT  identity, start or cut
    ACK    received, synced     →
                                ←    DATA, HEARTBEAT

Either end ends the connection by an ERROR frame that says why. No end believes what it can check.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from rocketstore.replication.protocol.epochs import Epoch, common_end, promoted_twice, term_of
from rocketstore.replication.protocol.frames import (
    DATA,
    DATA_MOST,
    ZLIB,
    Accept,
    Ask,
    Code,
    Frame,
    Kind,
    data_frame,
    frame,
)
from rocketstore.replication.protocol.handshake import ERROR, MASTER, REPLICA, Greeting, Session
from rocketstore.replication.protocol.link import (
    Acknowledged,
    Asked,
    Buffer,
    CutTo,
    Data,
    Event,
    Fenced,
    Heartbeat,
)

__all__ = [
    "Bounds",
    "CopyStore",
    "Identity",
    "MasterSession",
    "MasterStore",
    "ReplicaSession",
    "Standing",
]

#: Received, synced.
ACK: Final = struct.Struct(">QQ")
#: Where the next bytes will be, end of the master's log.
HEARTBEAT: Final = struct.Struct(">QQ")
#: Fast: a link that is worth it is slower than this in any case.
ZLIB_LEVEL: Final = 1


class Identity(NamedTuple):
    """Of which history a store is."""

    store_id: bytes
    epochs: tuple[Epoch, ...]


class Bounds(NamedTuple):
    """Of a master's log: physical offsets of its begin, of its last file, of what it may send."""

    begin: int
    last_file: int
    end: int


class Standing(NamedTuple):
    """Of a replica's log: its begin and end, and the SHA-256 of its last bytes, from `tail` on."""

    begin: int
    end: int
    tail: int
    digest: bytes


class MasterStore(Protocol):
    """What a master's end asks its store."""

    @property
    def identity(self) -> Identity: ...

    def bounds(self) -> Bounds: ...

    def digest(self, start: int, end: int) -> bytes | None:
        """SHA-256 of bytes of the log; None where it has not all of them any more."""


class CopyStore(Protocol):
    """What a replica's end asks its store."""

    @property
    def replica_id(self) -> bytes:
        """16 bytes that no other copy has."""

    @property
    def identity(self) -> Identity: ...

    def standing(self) -> Standing: ...

    def keep(self, identity: Identity) -> None:
        """Makes the identity of the master that of the store, durably, before data of it comes."""


class MasterSession(Session):
    """The end that sends. A `MasterLink`."""

    data_most = DATA_MOST

    def __init__(self, store: MasterStore, key: bytes | None = None) -> None:
        super().__init__(key)
        self._store = store
        self._identity = store.identity
        self._term = term_of(self._identity.epochs)
        self._sent = 0
        self._acknowledged = (0, 0)
        #: Which copy the replica is: of two connections of one copy the newer one counts.
        self.replica_id: bytes | None = None

    def start(self) -> Sequence[Buffer]:
        return ()

    def data(self, offset: int, data: memoryview) -> Sequence[Buffer]:
        self._sent = offset + len(data)
        end = max(self._store.bounds().end, self._sent)
        if not self._compressed:
            return data_frame(self._term, offset, end, data)
        packed = zlib.compress(data, ZLIB_LEVEL)
        if len(packed) >= len(data):
            return data_frame(self._term, offset, end, data)
        return data_frame(self._term, offset, end, packed, size=len(data))

    def heartbeat(self, offset: int) -> Sequence[Buffer]:
        end = max(self._store.bounds().end, offset)
        return (frame(Kind.HEARTBEAT, HEARTBEAT.pack(offset, end)),)

    def _understand(self, one: Frame) -> Iterable[Event]:
        if one.kind is Kind.HELLO and self._state == "hello":
            self._greet(one)
        elif one.kind is Kind.PROOF and self._state == "proof":
            self._check_proof(one.body, REPLICA)
            self._prove(MASTER)
            self._state, self.ready = "ask", True
        elif one.kind is Kind.ASK and self._state == "ask":
            return self._answer(Ask.unpack(one.body))
        elif one.kind is Kind.ACK and self._state == "data":
            return (self._acknowledge(*ACK.unpack(one.body)),)
        elif self._state != "over":
            self._unexpected(one)
        return ()

    def _greet(self, one: Frame) -> None:
        with_key, self._compressed = Greeting.unpack(one.body)
        self._hello = bytes(one.body)
        if with_key != (self._key is not None):
            lacks = "replica has" if self._key is not None else "master has"
            self._refuse(Code.AUTHENTICATION, f"the {lacks} no key, its peer wants a proof of one")
        self._challenge = Greeting.pack(with_key=with_key, compressed=self._compressed)
        self._reply(Kind.CHALLENGE, self._challenge)
        self._state = "ask" if self._key is None else "proof"
        self.ready = self._key is None

    def _answer(self, ask: Ask) -> Iterable[Event]:
        """Where the replica goes on, or why it must not."""
        store_id, epochs = self._identity
        begin, last_file, end = self._store.bounds()
        self.replica_id = ask.replica_id
        if any(ask.store_id) and ask.store_id != store_id:
            self._refuse(Code.OTHER_STORE, "replica and master are copies of different stores")
        if term_of(ask.epochs) > self._term:
            self._state = "over"
            term = term_of(ask.epochs)
            text = f"another store was promoted in term {term}: this one is not the master"
            self._reply(Kind.ERROR, ERROR.pack(Code.FENCED, term) + text.encode())
            return (Fenced(term),)
        if ask.begin == ask.end:
            start = last_file if ask.last_file else begin
            return self._accept(start, start, end, cut=False)
        common = common_end(epochs, end, ask.epochs, ask.end)
        if common is None or common < ask.begin:
            text = "replica and master have no part of their logs in common: make a new copy"
            self._refuse(Code.NO_COMMON_HISTORY, text)
        if promoted_twice(epochs, ask.epochs):
            text = f"two stores were promoted to term {self._term}: promote the right one again"
            self._refuse(Code.PROMOTED_TWICE, text)
        if common < ask.end:
            return self._accept(common, ask.begin, end, cut=True)
        if ask.end < begin:
            text = f"the replica ends at {ask.end}, the master has removed all below {begin}"
            self._refuse(Code.REMOVED, f"{text}: make a new copy", begin)
        digest = self._store.digest(ask.tail, ask.end)
        if digest is not None and digest != ask.digest:
            text = f"replica and master have different bytes in [{ask.tail}, {ask.end})"
            self._refuse(Code.DIVERGED, text, ask.tail)
        return self._accept(ask.end, ask.begin, end, cut=False)

    def _accept(self, start: int, begin: int, end: int, *, cut: bool) -> Iterable[Event]:
        store_id, epochs = self._identity
        self._reply(Kind.ACCEPT, Accept(store_id, start, cut, max(start, end), epochs).pack())
        self._state = "over" if cut else "data"
        self._sent = start
        return () if cut else (Asked(start, begin),)

    def _acknowledge(self, received: int, synced: int) -> Acknowledged:
        """A replica has no more than it was sent, and does not forget."""
        before = self._acknowledged
        if not (synced <= received <= self._sent and before[0] <= received and before[1] <= synced):
            raise ValueError(f"{received} received and {synced} synced of {self._sent}")
        self._acknowledged = (received, synced)
        return Acknowledged(received, synced)


class ReplicaSession(Session):
    """The end that receives. A `ReplicaLink`."""

    def __init__(
        self,
        store: CopyStore,
        key: bytes | None = None,
        *,
        last_file: bool = False,
        compress: bool = False,
    ) -> None:
        """`last_file`: an empty log begins where the last file of the master's does. `compress`:
        the master is to compress what it sends."""
        super().__init__(key)
        self._store = store
        self._last_file = last_file
        self._compressed = compress
        self._ask: Ask | None = None
        self._term = 0
        self._next = -1
        #: Where the master's log ended when it last said so.
        self.master_end = 0

    def start(self) -> Sequence[Buffer]:
        self._hello = Greeting.pack(with_key=self._key is not None, compressed=self._compressed)
        return (frame(Kind.HELLO, self._hello),)

    def ask(self, offset: int) -> Sequence[Buffer]:
        """Says where this log stands; it goes on at its end, whatever `offset` is."""
        store_id, epochs = self._store.identity
        begin, end, tail, digest = self._store.standing()
        self._ask = Ask(
            self._store.replica_id,
            store_id or bytes(16),
            *(begin, end, tail, digest),
            self._last_file,
            epochs,
        )
        self._state = "ask"
        return (frame(Kind.ASK, self._ask.pack()),)

    def acknowledge(self, received: int, synced: int) -> Sequence[Buffer]:
        return (frame(Kind.ACK, ACK.pack(received, synced)),)

    def _understand(self, one: Frame) -> Iterable[Event]:
        if one.kind is Kind.DATA and self._state == "data":
            return (self._data(one),)
        if one.kind is Kind.HEARTBEAT and self._state == "data":
            return (self._heartbeat(*HEARTBEAT.unpack(one.body)),)
        if one.kind is Kind.CHALLENGE and self._state == "hello":
            self._meet(one)
        elif one.kind is Kind.PROOF and self._state == "proof":
            self._check_proof(one.body, MASTER)
            self._state, self.ready = "ready", True
        elif one.kind is Kind.ACCEPT and self._state == "ask":
            return self._accepted(Accept.unpack(one.body))
        elif self._state != "over":
            self._unexpected(one)
        return ()

    def _meet(self, one: Frame) -> None:
        if Greeting.unpack(one.body) != (self._key is not None, self._compressed):
            self._refuse(Code.AUTHENTICATION, "the master does not want what it was asked for")
        self._challenge = bytes(one.body)
        if self._key is None:
            self._state, self.ready = "ready", True
        else:
            self._prove(REPLICA)
            self._state = "proof"

    def _accepted(self, accept: Accept) -> Iterable[Event]:
        asked, term = self._ask, term_of(accept.epochs)
        assert asked is not None
        if any(asked.store_id) and asked.store_id != accept.store_id:
            self._refuse(Code.OTHER_STORE, "replica and master are copies of different stores")
        if term < term_of(asked.epochs):
            text = f"a master of term {term}, where term {term_of(asked.epochs)} has begun"
            self._refuse(Code.FENCED, text, term_of(asked.epochs))
        empty = asked.begin == asked.end
        if not empty:
            common = common_end(asked.epochs, asked.end, accept.epochs, accept.end)
            if common != accept.start or accept.cut != (common < asked.end):
                raise ValueError(f"to go on at {accept.start}, while {common} is common")
        elif accept.cut:
            raise ValueError("to cut an empty log")
        self.master_end = accept.end
        if accept.cut:
            self._state = "over"
            return (CutTo(accept.start),)
        self._store.keep(Identity(accept.store_id, accept.epochs))
        self._state, self._term, self._next = "data", term, accept.start
        return (Heartbeat(accept.start),)

    def _data(self, one: Frame) -> Data:
        term, offset, end, size = DATA.unpack_from(one.body)
        data = one.body[DATA.size :]
        if term != self._term or offset != self._next or not 0 < size <= DATA_MOST:
            raise ValueError(f"{size} bytes of term {term} at {offset}, not at {self._next}")
        if one.flags & ZLIB:
            data = _unpacked(data, size)
        if len(data) != size or end < offset + size:
            raise ValueError(f"{len(data)} bytes, not {size}, of a log that ends at {end}")
        self._next, self.master_end = offset + size, end
        return Data(offset, data)

    def _heartbeat(self, offset: int, end: int) -> Heartbeat:
        if offset != self._next or end < offset:
            raise ValueError(f"the next bytes at {offset}, not at {self._next}")
        self.master_end = end
        return Heartbeat(offset)


def _unpacked(data: memoryview, size: int) -> memoryview:
    """ValueError for what is not the compressed form of so many bytes. No more are ever made."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"compressed bytes of more, or of other, than {size}")
    return memoryview(plain)
