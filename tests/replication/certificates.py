"""Contexts of TLS for both ends."""

from __future__ import annotations

import ssl
from pathlib import Path

__all__ = ["contexts"]


def contexts(certificate: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server that wants certificates, and of a client that has one."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(certificate))
    for context in (server, client):
        context.load_cert_chain(certificate)
    return server, client
