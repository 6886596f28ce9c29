"""What `Retention` takes and refuses; each rule by itself, and together, without a store; a clock that is stepped."""

from __future__ import annotations

import dataclasses
import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ConfigError, Retention, RetentionPlan
from rocketstore.services.retention import keeper
from rocketstore.services.retention.holds import Hold
from rocketstore.services.retention.keeper import BELIEVED_AFTER_MS, AgeClock
from rocketstore.services.retention.plan import DiskUse, Facts, Segment, cut_at, decide
from rocketstore.testing import ManualClock
from rocketstore.values.clock import SystemClock
from tests.support.small_store import SEGMENT, open_small

pytestmark = pytest.mark.quick


HOUR_MS = 3_600_000
HOUR = datetime.timedelta(hours=1)
NOW = 1_000 * HOUR_MS


def facts(count: int = 10, **changed: Any) -> Facts:
    """Segments of 100 bytes, one stored each hour; the newest is an hour old, and has a successor
    that holds the end."""
    segments = [
        Segment(100 * n, 100 * n + 100, NOW - (count - 1 - n) * HOUR_MS if n < count - 1 else None)
        for n in range(count)
    ]
    plain = Facts(NOW, 12, segments, 0, 100 * count - 50, ())
    return dataclasses.replace(plain, **changed)


def gone(plan: RetentionPlan) -> int:
    """How many go; they are the first ones."""
    assert [s.goes for s in plan.segments] == sorted((s.goes for s in plan.segments), reverse=True)
    assert plan.new_begin_offset == 100 * plan.count
    assert plan.bytes == 100 * plan.count
    return plan.count


def test_by_age() -> None:
    """The newest message of a segment decides."""
    assert gone(decide(Retention(max_age=5 * HOUR), facts())) == 4
    assert gone(decide(Retention(max_age=5.5 * HOUR), facts())) == 4
    assert gone(decide(Retention(max_age=20 * HOUR), facts())) == 0
    plan = decide(Retention(max_age=HOUR / 2), facts())
    assert gone(plan) == 9
    assert plan.segments[-1].reasons == ("the last segment always stays",)
    plan = decide(Retention(max_age=5 * HOUR), facts())
    assert plan.segments[0].reasons == ("older than 5:00:00",)
    assert plan.segments[4].reasons == ("5:00:00 old, max_age is 5:00:00",)


def test_a_younger_segment_keeps_those_that_follow() -> None:
    """Store times fall once where a clock was corrected (D-28)."""
    some = list(facts().segments)
    some[2] = dataclasses.replace(some[2], newest_ms=NOW)
    assert gone(decide(Retention(max_age=HOUR / 2), facts(segments=some))) == 2
    some[2] = dataclasses.replace(some[2], newest_ms=None)
    assert gone(decide(Retention(max_age=5 * HOUR), facts(segments=some))) == 4


def test_only_at_some_hours() -> None:
    rule = Retention(max_age=5 * HOUR, hours={2, 12})
    assert gone(decide(rule, facts())) == 4
    plan = decide(rule, facts(hour=11))
    assert gone(plan) == 0
    assert plan.segments[0].reasons == ("max_age acts at the hours [2, 12], it is 11",)
    both = Retention(max_age=5 * HOUR, hours={2}, max_bytes=800)
    assert gone(decide(both, facts())) == 2


def test_by_size() -> None:
    for most, count in ((1000, 0), (999, 1), (900, 1), (899, 2), (100, 9), (1, 9)):
        assert gone(decide(Retention(max_bytes=most), facts())) == count


def test_by_use_of_the_disk() -> None:
    rule = Retention(disk_watermarks=(0.7, 0.8))
    for used, held, count in ((850, 0, 2), (701, 0, 1), (700, 0, 0), (850, 100, 1), (850, 900, 0)):
        found = facts(disk=DiskUse(1000, used, held), cleaning=True)
        assert gone(decide(rule, found)) == count, (used, held)
    plan = decide(rule, facts(disk=DiskUse(1000, 790)))
    assert gone(plan) == 0
    assert plan.segments[0].reasons == ("the disk is used to 79.0%, below 80.0%",)
    assert plan.disk_used == 0.79


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (99, 0), (100, 1), (350, 3), (2000, 9)])
def test_what_is_not_flushed_and_dispatched_stays(limit: int, count: int) -> None:
    """In an emergency, too."""
    for rule in (Retention(max_bytes=1), Retention(emergency_watermark=0.01)):
        plan = decide(rule, facts(limit=limit, disk=DiskUse(1000, 1000)))
        assert gone(plan) == count
        if count < 9:
            assert "not yet on the disk, or not yet in its queue" in plan.segments[count].reasons


