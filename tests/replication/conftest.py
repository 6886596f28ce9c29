"""What several tests of replication need once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    made = tmp_path_factory.mktemp("tls") / "both.pem"
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
