"""A certificate, and contexts of TLS for both ends."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

__all__ = ["contexts", "make_certificate"]


def make_certificate(directory: Path) -> Path:
    """A key and a certificate of 127.0.0.1, signed by itself. FileNotFoundError where there is no
    openssl."""
    made = directory / "both.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
        "-addext",
    ]
    out = ["-keyout", str(made), "-out", str(made.with_suffix(".crt"))]
    subprocess.run(
        ["openssl", *words, "subjectAltName=IP:127.0.0.1", *out], check=True, capture_output=True
    )
    made.write_text(made.read_text() + made.with_suffix(".crt").read_text())
    return made


def contexts(certificate: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server that wants certificates, and of a client that has one."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(certificate))
    for context in (server, client):
        context.load_cert_chain(certificate)
    return server, client