def test_holds() -> None:
    holds = (Hold("group a", 250), Hold("never shipped", 430))
    plan = decide(Retention(max_bytes=1), facts(holds=holds))
    assert gone(plan) == 2
    assert plan.segments[2].reasons == ("group a (from 250)",)
    assert plan.segments[4].reasons == ("group a (from 250)", "never shipped (from 430)")
    assert not plan.emergency


def test_an_emergency_gives_up_as_little_as_it_can() -> None:
    holds = (Hold("group a", 150), Hold("never shipped", 430))
    rule = Retention(max_bytes=1000, emergency_watermark=0.95)
    for used, count, given_up in (
        (940, 0, ()),
        (950, 1, ()),
        (1000, 1, ()),
        (1049, 1, ()),
        (1050, 2, ("group a (from 150)",)),
        (1300, 4, ("group a (from 150)",)),
        (1350, 5, ("group a (from 150)", "never shipped (from 430)")),
    ):
        scale = DiskUse(1000, used)  # over-full, to count segments
        plan = decide(rule, facts(holds=holds, disk=scale))
        assert (gone(plan), plan.given_up, plan.emergency) == (count, given_up, count > 0), used
    # What goes by other rules anyway is no emergency.
    plain = dataclasses.replace(rule, max_bytes=900)
    plan = decide(plain, facts(holds=holds, disk=DiskUse(1000, 950)))
    assert (gone(plan), plan.emergency) == (1, False)
    # Nor is what a process has mapped still: it comes back by itself.
    plan = decide(rule, facts(holds=holds, disk=DiskUse(1000, 1300, held=500)))
    assert gone(plan) == 0


def test_one_segment_or_none() -> None:
    for count in (0, 1):
        for rule in (Retention(max_bytes=1), Retention(emergency_watermark=0.1)):
            assert decide(rule, facts(count, disk=DiskUse(10, 10))).count == 0


def test_a_plan_as_text() -> None:
    holds = tuple(Hold(f"group {n}", 250) for n in range(9))
    rule = Retention(max_age=HOUR / 2, emergency_watermark=0.9)
    lines = str(decide(rule, facts(5, holds=holds, disk=DiskUse(1000, 1100)))).splitlines()
    assert lines[0] == "3 segments of 5 go, 300 bytes; the log begins at 300 then"
    assert lines[1] == "given up: group 0 (from 250)"
    emergency = "emergency: the disk is used to 110.0%, at least 90.0%"
    assert lines[10] == f"{'0' * 20} goes: older than 0:30:00; {emergency}"
    assert lines[13].startswith(f"{300:020d} stays: group 0 (from 250); group 1")
    assert lines[13].endswith("group 4 (from 250); 4 more reasons")


def test_a_plan_that_was_carried_out_in_part() -> None:
    plan = cut_at(decide(Retention(max_bytes=500), facts()), 200)
    assert gone(plan) == 2
    assert plan.segments[2].reasons == ("not yet on the disk, or not yet in its queue",)


DAY = datetime.timedelta(days=1)


def test_what_it_keeps() -> None:
    rule = Retention(
        max_age=DAY,
        hours=[2, 3, 3],
        disk_watermarks=(0.7, 0.8),
        keep_unconsumed_by=["b", "a", "b"],
        emergency_watermark=0.95,
    )
    assert rule.hours == {2, 3}
    assert rule.keep_unconsumed_by == ("a", "b")
    assert rule == pickle.loads(pickle.dumps(rule))
    assert hash(rule) == hash(dataclasses.replace(rule))
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.max_bytes = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "values", "remedy"),
    [
        (
            "max_age",
            (0, "7d", True, datetime.timedelta(), -DAY),
            "seconds or a timedelta, from 0:00:00.000001",
        ),
        ("max_bytes", (0, -1, 1.5, True, "1G"), "a whole number of bytes above 0"),
        (
            "disk_watermarks",
            (0.8, (0.8,), (0.8, 0.7), (0.8, 0.8), (0, 0.5), (75, 85), (0.5, float("nan")), "ab"),
            "75 % is 0.75",
        ),
        ("hours", ([], "04", {24}, {-1}, {2.0}, {True}, 4), "whole local hours from 0 to 23"),
        (
            "keep_unconsumed_by",
            ([], 5, [""], [1], {"a": 1}, b"a"),
            'names of consumer groups, such as ["billing"]',
        ),
        ("keep_unconsumed_by", ("billing",), "one group is ['billing']"),
        ("keep_unshipped", (1, "s3://lake", None), "True or False"),
        ("emergency_watermark", (0, 1.1, 95, "x", True), "a fraction above 0 and up to 1"),
        ("check_every", (0.001, DAY * 2, datetime.timedelta(), None), "0:00:00.010000 to 1 day"),
    ],
)
def test_wrong_values(field: str, values: tuple[Any, ...], remedy: str) -> None:
    for value in values:
        given = {"max_age": DAY, field: value}
        with pytest.raises(ConfigError) as caught:
            Retention(**given)
        assert caught.value.field == field
        assert caught.value.value == value or value != value or field == "disk_watermarks"
        assert remedy in str(caught.value)


