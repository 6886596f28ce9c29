"""A whole run ends in its time: the table, the shares, and the processes of the parts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import campaign
from tests.support.budget import (
    BUILD_S,
    CAMPAIGNS,
    CI_SECONDS,
    CORES,
    PARTS,
    Campaign,
    Part,
    Plan,
    rehearse,
)
from tests.support.paths import ROOT
from tests.support.whole_run import WholeRun, table

pytestmark = pytest.mark.quick


def given_seconds(seconds: float, slowness: float = 1.0) -> float:
    return sum(sum(row.given.values()) for row in rehearse(seconds, BUILD_S, slowness))


def end(seconds: float, slowness: float = 1.0) -> float:
    return max(row.ended for row in rehearse(seconds, BUILD_S, slowness))


ALL = sum(campaign.seconds for campaign in CAMPAIGNS.values())


def test_a_usual_run_gives_all_campaigns_their_seconds() -> None:
    assert given_seconds(CI_SECONDS) == ALL
    assert end(CI_SECONDS) <= 2700


@pytest.mark.parametrize("seconds", [1500, 2000, 2500, 3000, 5000])
@pytest.mark.parametrize("slowness", [1.0, 1.2, 1.5, 2.0])
def test_a_run_ends_in_its_time(seconds: int, slowness: float) -> None:
    """However slow fixed work is, as long as it fits itself: campaigns pay for it."""
    alone = end(1, slowness)
    assert end(seconds, slowness) <= max(seconds, alone + 60)


def test_a_run_of_half_the_time_does_less_of_every_campaign() -> None:
    for row in rehearse(1500, BUILD_S):
        for name, seconds in row.given.items():
            assert 0 < seconds < CAMPAIGNS[name].seconds, name


def test_cores_are_never_used_twice() -> None:
    rows = rehearse(CI_SECONDS)
    for row in rows:
        beside = [one for one in rows if one.began <= row.began < one.ended]
        assert sum(one.part.cores for one in beside) <= CORES


def test_parts_wait_for_what_they_need() -> None:
    rows = {row.part.target: row for row in rehearse(CI_SECONDS)}
    assert rows.keys() == {part.target for part in PARTS}
    last_first = max(row.ended for row in rows.values() if row.part.first)
    for row in rows.values():
        assert row.part.first or row.began >= last_first
        assert all(rows[name].ended <= row.began for name in row.part.after)


def test_each_part_is_a_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for part in PARTS:
        assert re.search(rf"^{part.target}:", makefile, re.MULTILINE), part.target


def test_each_campaign_of_the_table_is_begun_by_a_test() -> None:
    """A campaign that nobody begins would only take time from the others."""
    text = "\n".join(
        path.read_text()
        for path in (ROOT / "tests").rglob("*.py")
        if path.name not in ("budget.py", "test_budget.py")
    )
    for name, row in CAMPAIGNS.items():
        assert f'"{name}"' in text, name
        assert 0 < row.least < row.aim


# ---- a campaign ----


@pytest.fixture(autouse=True)
def _not_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What campaigns say here is none of the summary."""
    monkeypatch.setattr(campaign, "TOLD", [])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Ten milliseconds for the power cuts, and a report."""
    budget = {"seconds": {"power cuts": 0.01}, "report": str(tmp_path / "report")}
    monkeypatch.setenv(campaign.GIVEN, json.dumps(budget))
    return tmp_path / "report"


def test_a_campaign_with_seconds_does_its_least_and_goes_on_until_they_are_used(
    told: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sum(1 for _ in campaign.begin("power cuts", least=3).rounds()) >= 3
    running = campaign.begin("power cuts", least=1)
    began = time.monotonic()
    for _ in running.rounds():
        pass
    assert time.monotonic() - began >= 0.01
    did, _ = campaign.reported(told)["power cuts"]
    assert did >= 3 + running.did
    assert re.search(r"^power cuts: [\d,]+ cuts in 0 s \(aim 200\)$", capsys.readouterr().out, re.M)


def test_a_switch_asks_for_a_count(told: Path) -> None:
    assert [*campaign.begin("power cuts", asked="4").rounds()] == [0, 1, 2, 3]
    assert campaign.reported(told) == {}


def test_without_a_whole_run_a_campaign_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(campaign.GIVEN, raising=False)
    assert len([*campaign.begin("power cuts").rounds()]) == CAMPAIGNS["power cuts"].aim
    assert len([*campaign.begin("power cuts", share=0.5).rounds()]) == 100
    assert len([*campaign.begin("power cuts", alone=7).rounds()]) == 7


def test_a_campaign_that_fails_tells_how_far_it_came(told: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail(campaign.begin("power cuts", least=5))
    assert campaign.reported(told)["power cuts"][0] == 2


def fail(running: campaign.Running) -> None:
    rounds = running.rounds()
    try:
        for number in rounds:
            1 // (2 - number)
    finally:
        rounds.close()  # type: ignore[attr-defined]


def test_tests_within_a_test_have_no_seconds(told: Path) -> None:
    assert campaign.seconds_given("power cuts") == 0.01
    assert campaign.GIVEN not in campaign.without({campaign.GIVEN: "{}", "HOME": "/"})


# ---- processes ----


SLOW = Campaign("slow", "steps", 10, 1, 1)
SCRIPTS = {
    "one": "print('of one')",
    "two": "print('of two', flush=True); raise SystemExit(3)",
    "three": "print('of three')",
}


def script(part: Part, cores: int) -> list[str]:
    return [sys.executable, "-c", SCRIPTS[part.target]]


def test_output_is_kept_apart_and_a_failure_ends_the_run(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    parts = (Part("one", 1, 1), Part("two", 1, 1), Part("three", 2, 1, (SLOW,)))
    run = WholeRun(Plan(100, parts), 0.0, script)
    assert not run.run()
    said = capfdbinary.readouterr().out.decode()
    assert "of one" in said and "of two" in said and "of three" not in said
    assert {outcome.part.target: bool(outcome.wrong) for outcome in run.outcomes} == {
        "one": False,
        "two": True,
    }
    assert any("two" in line and "FAILED" in line for line in table(run.outcomes, 1, 100))


def test_the_table_says_what_was_less_than_aimed() -> None:
    part = Part("three", 2, 1, (SLOW,))
    run = WholeRun(Plan(100, (part,)), 0.0, lambda *_: [sys.executable, "-c", REPORTS_3])
    assert run.run()
    [line] = [line for line in table(run.outcomes, 1, 100) if "steps" in line]
    assert re.search(r"slow, steps +1 +3 +10  less than aimed$", line)


REPORTS_3 = f"""
import json, os
given = json.loads(os.environ["{campaign.GIVEN}"])
assert given["seconds"] == {{"slow": 1.0}}
with open(given["report"], "a") as file:
    file.write(json.dumps({{"name": "slow", "did": 3, "seconds": 1.0}}) + "\\n")
"""


@pytest.mark.parametrize("seconds", ["0", "1h", "-5"])
def test_ci_seconds_that_are_no_number_are_refused(seconds: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.budget", "--dry"],
        env={"CI_SECONDS": seconds, "PATH": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"CI_SECONDS={seconds}" in done.stderr
