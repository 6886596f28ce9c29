"""How two ends prove that they know one key, without a word of it on the wire.

Each end gives a random number. A proof is a HMAC-SHA256 by the key over the role of the end that
proves and both first frames. The replica proves first. Until its peer has proved, an end says
nothing of its store. A proof does not protect the frames behind it: for that there is TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

__all__ = ["NONCE_BYTES", "PROOF_BYTES", "is_proof", "new_nonce", "proof"]

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
PURPOSE: Final = b"rocketstore replication 1\0"


def new_nonce() -> bytes:
    """A random number that no other connection has."""
    return secrets.token_bytes(NONCE_BYTES)


def proof(key: bytes, role: bytes, hello: bytes, challenge: bytes) -> bytes:
    """What the end `role` proves its key with; `hello` and `challenge` are bodies of fixed length."""
    return hmac.digest(key, PURPOSE + role + b"\0" + hello + challenge, hashlib.sha256)


def is_proof(given: bytes, key: bytes, role: bytes, hello: bytes, challenge: bytes) -> bool:
    """Compares in a time that does not tell where they differ."""
    return hmac.compare_digest(given, proof(key, role, hello, challenge))
