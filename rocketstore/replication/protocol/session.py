"""Both ends of a connection in rocketstore's protocol: which peer may speak, of what log, from where.

    replica                          master
    HELLO  random number        →
                                ←    CHALLENGE  random number
    PROOF  (with a key)         →
                                ←    PROOF
    ASK    identity, tail       →
                                ←    ACCEPT  identity, start or cut
    ACK    received, synced     →
                                ←    DATA, OFFSETS, HEARTBEAT

After an ASK that only asks nothing comes but the answer. Either end ends the connection by an ERROR
frame that says why. No end believes what it can check.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from rocketstore.replication.protocol.compression import Codec, is_here, packed, unpacked
from rocketstore.replication.protocol.epochs import (
    Epoch,
    believable,
    common_end,
    promoted_twice,
    term_of,
)
from rocketstore.replication.protocol.frames import (
    DATA,
    DATA_MOST,
    Accept,
    Ask,
    Code,
    Frame,
    Kind,
    data_frame,
    frame,
)
from rocketstore.replication.protocol.handshake import (
    ERROR,
    MASTER,
    REPLICA,
    SAME_KEY,
    Greeting,
    Session,
)
from rocketstore.replication.protocol.link import (
    Acknowledged,
    Asked,
    Buffer,
    CutTo,
    Data,
    Event,
    Fenced,
    Heartbeat,
    Offsets,
)
from rocketstore.replication.protocol.offsets import OffsetsReader, offset_frames

__all__ = [
    "Bounds",
    "CopyStore",
    "Identity",
    "LogTail",
    "MasterSession",
    "MasterStore",
    "ReplicaSession",
]

#: Received, synced.
ACK: Final = struct.Struct(">QQ")
#: Where the next bytes will be, end of the master's log.
HEARTBEAT: Final = struct.Struct(">QQ")
#: Acknowledgements that come after this end has said its last word, at most, count: they were on
#: their way.
LATE_MOST: Final = 64
OTHER_STORE: Final = (
    "replica and master are copies of different stores: give the copy an empty directory of its own"
)


class Identity(NamedTuple):
    """Of which history a store is."""

    store_id: bytes
    epochs: tuple[Epoch, ...]


class Bounds(NamedTuple):
    """Of a master's log: physical offsets of its begin, of its last file, of what it may send; the
    size of its files."""

    begin: int
    last_file: int
    end: int
    segment_bytes: int


class LogTail(NamedTuple):
    """Of a replica's log: its begin and end, the SHA-256 of its last bytes, from `tail` on, and the
    size of its files."""

    begin: int
    end: int
    tail: int
    digest: bytes
    segment_bytes: int


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

    def log_tail(self) -> LogTail: ...

    def keep(self, identity: Identity) -> None:
        """Makes the identity of the master that of the store, durably, before data of it comes."""


class MasterSession(Session):
    """The end that sends. A `MasterLink`."""

    data_most = DATA_MOST
    compares = True
    carries_offsets = True

    def __init__(
        self, store: MasterStore, key: bytes | None = None, *, compression: bool = True
    ) -> None:
        """`compression`: whether a replica that asks for it gets the log compressed."""
        super().__init__(key)
        self._compression = compression
        self._store = store
        self._identity = store.identity
        self._term = term_of(self._identity.epochs)
        self._sent = 0
        self._only_asked = False
        self._acknowledged = (0, 0)
        self._late = 0
        #: Which copy the replica is: of two connections of one copy the newer one counts.
        self.replica_id: bytes | None = None

    def start(self) -> Sequence[Buffer]:
        return ()

    def data(self, offset: int, data: memoryview) -> Sequence[Buffer]:
        self._sent = offset + len(data)
        end = max(self._store.bounds().end, self._sent)
        small = packed(self.codec, data)
        if small is None:
            return data_frame(self._term, offset, end, data)
        return data_frame(self._term, offset, end, small, size=len(data), codec=self.codec)

    def offsets(self, offsets: Offsets) -> Iterator[Buffer]:
        return offset_frames(offsets)

    def heartbeat(self, offset: int) -> Sequence[Buffer]:
        end = max(self._store.bounds().end, offset)
        return (frame(Kind.HEARTBEAT, HEARTBEAT.pack(offset, end)),)

    def no_place(self, why: str) -> None:
        self._replies.clear()
        self._state = "over"
        self._reply(Kind.ERROR, ERROR.pack(Code.NO_PLACE, 0) + why.encode())

    def _understand(self, one: Frame) -> Iterable[Event]:
        if one.kind is Kind.HELLO and self._state == "hello":
            self._greet(one)
        elif one.kind is Kind.PROOF and self._state == "proof":
            self._check_proof(one.body, REPLICA)
            self._prove(MASTER)
            self._state = "ask"
            self._believe()
        elif one.kind is Kind.ASK and self._state == "ask":
            return self._answer(Ask.unpack(one.body))
        elif one.kind is Kind.ACK and self._state == "data":
            return (self._acknowledge(*ACK.unpack(one.body)),)
        elif one.kind is Kind.ACK and self._state == "over" and self._late < LATE_MOST:
            self._late += 1
        else:
            self._unexpected(one)
        return ()

    def _greet(self, one: Frame) -> None:
        with_key, wanted = Greeting.unpack(one.body)
        known = self._compression and wanted in set(Codec) and is_here(Codec(wanted))
        self.codec = Codec(wanted) if known else Codec.NONE
        self._hello = bytes(one.body)
        if with_key != (self._key is not None):
            lacks = "replica has" if self._key is not None else "master has"
            text = f"the {lacks} no key, its peer wants a proof of one; {SAME_KEY}"
            self._refuse(Code.AUTHENTICATION, text)
        self._challenge = Greeting.pack(with_key=with_key, codec=self.codec)
        self._reply(Kind.CHALLENGE, self._challenge)
        self._state = "ask" if self._key is None else "proof"
        if self._key is None:
            self._believe()

    def _answer(self, ask: Ask) -> Iterable[Event]:
        """Where the replica goes on, or why it must not."""
        store_id, epochs = self._identity
        begin, last_file, end, segment_bytes = self._store.bounds()
        self.replica_id, self._only_asked = ask.replica_id, ask.only_asks
        if any(ask.store_id) and ask.store_id != store_id:
            self._refuse(Code.OTHER_STORE, OTHER_STORE)
        term = term_of(ask.epochs)
        if not believable(term, self._term):
            text = (
                f"a replica of term {term}, where this master knows of {self._term}: no such term"
            )
            self._refuse(Code.PROTOCOL, text)
        if term > self._term:
            self._state = "over"
            text = f"another store was promoted in term {term}: this one is not the master"
            self._reply(Kind.ERROR, ERROR.pack(Code.FENCED, term) + text.encode())
            return (Fenced(term),)
        if ask.segment_bytes != segment_bytes:
            self._refuse_segments(ask.segment_bytes, segment_bytes)
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
        segment_bytes = self._store.bounds().segment_bytes
        accept = Accept(store_id, start, cut, max(start, end), segment_bytes, epochs)
        self._reply(Kind.ACCEPT, accept.pack())
        self._sent = start
        if cut or self._only_asked:
            self._state = "over"
            return ()
        self._state = "data"
        return (Asked(start, begin),)

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
        only_asks: bool = False,
        codec: Codec = Codec.NONE,
    ) -> None:
        """`last_file`: an empty log begins where the last file of the master's does. `only_asks`:
        the master is to answer, and to send no data. `codec`: how it is to compress what it sends,
        if it can."""
        super().__init__(key)
        self._store = store
        self._last_file = last_file
        self._only_asks = only_asks
        self.codec = codec
        self._ask: Ask | None = None
        self._term = 0
        self._next = -1
        self._offsets = OffsetsReader()
        #: Where the master's log ended when it last said so.
        self.master_end = 0

    def start(self) -> Sequence[Buffer]:
        self._hello = Greeting.pack(with_key=self._key is not None, codec=self.codec)
        return (frame(Kind.HELLO, self._hello),)

    def ask(self, offset: int) -> Sequence[Buffer]:
        """Describes this log; it goes on at its end, whatever `offset` is."""
        store_id, epochs = self._store.identity
        begin, end, tail, digest, segment_bytes = self._store.log_tail()
        self._ask = Ask(
            self._store.replica_id,
            store_id or bytes(16),
            *(begin, end, tail, digest),
            self._last_file,
            segment_bytes,
            epochs,
            self._only_asks,
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
        if one.kind is Kind.OFFSETS and self._state == "data":
            offsets = self._offsets.take(one.body, self._next)
            return () if offsets is None else (offsets,)
        if one.kind is Kind.CHALLENGE and self._state == "hello":
            self._meet(one)
        elif one.kind is Kind.PROOF and self._state == "proof":
            self._check_proof(one.body, MASTER)
            self._state = "ready"
            self._believe()
        elif one.kind is Kind.ACCEPT and self._state == "ask":
            return self._accepted(Accept.unpack(one.body))
        else:
            self._unexpected(one)
        return ()

    def _meet(self, one: Frame) -> None:
        with_key, given = Greeting.unpack(one.body)
        if with_key != (self._key is not None) or given not in (self.codec, Codec.NONE):
            self._refuse(Code.AUTHENTICATION, "the master does not want what it was asked for")
        self.codec = Codec(given)
        self._challenge = bytes(one.body)
        if self._key is None:
            self._state = "ready"
            self._believe()
        else:
            self._prove(REPLICA)
            self._state = "proof"

    def _accepted(self, accept: Accept) -> Iterable[Event]:
        asked, term = self._ask, term_of(accept.epochs)
        assert asked is not None
        if any(asked.store_id) and asked.store_id != accept.store_id:
            self._refuse(Code.OTHER_STORE, OTHER_STORE)
        if term < term_of(asked.epochs):
            text = f"a master of term {term}, where term {term_of(asked.epochs)} has begun"
            self._refuse(Code.FENCED, text, term_of(asked.epochs))
        if not believable(term, term_of(asked.epochs)):
            text = f"a master of term {term}, where this copy knows of {term_of(asked.epochs)}"
            self._refuse(Code.PROTOCOL, f"{text}: make a new copy if it is the right one")
        if asked.segment_bytes != accept.segment_bytes:
            self._refuse_segments(asked.segment_bytes, accept.segment_bytes)
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
        self._state = "over" if self._only_asks else "data"
        self._term, self._next = term, accept.start
        return (Heartbeat(accept.start),)

    def _data(self, one: Frame) -> Data:
        term, offset, end, size = DATA.unpack_from(one.body)
        data = one.body[DATA.size :]
        if term != self._term or offset != self._next or not 0 < size <= DATA_MOST:
            raise ValueError(f"{size} bytes of term {term} at {offset}, not at {self._next}")
        if one.flags not in (self.codec, Codec.NONE):
            raise ValueError(f"compressed by {Codec(one.flags).name}, which was not agreed")
        if one.flags:
            data = unpacked(self.codec, data, size)
        if len(data) != size or end < offset + size:
            raise ValueError(f"{len(data)} bytes, not {size}, of a log that ends at {end}")
        self._next, self.master_end = offset + size, end
        return Data(offset, data)

    def _heartbeat(self, offset: int, end: int) -> Heartbeat:
        if offset != self._next or end < offset:
            raise ValueError(f"the next bytes at {offset}, not at {self._next}")
        self.master_end = end
        return Heartbeat(offset)
