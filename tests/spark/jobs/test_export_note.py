"""Exports that go on where the last one ended, without a JVM."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from tests.spark.reading import everything, make_store
from tests.support.small_store import open_small

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")


class LocalSession:
    """Gives the rows of a job as they are."""

    @staticmethod
    def createDataFrame(rows: list[Any], schema: str) -> list[Any]:
        return rows


@pytest.fixture(autouse=True)
def parts_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketstore.spark.jobs.reading import coded_rows

    def run(session: Any, parts: Any, work: Any) -> list[Any]:
        return [row for part in parts for row in coded_rows(work, part)]

    monkeypatch.setattr(sys.modules["rocketstore.spark.jobs.export"], "run_parts", run)


def export(root: Path, **options: Any) -> int:
    """Messages that a run has exported."""
    session: Any = LocalSession()
    given = {"mode": "continue", "split_bytes": 20_000, **options}
    rows: Any = jobs.export(session, root / "s", str(root / "out"), **given)
    return sum(row[3] for row in rows)


def offsets(root: Path) -> list[int]:
    import pyarrow.dataset as ds

    table = ds.dataset(root / "out", format="parquet", partitioning="hive").to_table()
    return sorted(table["physical_offset"].to_pylist())


def put(root: Path, count: int, topic: str = "orders") -> None:
    with rocketstore.open(root / "s", durability="os", index_enabled=False) as store:
        for number in range(count):
            store.writer(topic).put(b"%d" % number)


def test_every_run_adds_what_came(tmp_path: Path, rng: random.Random) -> None:
    assert export_of(tmp_path, rng) == 100
    assert export(tmp_path) == 0
    put(tmp_path, 7)
    assert export(tmp_path) == 7
    assert offsets(tmp_path) == [m.physical_offset for m in everything(tmp_path / "s")]
    with pytest.raises(SparkFaceError, match="RS_TARGET_NOT_EMPTY"):
        export(tmp_path, mode="error")


def export_of(root: Path, rng: random.Random) -> int:
    make_store(root / "s", rng, 100)
    return export(root)


def test_an_archive_is_exported_as_it_grows(tmp_path: Path, rng: random.Random) -> None:
    make_store(tmp_path / "s", rng, 100)
    uri, session = (tmp_path / "archive").as_uri(), LocalSession()
    given: dict[str, Any] = {"mode": "continue", "split_bytes": 20_000}
    for more, count in ((0, 100), (0, 0), (7, 7)):
        put(tmp_path, more)
        rocketstore.ship(tmp_path / "s", uri, tail=True)
        rows: Any = jobs.export(session, uri, str(tmp_path / "out"), **given)  # type: ignore[arg-type]
        assert sum(row[3] for row in rows) == count
    assert offsets(tmp_path) == [m.physical_offset for m in everything(tmp_path / "s")]


def test_a_log_that_is_cut_while_it_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a replica opens again, which its master cuts: it grows beyond the place before the run ends."""
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.recovery.progress import order_cut
    from rocketstore.spark.jobs.parquet_files import Target

    put(tmp_path, 20)
    at = rocketstore.scan(tmp_path / "s").end_offset
    put(tmp_path, 20)
    keep = Target.keep

    def late(place: Target, rows: list[Any], *, synced: bool) -> list[Any]:
        order_cut(StoreLayout(tmp_path / "s"), at)
        put(tmp_path, 60)
        return keep(place, rows, synced=synced)

    monkeypatch.setattr(Target, "keep", late)
    assert export(tmp_path) == 40
    monkeypatch.undo()
    with pytest.raises(SparkFaceError, match="RS_BAD_CHECKPOINT"):
        export(tmp_path)


