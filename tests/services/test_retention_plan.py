"""Each rule by itself, and together: plans out of facts, without a store."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from rocketstore import Retention, RetentionPlan
from rocketstore.services.retention.holds import Hold
from rocketstore.services.retention.plan import DiskUse, Facts, Segment, cut_at, decide

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
