"""Cron expressions of messages that come again: their times, errors, and clocks that are changed."""

from __future__ import annotations

import datetime
import sys
import zoneinfo
from pathlib import Path

import pytest

from rocketstore import CronSyntaxError, MessageRejectedError
from rocketstore.services.delay.recurring import every_of, following_ms
from rocketstore.testing import ManualClock
from tests.services.delay_tools import read
from tests.services.timer_tools import settled
from tests.support.small_store import open_small


@pytest.fixture(name="cron")
def _cron() -> None:
    pytest.importorskip("cronsim", reason="needs rocketstore[cron]")


def times(expression: str, zone: str, begin: str, count: int) -> list[str]:
    found, every = list[str](), every_of(expression, zone)
    at_ms: int | None = int(datetime.datetime.fromisoformat(begin).timestamp() * 1000)
    tz = datetime.UTC if zone == "UTC" else zoneinfo.ZoneInfo(zone)
    for _ in range(count):
        assert at_ms is not None
        at_ms = following_ms({"__EVERY": every}, at_ms, at_ms)
        if at_ms is None:
            break
        found.append(f"{datetime.datetime.fromtimestamp(at_ms / 1000, tz):%d %H:%M:%S %z}")
    return found


@pytest.mark.usefixtures("cron")
def test_times_of_expressions() -> None:
    assert times("30 9 * * mon-fri", "UTC", "2027-01-01T09:30+00:00", 2) == [
        "04 09:30:00 +0000",
        "05 09:30:00 +0000",
    ]
    assert times("*/20 * * * * *", "UTC", "2027-01-01T00:00:01.5+00:00", 3) == [
        "01 00:00:20 +0000",
        "01 00:00:40 +0000",
        "01 00:01:00 +0000",
    ]
    assert times("0 0 L * *", "UTC", "2028-02-01T00:00+00:00", 1) == ["29 00:00:00 +0000"]
    assert times("0 0 1 1 *", "UTC", "9999-06-01T00:00+00:00", 1) == []


@pytest.mark.usefixtures("cron")
def test_clocks_that_are_changed() -> None:
    """Central Europe: 28 March 2027 has no 2:30, and 31 October has two."""
    gap = times("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00+01:00", 2)
    assert gap == ["28 03:00:00 +0200", "29 02:30:00 +0200"]
    twice = times("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00+02:00", 2)
    assert twice == ["31 02:30:00 +0200", "01 02:30:00 +0100"]
    second = times("30 2 * * *", "Europe/Berlin", "2027-10-31T02:10+01:00", 1)
    assert second == ["01 02:30:00 +0100"]
    hourly = times("30 * * * *", "Europe/Berlin", "2027-10-31T01:00+02:00", 3)
    assert hourly == ["31 01:30:00 +0200", "31 02:30:00 +0200", "31 02:30:00 +0100"]


@pytest.mark.usefixtures("cron")
@pytest.mark.parametrize(
    ("expression", "position", "hint"),
    [
        ("61 * * * *", 0, "minute"),
        ("* 24 * * *", 2, "hour"),
        ("0 0  32 * *", 5, "day-of-month"),
        ("0 0 * FOO *", 6, "month"),
        ("0 0 * * 8", 8, "day-of-week"),
        ("60 0 0 * * *", 0, "second"),
        ("0 0 * *", 7, "five fields"),
        ("* * * * * * *", 12, "five fields"),
        ("@daily", 6, "five fields"),
        ("", 0, "five fields"),
        ("*/0 * * * *", 0, "minute"),
        ("0 0 30 2 *", 4, "day-of-month: no month that the expression names has day 30"),
        ("0 0 0 31 2,4 *", 6, "no month that the expression names has day 31"),
        ("0 0 30,31 FEB *", 4, "no month that the expression names has day 30,31"),
        ("0 0 32 2 *", 4, "day-of-month: 1 to 31"),
        ("* " * 200, 256, "characters"),
    ],
)
def test_what_is_no_expression(expression: str, position: int, hint: str) -> None:
    with pytest.raises(CronSyntaxError) as caught:
        every_of(expression, "UTC")
    error = caught.value
    assert (error.expression, error.position) == (expression, position)
    assert hint in error.hint
    assert error.hint in str(error)


def test_a_span_without_an_end_is_named_as_it_was_given(tmp_path: Path) -> None:
    with (
        open_small(tmp_path / "store") as store,
        pytest.raises(MessageRejectedError, match="every = 86399999999999999 ms: no time follows"),
    ):
        store.delayed.repeat("orders", b"", datetime.timedelta.max)


@pytest.mark.parametrize("zone", ["No/Where", "../etc", "Europe", ""])
def test_what_is_no_zone(zone: str) -> None:
    with pytest.raises(ValueError, match="timezone"):
        every_of("* * * * *", zone)


@pytest.mark.usefixtures("cron")
def test_an_expression_is_delivered(tmp_path: Path) -> None:
    begin = datetime.datetime(2027, 3, 27, 12, tzinfo=datetime.UTC)
    clock = ManualClock(int(begin.timestamp() * 1000))
    with open_small(tmp_path / "store", clock=clock) as store:
        store.delayed.repeat(
            "orders", b"", "30 2 * * *", timezone="Europe/Berlin", unique_id="daily"
        )
        hours = []
        for _ in range(72):
            clock.advance(3600)
            settled(store)
            hours += [clock.now.hour] * (len(read(store)) - len(hours))
        assert hours == [1, 1, 1]  # at 1:00 and at 0:30
        (waiting,) = store.delayed
        assert waiting.every == "cron Europe/Berlin 30 2 * * *"


def test_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(ModuleNotFoundError, match=r"rocketstore\[cron\]"):
        every_of("* * * * *", "UTC")
