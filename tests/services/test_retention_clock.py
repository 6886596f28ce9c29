"""A clock that is stepped makes nothing go early."""

from __future__ import annotations

import pytest

from rocketstore.services.retention import keeper
from rocketstore.services.retention.keeper import BELIEVED_AFTER_MS, AgeClock
from rocketstore.testing import ManualClock
from rocketstore.values.clock import SystemClock

pytestmark = pytest.mark.quick

HOUR = 3_600_000
YEAR = 365 * 24 * HOUR


class Times(SystemClock):
    """A wall clock that is set, and a steady clock that goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 50 * YEAR, 7 * HOUR
        super().__init__(lambda: self.wall)
        monkeypatch.setattr(keeper, "steady_ms", lambda: self.steady)

    def pass_ms(self, span: int) -> None:
        self.wall += span
        self.steady += span


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch)


def test_it_goes_on_with_the_wall_clock(times: Times) -> None:
    ages = AgeClock(times, times.wall - HOUR, 2 * HOUR)
    for _ in range(100):
        times.pass_ms(HOUR)
        times.wall += 300  # as time servers correct it
        assert ages.now_ms() == times.wall
    assert not ages.doubted


def test_a_step_ahead_is_believed_after_an_hour(times: Times) -> None:
    ages = AgeClock(times, times.wall, HOUR)
    before = times.wall
    times.wall += YEAR
    assert ages.now_ms() == before
    assert ages.doubted
    times.pass_ms(BELIEVED_AFTER_MS - 1)
    assert ages.now_ms() == before + BELIEVED_AFTER_MS - 1
    times.pass_ms(1)
    assert ages.now_ms() == before + BELIEVED_AFTER_MS or ages.now_ms() == times.wall
    assert ages.now_ms() == times.wall
    assert not ages.doubted


def test_a_step_that_is_taken_back_was_nothing(times: Times) -> None:
    ages = AgeClock(times, times.wall, HOUR)
    for _ in range(5):  # the hour begins again each time
        times.wall += YEAR
        assert ages.now_ms() == times.wall - YEAR
        times.pass_ms(BELIEVED_AFTER_MS // 2)
        assert ages.now_ms() == times.wall - YEAR
        times.wall -= YEAR
        assert ages.now_ms() == times.wall


def test_a_step_back_is_followed_at_once(times: Times) -> None:
    ages = AgeClock(times, times.wall, HOUR)
    times.wall -= YEAR
    assert ages.now_ms() == times.wall
    times.wall += YEAR  # and the way back is a step ahead
    assert ages.now_ms() == times.wall - YEAR


def test_a_clock_far_ahead_of_the_newest_message(times: Times) -> None:
    """As of a machine that starts in another year; or the store was idle for that long."""
    newest = times.wall - YEAR
    ages = AgeClock(times, newest, HOUR)
    assert ages.now_ms() == newest
    times.pass_ms(BELIEVED_AFTER_MS)
    assert ages.now_ms() in (times.wall, newest + BELIEVED_AFTER_MS)
    assert ages.now_ms() == times.wall
    for known in (
        AgeClock(times, None, HOUR),
        AgeClock(times, newest, None),
        AgeClock(times, newest, 2 * YEAR),
    ):
        assert known.now_ms() == times.wall


def test_a_clock_that_is_moved_by_hand_is_believed() -> None:
    clock = ManualClock(YEAR)
    ages = AgeClock(clock, 5, HOUR)
    clock.advance(10 * YEAR / 1000)
    assert ages.now_ms() == clock.now_ms() == 11 * YEAR
    clock.set(YEAR)
    assert ages.now_ms() == YEAR
