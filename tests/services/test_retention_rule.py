"""What `Retention` takes, and what it refuses with the field, the value and a remedy."""

from __future__ import annotations

import dataclasses
import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ConfigError, Retention
from tests.support.small_store import SEGMENT, open_small

pytestmark = pytest.mark.quick

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
        ("max_age", (7, "7d", datetime.timedelta(), -DAY), "a timedelta above 0, such as"),
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
        ("check_every", (5, DAY * 2, datetime.timedelta(), None), "10 milliseconds to 1 day"),
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
