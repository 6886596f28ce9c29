"""The bench command and the harness run and say what they measured; no test looks at a speed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import rocketstore
from bench import harness
from bench.machine import file_system_of
from rocketstore.cli.commands import bench
from rocketstore.cli.output import percentile, time_text
from tests.support.waiting import wait_until

SHORT = ("--seconds", 0.05, "--size", 100)
LATENCIES = ("p50_ns", "p99_ns", "p999_ns", "max_ns")


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_the_command_shows_puts_and_reads(invoke, tmp_path: Path, durability: str) -> None:
    result = invoke("bench", *SHORT, "--directory", tmp_path, "--durability", durability)
    assert result.exit_code == 0, result.output
    for line in (
        f"100 B, durability {durability}",
        "× raw",
        "put_batch of 1000",
        "submit, 64 at a time",
        "pwritev2(RWF_DSYNC)" if durability == "disk" else "os.write",
        "read with .body",
        "scan, column body",
    ):
        assert line in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_command_shows_nothing_that_it_does_not_look_at(invoke, tmp_path: Path) -> None:
    result = invoke("bench", *SHORT, "--directory", tmp_path, "--durability", "os")
    for word in ("lost", "wrong", "recovery"):
        assert word not in result.output


def test_the_command_saves_every_figure(invoke, tmp_path: Path) -> None:
    target = tmp_path / "found.json"
    sizes = ("--size", 100, "--size", 5000)
    words = ("--seconds", 0.05, *sizes, "--directory", tmp_path, "--json", target)
    result = invoke("bench", *words)
    assert result.exit_code == 0, result.output
    found = json.loads(target.read_text())
    assert {"cpus", "kernel", "file_system", "load"} <= set(found["machine"])
    rows = found["results"]
    # Each size has four ways to write in both durabilities, and is read once.
    assert len(rows) == 2 * (2 * 4 + 2)
    assert {(row["size"], row["durability"]) for row in rows} == {
        (size, durability) for size in (100, 5000) for durability in ("os", "disk")
    }
    for row in rows:
        assert row["messages"] > 0 < row["messages_per_s"]
        assert len(row["rates"]) == 3
        compared = row["what"] in ("put", "submit, 64 at a time")
        assert compared == ("ratio" in row) == (len(row.get("ratios", ())) == 3)
        if "p50_ns" in row:
            points = [row[name] for name in LATENCIES]
            assert points == sorted(points)
    single = {row["what"] for row in rows if "p50_ns" in row}
    assert single == {"put", "os.write", "pwritev2(RWF_DSYNC)"}


def test_a_file_that_cannot_be_written_is_refused_before_the_minute(invoke, tmp_path: Path) -> None:
    words = ("--directory", tmp_path, "--json", tmp_path / "missing" / "found.json")
    result = invoke("bench", *words)
    assert result.exit_code == 2
    assert "--json" in result.output


def test_memory_in_the_place_of_a_disk_is_said(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketstore.cli.commands.bench.file_system_of", lambda _: "tmpfs")
    result = invoke("bench", *SHORT, "--directory", tmp_path)
    assert f"{tmp_path} is on tmpfs" in result.stderr
    assert "is on" not in result.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_leaves_nothing(
    start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    child = start("bench", "--seconds", 600, "--directory", tmp_path)
    wait_until(lambda: list(tmp_path.glob("rocketstore-bench-*/raw")))
    child.send_signal(number)
    assert child.wait(60) == code
    assert list(tmp_path.iterdir()) == []


def test_a_close_that_ctrl_c_ends_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store makes meanwhile would stay, since the directory is removed behind it."""
    real, calls = rocketstore.Store.close, []

    def close(self: rocketstore.Store) -> None:
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(self)

    monkeypatch.setattr(rocketstore.Store, "close", close)
    with (
        pytest.raises(KeyboardInterrupt),
        bench.open_sides(tmp_path, 100, "os", reads=False) as sides,
    ):
        assert sides
    try:
        assert calls[0].closed
    finally:
        real(calls[0])


def test_the_file_system_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    inner = tmp_path / "a b"
    inner.mkdir()
    escaped = str(inner).replace(" ", "\\040")
    mounts = (
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"30 22 0:5 / {escaped} rw shared:1 - xfs /dev/vdb rw\n"
        f"31 30 0:6 / {escaped} rw - tmpfs none rw\n"
        f"32 22 0:7 / {inner}c rw - btrfs none rw\n"
        "half a line\n"
    )
    assert file_system_of(inner, mounts) == "tmpfs"
    assert file_system_of(tmp_path, mounts) == "ext4"
    assert file_system_of(tmp_path, "") == ""
    assert file_system_of(tmp_path) == bench.file_system_of(tmp_path) != ""


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
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


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_the_harness_puts_batches_beside_the_same_bytes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    durability: str,
) -> None:
    monkeypatch.setattr(harness, "fetch_memory", lambda: None)
    monkeypatch.setattr(harness, "BATCHES_BYTES", 3 * 1000 * 230)
    saved = tmp_path / "found.json"
    words = ["--batch", "1000", "--size", "100", "--durability", durability]
    assert harness.main([*words, "--directory", str(tmp_path), "--json", str(saved)]) == 0
    raw = "pwritev2(RWF_DSYNC), prewritten" if durability == "disk" else "os.write"
    printed = capsys.readouterr().out
    assert "put_batch of 1000: 100 B" in printed and raw in printed
    (result,) = json.loads(saved.read_text())["results"]
    assert (result["batch"], result["raw"]["what"]) == (1000, raw)
    # Each of the five rounds has the same calls of both sides, and counts messages.
    calls = harness.BATCHES_BYTES // (result["record_bytes"] * 1000)
    assert result["store"]["messages"] == result["raw"]["messages"] == 5 * calls * 1000 > 0


def test_a_batch_that_the_prewritten_blocks_cannot_hold_is_refused(tmp_path: Path) -> None:
    words = ["--batch", "20000", "--size", "1024", "--durability", "disk"]
    with pytest.raises(ValueError, match="choose a smaller --batch"):
        harness.main([*words, "--directory", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_a_long_round_is_one_of_each_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "COLD_S", 0.0)
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


@pytest.mark.parametrize(("part", "expected"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_percentiles(part: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), part) == expected
    assert percentile([], part) == 0


@pytest.mark.parametrize(
    ("duration_ns", "text"), [(12, "12 ns"), (1500, "1.5 µs"), (2.5e6, "2.5 ms"), (3e9, "3 s")]
)
def test_times(duration_ns: float, text: str) -> None:
    assert time_text(duration_ns) == text
