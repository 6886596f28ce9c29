"""What several tests of replication need once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.replication.certificates import make_certificate


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    return make_certificate(tmp_path_factory.mktemp("tls"))
