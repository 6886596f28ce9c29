"""What both ends of rocketstore's protocol have in common: their greeting, and how one ends.

Each end gives a random number. Where there is a key, each proves that it knows it, the replica
first: a proof is a HMAC-SHA256 by the key over the role of the end and both greetings. Until its
peer has proved, an end says nothing of its store. A proof does not protect the frames after it:
for that there is TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from rocketstore.errors import DivergedError, ReplicationError
from rocketstore.replication.protocol.compression import Codec
from rocketstore.replication.protocol.frames import Code, Frame, FrameReader, Kind, frame
from rocketstore.replication.protocol.link import Buffer, Ended, Event

__all__ = ["ERROR", "MASTER", "REPLICA", "SAME_KEY", "FinalError", "Greeting", "Session"]

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
PURPOSE: Final = b"rocketstore replication 1\0"
MASTER: Final = b"master"
REPLICA: Final = b"replica"
#: Whether the end has a key, how the log is to be compressed (`Codec`), a random number.
HELLO: Final = struct.Struct(f">?B{NONCE_BYTES}s")
#: Code, and an offset or a term.
ERROR: Final = struct.Struct(">HQ")
TEXT_BYTES_MOST: Final = 1000
#: The remedy for keys that do not fit; it names none.
SAME_KEY: Final = "give both the same key= (--key-file)"
#: Body of a frame of a peer that has proved nothing yet, bytes.
UNPROVED_BODY_MOST: Final = ERROR.size + TEXT_BYTES_MOST

#: What another attempt does not change.
FINAL: Final = {
    Code.OTHER_STORE,
    Code.NO_COMMON_HISTORY,
    Code.REMOVED,
    Code.PROMOTED_TWICE,
    Code.SEGMENT_BYTES,
}


class FinalError(ReplicationError):
    """Another attempt ends in the same way, until somebody changes one of the stores."""


class Greeting:
    """Of HELLO and CHALLENGE."""

    @staticmethod
    def pack(*, with_key: bool, codec: int) -> bytes:
        """With a random number that no other connection has."""
        return HELLO.pack(with_key, codec, secrets.token_bytes(NONCE_BYTES))

    @staticmethod
    def unpack(body: memoryview) -> tuple[bool, int]:
        """Whether there is a key, and how to compress. struct.error for what is no greeting."""
        with_key, codec, _ = HELLO.unpack(body)
        return with_key, codec


class Session:
    """What both ends have in common."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self._reader = FrameReader(UNPROVED_BODY_MOST)
        self._replies: list[Buffer] = []
        self._hello = self._challenge = b""
        self._state = "hello"
        #: How the log is compressed on its way; of a replica before the answer: what it wants.
        self.codec = Codec.NONE
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether the peer has proved what it must."""
        return self._ready

    def _believe(self) -> None:
        """The peer has proved what it must: its frames may be long from here on."""
        self._ready = True
        self._reader.body_most = None

    def receive(self, data: memoryview) -> Sequence[Event]:
        """As `Link.receive`; besides ConnectionError, where bytes were changed on the way."""
        events: list[Event] = []
        for one in self._reader.take(data):
            if one.kind is Kind.ERROR:
                events.append(_last_word(one.body, believed=self.ready or self._key is None))
                break
            try:
                events += self._understand(one)
            except (ValueError, struct.error) as error:
                self._refuse(Code.PROTOCOL, f"a {one.kind.name} frame means nothing: {error}")
        return events

    def replies(self) -> Sequence[Buffer]:
        given, self._replies = self._replies, []
        return given

    def _understand(self, one: Frame) -> Iterable[Event]:
        raise NotImplementedError

    def _reply(self, kind: Kind, body: bytes) -> None:
        self._replies.append(frame(kind, body))

    def _refuse(self, code: Code, text: str, number: int = 0) -> NoReturn:
        """The last word to the peer, and the error of this end."""
        self._state = "over"
        body = ERROR.pack(code, number) + text.encode()[:TEXT_BYTES_MOST]
        self._reply(Kind.ERROR, body)
        raise _error(code, text, number)

    def _refuse_segments(self, replica: int, master: int) -> NoReturn:
        text = (
            f"the master has files of {master} bytes, the replica of {replica}: make the copy with "
            f"commit_log_file_size_bytes={master}"
        )
        self._refuse(Code.SEGMENT_BYTES, text, master)

    def _unexpected(self, one: Frame) -> NoReturn:
        self._refuse(Code.PROTOCOL, f"a {one.kind.name} frame out of its turn ({self._state})")

    def _check_proof(self, body: memoryview, role: bytes) -> None:
        given = bytes(body)
        if self._key is None or len(given) != PROOF_BYTES:
            self._refuse(Code.AUTHENTICATION, f"the {role.decode()} has proved no key; {SAME_KEY}")
        if not hmac.compare_digest(given, self._proof(self._key, role)):
            text = f"the key of the {role.decode()} is another one; {SAME_KEY}"
            self._refuse(Code.AUTHENTICATION, text)

    def _prove(self, role: bytes) -> None:
        assert self._key is not None
        self._reply(Kind.PROOF, self._proof(self._key, role))

    def _proof(self, key: bytes, role: bytes) -> bytes:
        said = self._hello + self._challenge
        return hmac.digest(key, PURPOSE + role + b"\0" + said, hashlib.sha256)


def _last_word(body: memoryview, *, believed: bool) -> Ended:
    """What an ERROR frame of the peer means. `believed`: it may end more than this connection.

    Raises:
        ReplicationError: any reason but that the peer has no place now, or is about to end.
    """
    if len(body) < ERROR.size or len(body) > ERROR.size + TEXT_BYTES_MOST:
        raise ReplicationError(f"the peer gives up, in {len(body)} bytes")
    number, offset = ERROR.unpack_from(body)
    text = bytes(body[ERROR.size :]).decode("utf-8", "replace")
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    try:
        code = Code(number)
    except ValueError:
        code = Code.PROTOCOL
    if not believed:
        raise ReplicationError(f"the peer, which has not proved the key, says: {shown}")
    if code is Code.NO_PLACE:
        return Ended(f"the peer says: {shown}")
    raise _error(code, f"the peer says: {shown}", offset)


def _error(code: Code, text: str, number: int) -> ReplicationError:
    if code is Code.DIVERGED:
        return DivergedError(text, number)
    return FinalError(text) if code in FINAL else ReplicationError(text)
