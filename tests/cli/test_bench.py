"""The bench command and the harness run and say what they measured; no test looks at a speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import harness


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_the_command_shows_puts_and_reads(invoke, tmp_path: Path, durability: str) -> None:
    words = ("--seconds", 0.05, "--directory", tmp_path, "--durability", durability)
    result = invoke("bench", *words)
    assert result.exit_code == 0, result.output
    assert "put 100 B" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_harness_saves_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], durability: str, threads: int
) -> None:
    saved = tmp_path / "found.json"
    words = ["--seconds", "0.02", "--size", "100", "--threads", str(threads)]
    words += ["--durability", durability, "--directory", str(tmp_path), "--json", str(saved)]
    assert harness.main(words) == 0
    assert "ratio" in capsys.readouterr().out
    found = json.loads(saved.read_text())
    (result,) = found["results"]
    assert (result["durability"], result["threads"], result["pages"]) == (
        durability,
        threads,
        "warm",
    )
    assert len(result["ratios"]) == result["rounds"] == 5
    assert result["store"]["messages"] > 0 < result["raw"]["messages"]
    assert result["store"]["p50_ns"] <= result["store"]["p99_ns"] <= result["store"]["max_ns"]
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_a_long_round_is_one_of_each_side(tmp_path: Path) -> None:
    saved = tmp_path / "found.json"
    words = ["--gib", "0.01", "--size", "1024", "--directory", str(tmp_path), "--json", str(saved)]
    assert harness.main(words) == 0
    (result,) = json.loads(saved.read_text())["results"]
    assert (len(result["ratios"]), result["pages"]) == (1, "cold")
    sides = [result["store"]["messages"], result["raw"]["messages"]]
    assert sides == [(10 << 20) * 1024 // 1000 // result["record_bytes"]] * 2


def test_fewer_than_five_rounds_are_no_median(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        harness.main(["--rounds", "4", "--directory", str(tmp_path)])
