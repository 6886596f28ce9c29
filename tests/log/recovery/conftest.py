"""The log that most tests of recovery damage."""

from __future__ import annotations

import pytest

from tests.support.log_store import LogBuilder


@pytest.fixture
def builder() -> LogBuilder:
    """Sixty records in four segments."""
    return LogBuilder().fill(60)
