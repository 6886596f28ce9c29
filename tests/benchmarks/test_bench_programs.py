"""The programs of bench run and say what they measured; no test looks at a speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import group_commit, peers, scaling, services
from bench.peer_bodies import MIXED, SETS
from bench.plots import plot_peers


def test_a_busy_thread_is_measured_beside_each_way_to_put(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interval_s = sys.getswitchinterval()
    words = ["--busy", "--rounds", "1", "--seconds", "0.02", "--directory", str(tmp_path)]
    assert group_commit.main(words) == 0
    table = capsys.readouterr().out
    assert "| quiet, 5 ms | busy, 5 ms | × | quiet, 0.2 ms | busy, 0.2 ms | × |" in table
    assert sys.getswitchinterval() == interval_s
    (saved,) = tmp_path.iterdir()
    found = json.loads(saved.read_text())["results"]["100"]
    assert set(found) == {
        "put, 1 thread",
        "submit, 64 in flight",
        "put, 64 threads",
        "put, 64 asyncio tasks",
    }
    for row in found.values():
        assert set(row) == {"5", "0.2"}
        for side in row.values():
            assert len(side["rates"]["busy"]) == len(side["rates"]["quiet"]) == 1
            assert side["quiet"] > 0 < side["busy"]


def test_a_side_that_fails_leaves_no_busy_thread() -> None:
    with pytest.raises(ZeroDivisionError), group_commit.busy_thread():
        raise ZeroDivisionError


def test_mixed_sizes_are_what_the_table_says_of_them() -> None:
    sizes = sorted(MIXED.sizes)
    assert len(sizes) == 1000  # so that each batch has all of them
    assert 290 <= sizes[500] <= 310
    assert 1000 <= MIXED.mean_bytes <= 1100
    assert 1 <= sizes[0] < 10 and 32 << 10 < sizes[-1] <= 64 << 10
    assert [len(body) for body in MIXED.made()] == list(MIXED.sizes)
    # The same order in every run: the first ones of it.
    assert MIXED.sizes[:3] == (545, 33, 128)


def test_peers_write_their_tables_and_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ROUND_S", 0.002)
    monkeypatch.setattr(peers, "fetch_memory", lambda: None)
    work, results = tmp_path / "work", tmp_path / "results"
    words = ["--only", "pwritev2", "--durability", "disk", "--directory", str(work)]
    assert peers.main([*words, "--results", str(results)]) == 0
    assert list(work.iterdir()) == []
    text = (results / "peers.md").read_text()
    assert text.startswith(peers.introduction())
    heads = [line for line in text.splitlines() if line.startswith("| | ")]
    assert heads == ["| | 100 B | × | 1024 B | × | mixed | × |"] * 2
    for said in ("at most 32 MiB", "run beside", "no trace", "CPUs", "load ", "cold"):
        assert said in text, said
    assert text.count("| pwritev2: bodies only, RWF_DSYNC |") == 2
    found = json.loads((results / "peers.json").read_text())
    assert {row["bodies"] for row in found["results"]} == {kind.name for kind in SETS}
    assert all(len(row["rates"]) == found["machine"]["rounds"] == 5 for row in found["results"])


def test_the_saved_rounds_of_the_peers_have_a_table_and_a_picture(tmp_path: Path) -> None:
    """bench/results holds one run: its tables are made of its rounds."""
    results = Path(peers.__file__).parent / "results"
    found = json.loads((results / "peers.json").read_text())
    text = peers.introduction() + peers.markdown(found["results"], found["machine"])
    assert (results / "peers.md").read_text() == text
    pytest.importorskip("matplotlib")
    picture = tmp_path / "img" / "peers.svg"
    plot_peers(found["results"], picture)
    assert "<svg" in picture.read_text()


def test_scaling_says_on_which_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "fetch_memory", lambda: None)
    monkeypatch.setattr(scaling, "QUEUE_MESSAGES", 100)
    words = ["--only", "queues", "--queues", "1,3", "--rounds", "1", "--directory", str(tmp_path)]
    assert scaling.main(words) == 0
    text = (tmp_path / "scaling.md").read_text()
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows == ["queues", "---:", "1", "3"]
    for said in ("CPUs", "GiB", "Linux", "load", "vm.max_map_count", "1 rounds, durability os"):
        assert said in text.splitlines()[-1], said
    found = json.loads((tmp_path / "scaling.json").read_text())
    assert set(found["results"]["queues"]) == {"1", "3"}
    assert found["machine"]["memory_bytes"] > 0


def test_a_log_that_has_no_room_is_refused_before_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--only", "length", "--gib", "1,1000000", "--directory", str(tmp_path)]
    with pytest.raises(SystemExit):
        scaling.main(words)
    assert "a log of 1000000 GiB needs" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_long_logs_have_sixty_four_gib_and_all_queues_are_asked(tmp_path: Path) -> None:
    given = scaling.arguments(["--only", "queues", "--long", "--directory", str(tmp_path)])
    assert max(scaling.points_of("length", given)) == 64
    assert max(scaling.points_of("queues", given)) == 50_000


def test_services_are_measured_in_turns_with_sqlite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--count", "20", "--waiting", "40", "--rounds", "1", "--directory", str(tmp_path)]
    assert services.main(words) == 0
    table = capsys.readouterr().out
    for what in services.CASES:
        assert f"| {what} | rocketstore |" in table and f"| {what} | SQLite |" in table
    assert "40 wait, rocketstore: one topic of two counted in" in table
    assert "expected_queue_offset beside another task" in table
