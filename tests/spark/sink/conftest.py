"""A store that the sink writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.staged import make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """It has one message."""
    path = tmp_path / "s"
    make(path)
    return path