def test_wrong_combinations() -> None:
    for given, field, remedy in (
        ({}, "max_age", "give max_age, max_bytes or disk_watermarks"),
        ({"keep_unshipped": True}, "max_age", "nothing would ever go"),
        ({"max_bytes": 1, "hours": {3}}, "hours", "give max_age"),
        (
            {"disk_watermarks": (0.5, 0.9), "emergency_watermark": 0.9},
            "emergency_watermark",
            "above the high disk watermark, 0.9",
        ),
    ):
        with pytest.raises(ConfigError, match=remedy) as caught:
            Retention(**given)
        assert caught.value.field == field


@pytest.mark.parametrize("value", [{"audit": Retention(max_age=DAY)}, "7d", 7, True])
def test_an_open_takes_one_rule(tmp_path: Path, value: Any) -> None:
    remedy = "ship the segments to an archive" if isinstance(value, dict) else "rocketstore.Ret"
    with pytest.raises(ConfigError, match=remedy) as caught:
        open_small(tmp_path / "s", retention=value)
    assert caught.value.field == "retention"
    assert not (tmp_path / "s").exists()


def test_a_reader_keeps_nothing(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    with pytest.raises(ConfigError, match="a reader removes nothing"):
        open_small(tmp_path, "r", retention=Retention(max_age=DAY))


def test_a_bound_below_one_segment(tmp_path: Path) -> None:
    """The store is closed again."""
    with pytest.raises(ConfigError, match=f"at least one segment, which has {SEGMENT} bytes here"):
        open_small(tmp_path, retention=Retention(max_bytes=SEGMENT - 1))
    open_small(tmp_path, retention=Retention(max_bytes=SEGMENT)).close()


YEAR = 365 * 24 * HOUR_MS


class Times(SystemClock):
    """A wall clock that is set, and a steady clock that goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 50 * YEAR, 7 * HOUR_MS
        super().__init__(lambda: self.wall)
        monkeypatch.setattr(keeper, "steady_ms", lambda: self.steady)

    def pass_ms(self, span: int) -> None:
        self.wall += span
        self.steady += span


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times(monkeypatch)


def test_it_goes_on_with_the_wall_clock(times: Times) -> None:
    ages = AgeClock(times, times.wall - HOUR_MS, 2 * HOUR_MS)
    for _ in range(100):
        times.pass_ms(HOUR_MS)
        times.wall += 300  # as time servers correct it
        assert ages.now_ms() == times.wall
    assert not ages.doubted


def test_a_step_ahead_is_believed_after_an_hour(times: Times) -> None:
    ages = AgeClock(times, times.wall, HOUR_MS)
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
    ages = AgeClock(times, times.wall, HOUR_MS)
    for _ in range(5):  # the hour begins again each time
        times.wall += YEAR
        assert ages.now_ms() == times.wall - YEAR
        times.pass_ms(BELIEVED_AFTER_MS // 2)
        assert ages.now_ms() == times.wall - YEAR
        times.wall -= YEAR
        assert ages.now_ms() == times.wall


def test_a_step_back_is_followed_at_once(times: Times) -> None:
    ages = AgeClock(times, times.wall, HOUR_MS)
    times.wall -= YEAR
    assert ages.now_ms() == times.wall
    times.wall += YEAR  # and the way back is a step ahead
    assert ages.now_ms() == times.wall - YEAR


def test_a_clock_far_ahead_of_the_newest_message(times: Times) -> None:
    """As of a machine that starts in another year; or the store was idle for that long."""
    newest = times.wall - YEAR
    ages = AgeClock(times, newest, HOUR_MS)
    assert ages.now_ms() == newest
    times.pass_ms(BELIEVED_AFTER_MS)
    assert ages.now_ms() in (times.wall, newest + BELIEVED_AFTER_MS)
    assert ages.now_ms() == times.wall
    for known in (
        AgeClock(times, None, HOUR_MS),
        AgeClock(times, newest, None),
        AgeClock(times, newest, 2 * YEAR),
    ):
        assert known.now_ms() == times.wall


def test_a_clock_that_is_moved_by_hand_is_believed() -> None:
    clock = ManualClock(YEAR)
    ages = AgeClock(clock, 5, HOUR_MS)
    clock.advance(10 * YEAR / 1000)
    assert ages.now_ms() == clock.now_ms() == 11 * YEAR
    clock.set(YEAR)
    assert ages.now_ms() == YEAR
