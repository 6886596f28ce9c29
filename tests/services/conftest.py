"""A clock that tests of services move by hand."""

from __future__ import annotations

import pytest

from rocketstore.testing import ManualClock
from tests.services.delay_tools import NOW_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)
