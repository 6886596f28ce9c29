"""The parts of the demo, small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli.commands.demo import run
from rocketstore.cli.demo import kills
from rocketstore.cli.demo import sources as demo_sources
from rocketstore.cli.demo.results import Row, table_of
from rocketstore.cli.output import percentile, time_text


def nothing(count: int) -> None:
    """A progress bar that nobody sees."""


@pytest.fixture
def sources(tmp_path: Path) -> list[demo_sources.SourceFile]:
    root = tmp_path / "sources"
    (root / "pack age").mkdir(parents=True)
    (root / "one.py").write_bytes(b"a\n\n\xffb\n" * 50)
    (root / "pack age" / "two.py").write_bytes(b"no newline at the end")
    (root / "pack age" / "three.py").write_bytes(b"x = 1\r\ny = 2\n" * 20)
    (root / "pack age" / "empty.py").touch()
    (root / "not python.txt").touch()
    return demo_sources.find_sources(root)


def test_topics_and_keys_are_legal(sources) -> None:
    assert [(s.topic, s.key) for s in sources] == [
        ("one", "one.py"),
        ("pack_age", "pack_age/empty.py"),
        ("pack_age", "pack_age/three.py"),
        ("pack_age", "pack_age/two.py"),
    ]


def test_the_library_of_this_python_is_found() -> None:
    found = demo_sources.find_sources(limit=5)
    assert len(found) == 5
    assert all(source.path.is_file() for source in found)


def test_all_parts_with_two_kills(sources, tmp_path: Path, random_seed: int) -> None:
    rows = run(tmp_path / "store", sources, kills=2, seed=random_seed)
    assert [fault for row in rows for fault in row.faults] == []
    assert [row.what for row in rows] == [
        "ingest source lines",
        "kill -9, disk writer",
        "kill -9, os writer",
        "read by group",
        "read by key",
        "read by time",
    ]
    ingested, *_, by_group, by_key, _ = rows
    assert ingested.messages == by_group.messages == by_key.messages == 191
    assert ingested.bytes == sum(source.path.stat().st_size for source in sources)


def test_writers_killed_while_they_open_lose_nothing(
    tmp_path: Path, random_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with rocketstore.open(path, durability="os", commit_log_file_size_bytes=1 << 20) as store:
        store.writer("other").put(b"makes the first file")
    monkeypatch.setattr(kills, "OPENING_EVERY", 1)
    rows = kills.kill_writers(path, 3, random.Random(random_seed), nothing)
    assert [row.lost + row.mismatched for row in rows] == [0, 0]
    assert [len(row.recoveries_s) for row in rows] == [2, 1]


def test_a_lost_message_is_counted(sources, tmp_path: Path) -> None:
    """A harness that cannot see a loss proves nothing: one body changed, one message missing."""
    path = tmp_path / "store"
    with rocketstore.open(path, durability="os", max_query_results=1000) as store:
        row, topics = demo_sources.ingest(store, sources, nothing)
        topics["one"].files[0].path.write_bytes(b"a\n\n\xffb\n" * 50 + b"one more\n")
        topics["pack_age"].files[-1].path.write_bytes(b"No newline at the end")
        found = demo_sources.check_groups(store, topics, nothing)
        by_key = demo_sources.check_keys(store, topics, nothing)
    assert row.messages == 191
    assert (found.lost, found.mismatched) == (1, 1)
    assert (by_key.lost, by_key.mismatched) == (1, 1)


def test_a_wrong_time_is_counted(sources, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        _, topics = demo_sources.ingest(store, sources, nothing)
        assert demo_sources.check_times(store, topics, nothing).mismatched == 0
        times = topics["one"].store_times_ms
        times[:] = [moment + 3_600_000 for moment in times]
        assert demo_sources.check_times(store, topics, nothing).mismatched > 0


def test_the_demo_says_its_seed_and_what_was_lost(invoke, tmp_path: Path) -> None:
    words = ("--store", tmp_path / "store", "--kills", 0)
    result = invoke("demo", *words, "--files", 2, "--seed", 7)
    assert result.exit_code == 0, result.output
    assert "seed of the kills: 7" in result.output
    assert "0 lost, 0 mismatched" in result.output
    with rocketstore.open(tmp_path / "store", "r") as store:
        assert store.topics()
    again = invoke("demo", *words, "--files", 1)
    assert again.exit_code == 0, "a demo replaces its own store"


def test_a_directory_that_is_not_the_demos_stays(invoke, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "precious").write_text("x")
    result = invoke("demo", "--store", tmp_path / "store", "--kills", 0)
    assert result.exit_code == 1
    assert (tmp_path / "store" / "precious").read_text() == "x"


def test_the_table_has_every_row() -> None:
    row = Row("what", "os", 10, 2048, 0.5, [1000, 2000, 3000], [0.01, 0.03])
    table = table_of([row, Row("other")])
    assert table.row_count == 2
    assert [next(iter(column.cells)) for column in table.columns][2:6] == [
        "10",
        "2.0 KiB",
        "20",
        "2 µs",
    ]


@pytest.mark.parametrize(("part", "expected"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_percentiles(part: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), part) == expected
    assert percentile([], part) == 0


@pytest.mark.parametrize(
    ("duration_ns", "text"), [(12, "12 ns"), (1500, "1.5 µs"), (2.5e6, "2.5 ms"), (3e9, "3 s")]
)
def test_times(duration_ns: float, text: str) -> None:
    assert time_text(duration_ns) == text