class KilledError(BaseException):
    pass


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts down: a step at which it is 0 is the last of a run, and is not made. Steps are notes and
    moves; what a run tidies up when it fails stays, as after a kill."""
    from rocketstore.spark.jobs.export import ExportNote
    from rocketstore.spark.jobs.parquet_files import Target

    left = [1000]
    write = ExportNote.write

    def step() -> None:
        if left[0] == 0:
            raise KilledError
        left[0] -= 1

    def stepped(note: ExportNote, place: Target) -> None:
        step()
        write(note, place)

    def keep(place: Target, rows: list[Any], *, synced: bool) -> list[Any]:
        assert synced
        for row in rows:
            step()
            final = Path(place.uri, row[1])
            final.parent.mkdir(parents=True, exist_ok=True)
            Path(row[0]).rename(final)
        return [row[1:] for row in rows]

    monkeypatch.setattr(ExportNote, "write", stepped)
    monkeypatch.setattr(Target, "keep", keep)
    return left


def test_a_run_that_is_killed_gives_nothing_twice(
    tmp_path: Path, rng: random.Random, steps: list[int]
) -> None:
    assert export_of(tmp_path, rng) == 100
    assert steps[0] < 1000 - 3
    shutil.copytree(tmp_path / "out", tmp_path / "before")
    for topic in ("orders", "events", "more"):
        put(tmp_path, 5, topic)
    wanted = [m.physical_offset for m in everything(tmp_path / "s")]
    for number in itertools.count():
        shutil.rmtree(tmp_path / "out")
        shutil.copytree(tmp_path / "before", tmp_path / "out")
        steps[0] = number
        with contextlib.suppress(KilledError):
            export(tmp_path)
            break
        steps[0] = 1000
        export(tmp_path)
        assert offsets(tmp_path) == wanted, number
    assert number == 5  # the files of three topics, and a note before and after
    assert offsets(tmp_path) == wanted


def test_another_choice_is_refused(tmp_path: Path, rng: random.Random) -> None:
    """Its messages of the runs before would be missing."""
    export_of(tmp_path, rng)
    for other in ({"topics": "orders"}, {"columns": ["body"]}, {"decompress": False}):
        with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION.*the runs before had "):
            export(tmp_path, **other)
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*error, append or continue"):
        export(tmp_path, mode="overwrite")


def test_files_without_a_note_are_refused(tmp_path: Path, rng: random.Random) -> None:
    make_store(tmp_path / "s", rng, 30)
    export(tmp_path, mode="error")
    with pytest.raises(SparkFaceError, match=r"RS_TARGET_NOT_EMPTY.*no _export.json says of what"):
        export(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"done": {"version": 1}},
        {"done": {"version": 9}},
        {"pending": ["../../etc/passwd"]},
        {"pending": ["topic=a/../../x.parquet"]},
        {"pending": [7]},
        {"chosen": 7},
        None,
    ],
)
def test_a_note_that_is_none(tmp_path: Path, rng: random.Random, wrong: Any) -> None:
    export_of(tmp_path, rng)
    note = tmp_path / "out" / "_export.json"
    note.write_text("{" if wrong is None else json.dumps(json.loads(note.read_text()) | wrong))
    with pytest.raises(SparkFaceError, match=r"RS_BAD_CHECKPOINT.*_export.json.*another target"):
        export(tmp_path)


def test_another_log_is_refused(tmp_path: Path, rng: random.Random) -> None:
    export_of(tmp_path, rng)
    shutil.rmtree(tmp_path / "s")
    make_store(tmp_path / "s", rng, 200)
    with pytest.raises(SparkFaceError, match="RS_BAD_CHECKPOINT.*is store") as caught:
        export(tmp_path)
    assert "after=" not in str(caught.value)


def test_what_was_trimmed_before_is_lost(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", durability="os", index_enabled=False) as store:
        store.writer("orders").put(b"x")
    export(tmp_path)
    with open_small(tmp_path / "s", durability="os", index_enabled=False) as store:
        for _ in range(100):
            end = store.writer("orders").put(b"x" * 100).end_offset
        store.wait_flushed(end, 60)
        store.trim(before_offset=end)
    with pytest.raises(SparkFaceError, match="RS_DATA_LOST.*was removed before it was read"):
        export(tmp_path)


def test_what_may_be_lost_is_not_exported(tmp_path: Path) -> None:
    still = {"flush_interval_ms": 3_600_000, "flush_thorough_interval_ms": 3_600_000}
    with open_small(tmp_path / "s", durability="os", index_enabled=False, **still) as store:
        put = store.writer("orders").put(b"x")
        assert store.flushed_offset < put.end_offset
        assert export(tmp_path) == 0
        store.wait_flushed(put.end_offset, 60)
        assert export(tmp_path) == 1
