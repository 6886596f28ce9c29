"""The log that most tests of recovery damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.log.layout.paths import StoreLayout
from tests.support.log_store import LogBuilder


@pytest.fixture
def builder() -> LogBuilder:
    """Sixty records in four segments."""
    return LogBuilder().fill(60)


@pytest.fixture
def layout(builder: LogBuilder, tmp_path: Path) -> StoreLayout:
    """The log of `builder` on disk."""
    return builder.write(tmp_path / "s")
