"""Shards of bulk loads without Spark: named once, whatever dies, and nothing else is touched."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.sink.shards import (
    STAGED,
    abandon_shards,
    commit_shards,
    make_run,
    refuse_shards,
    shard_paths,
)
from rocketstore.spark.sink.store_access import file_lock
from rocketstore.tools import verify
from tests.spark.shard_stores import bodies_in, killed_at, make_shard
from tests.support.verifying import faults

STEPS = ("locked", "begun", "moved 0", "moved 1", "noted", "removed")
RUN, AGAIN = "a1", "b2"


def names(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if not name.startswith("shards."))


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step_and_done_again(tmp_path: Path, step: str) -> None:
    """The whole job is run again, with stores of its own: its messages are there once, in order."""
    first = [make_shard(tmp_path, RUN, n, [b"%d" % n, b"x"]) for n in range(2)]
    make_shard(tmp_path, RUN, 0, [b"lost the race"], "b")
    assert killed_at(step, tmp_path, RUN, first, "load")
    again = [make_shard(tmp_path, AGAIN, n, [b"%d" % n, b"x"]) for n in range(2)]
    assert commit_shards(str(tmp_path), AGAIN, again, writer="load") is (step == "locked")
    assert bodies_in(tmp_path) == [[b"0", b"x"], [b"1", b"x"]]
    left = [STAGED] if step in ("locked", "noted") else []  # of the dead: for the janitor
    assert names(tmp_path) == [*left, "shard-00000", "shard-00001"]
    assert all(faults(verify(tmp_path / f"shard-0000{n}")) == [] for n in range(2))


@pytest.mark.parametrize("step", STEPS[1:4])
def test_what_was_begun_is_finished_by_another_load(tmp_path: Path, step: str) -> None:
    first = [make_shard(tmp_path, RUN, n, [b"%d" % n]) for n in range(2)]
    assert killed_at(step, tmp_path, RUN, first, "load")
    abandon_shards(str(tmp_path), RUN)
    assert bodies_in(tmp_path) == []
    assert commit_shards(str(tmp_path), AGAIN, [make_shard(tmp_path, AGAIN, 0, [b"more"])])
    assert bodies_in(tmp_path) == [[b"0"], [b"1"], [b"more"]]
    assert names(tmp_path) == ["shard-00000", "shard-00001", "shard-00002"]


def test_loads_add_shards_and_versions_count(tmp_path: Path) -> None:
    """Without a name each load is one of its own; directories that are not named are left alone."""
    root = str(tmp_path)
    assert commit_shards(root, RUN, [make_shard(tmp_path, RUN, 0, [b"a"])], writer="w", version=3)
    (tmp_path / "shard-00007").mkdir()
    for version in (3, 1):
        again = [make_shard(tmp_path, AGAIN, 0, [b"no"])]
        assert not commit_shards(root, AGAIN, again, writer="w", version=version)
    for run in ("c", "d"):
        assert commit_shards(root, run, [make_shard(tmp_path, run, 0, [b"b"])])
    assert commit_shards(root, "e", [], writer="w", version=4)
    assert not commit_shards(root, "f", [], writer="w", version=4)
    assert bodies_in(tmp_path) == [[b"a"], [b"b"], [b"b"]]
    assert names(tmp_path) == ["shard-00000", "shard-00007", "shard-00008", "shard-00009"]
    found = json.loads((tmp_path / "shards.json").read_text())
    assert [shard["rows"] for shard in found["shards"]] == [1, 1, 1]
    assert found["writers"] == {"w": 4} and found["pending"] is None


def test_a_job_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    make_shard(tmp_path, RUN, 0, [b"a"])
    abandon_shards(str(tmp_path), RUN)
    abandon_shards(str(tmp_path), RUN)
    assert os.listdir(tmp_path) == [] and shard_paths(str(tmp_path)) is None


def test_a_shard_that_is_gone_is_named_before_anything_changes(tmp_path: Path) -> None:
    there, gone = (make_shard(tmp_path, RUN, n, [b"a"]) for n in range(2))
    (tmp_path / gone.name).rename(tmp_path / "elsewhere")
    with pytest.raises(SparkFaceError, match=r"^\[RS_STAGED_LOST\].*00001-a"):
        commit_shards(str(tmp_path), RUN, [there, gone])
    assert shard_paths(str(tmp_path)) is None and (tmp_path / there.name).exists()


def test_one_commit_at_a_time(tmp_path: Path) -> None:
    with (
        file_lock(tmp_path / "shards.lock", 1, "RS_SHARDS_LOCKED"),
        pytest.raises(SparkFaceError, match=r"RS_SHARDS_LOCKED.*shards\.lock"),
    ):
        commit_shards(str(tmp_path), RUN, [], lock_timeout_s=0.05)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"format": 2}',
        '{"format": 1, "shards": [{"name": "../x"}], "writers": {}, "pending": null}',
        '{"format": 1, "shards": [], "writers": {}, "pending": {"writer": null, "version": 0, '
        '"moves": [{"name": "shard-00000", "from": "../x"}]}}',
    ],
)
def test_a_manifest_that_is_damaged_is_named(tmp_path: Path, content: str) -> None:
    """Nothing is read, written or removed by it."""
    (tmp_path / "shards.json").write_text(content)
    shard = make_shard(tmp_path, RUN, 0, [b"a"])
    for call in (
        lambda: shard_paths(str(tmp_path)),
        lambda: commit_shards(str(tmp_path), RUN, [shard]),
        lambda: refuse_shards(str(tmp_path), "x"),
    ):
        with pytest.raises(SparkFaceError, match="RS_JOURNAL_DAMAGED"):
            call()
    abandon_shards(str(tmp_path), RUN)
    assert (tmp_path / shard.name).exists()


def test_runs_of_the_dead_go_when_they_are_old(tmp_path: Path) -> None:
    for run in ("c0ffee", "dead"):
        make_shard(tmp_path, run, 0, [b"a"])
    old = time.time() - 8 * 24 * 3600
    for place, _, files in os.walk(tmp_path / STAGED / "dead"):
        for name in (".", *files):
            os.utime(os.path.join(place, name), (old, old))
    commit_shards(str(tmp_path), RUN, [])
    assert os.listdir(tmp_path / STAGED) == ["c0ffee"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shards": "0"}, "shards = '0'"),
        ({"shards": "many"}, "shards = 'many'"),
        ({"shards": "2", "stagingPath": "x"}, "stagingPath"),
        ({"segmentBytes": "1m"}, "needs shards"),
        ({"shards": "2", "segmentBytes": "1"}, "segmentBytes = '1'"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], text: str) -> None:
    with pytest.raises(SparkFaceError, match=rf"^\[RS_BAD_OPTION\] .*{text}"):
        WriteOptions.parse({"path": "p", **options})
    assert WriteOptions.parse({"path": "p"}).shards is None
    assert WriteOptions.parse({"path": "p", "shards": "AUTO"}).shards == 0


# ---- the task's part, and reading: these need Arrow ----


def write(root: Path, batches: Any, partition: int = 0, **given: Any) -> Any:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from rocketstore.spark.sink.shard_writing import write_shard
    from rocketstore.spark.sink.staging import Routing

    routing = Routing(topic="t", queues=3, **given)
    if not (root / STAGED / RUN).exists():
        make_run(str(root), RUN)
    return write_shard(batches, root, RUN, partition, routing, 8 << 20)


def batch_of(bodies: list[Any]) -> Any:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})


def test_a_task_writes_a_store(tmp_path: Path) -> None:
    """Several files of the log; it was stopped cleanly, and is whole on disk before it is named."""
    bodies = [b"%06d" % n + bytes(2000) for n in range(10_000)]
    shard = write(tmp_path, [batch_of(bodies[:7000]), batch_of([]), batch_of(bodies[7000:])])
    assert (shard.rows, shard.size > 2 * (8 << 20)) == (10_000, True)
    with rocketstore.open(tmp_path / shard.name, "r") as store:
        assert store.recovery.mode == "clean"
        assert store.flushed_offset == store.end_offset == shard.size
        found = [m for q in range(3) for m in store.consumer("t", queue_id=q)]
    found.sort(key=lambda m: m.physical_offset)
    assert [m.body for m in found] == bodies
    assert [m.queue_id for m in found] == [n % 3 for n in range(10_000)]
    assert faults(verify(tmp_path / shard.name)) == []
    assert commit_shards(str(tmp_path), RUN, [shard])
    assert names(tmp_path) == ["shard-00000"]


def test_all_names_of_a_shard_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store sees to it by the end of its close: what a directory holds then, it held when it was last synced."""
    synced: dict[str, list[str]] = {}
    sync = syscalls.sync_directory

    def noted(directory: str) -> None:
        sync(directory)
        synced[directory] = sorted(os.listdir(directory))

    monkeypatch.setattr(syscalls, "sync_directory", noted)
    shard = write(tmp_path, [batch_of([b"%06d" % n + bytes(2000) for n in range(10_000)])])
    root = tmp_path / shard.name
    ours = root / "rocketstore"
    for place, directories, files in os.walk(root):
        names = sorted([*directories, *files])
        if names and Path(place) not in (ours / "live", ours / "tmp"):  # of open stores alone
            assert synced[place] == names, place
    assert {str(root / "commitlog"), str(root / "consumequeue" / "t" / "2")} <= set(synced)


def test_a_task_that_fails_or_has_nothing_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield batch_of([b"a"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write(tmp_path, broken())
    with pytest.raises(SparkFaceError, match="RS_BAD_ROW"):
        write(tmp_path, [batch_of([b"a"]), batch_of([None])])
    assert write(tmp_path, [batch_of([None])], drop_bad_rows=True) is None
    assert list(tmp_path.rglob("*.*")) == [] and list(tmp_path.rglob("0*")) == []


def test_a_task_whose_run_was_given_up_leaves_nothing(tmp_path: Path) -> None:
    """Whatever it was at when the run was removed behind its back: before its store was made, or within it, also where
    it makes all the rest of it."""

    def given_up(given: list[bytes], then: list[bytes]) -> Iterator[Any]:
        yield batch_of(given)
        assert abandon_shards(str(tmp_path), RUN)
        assert os.listdir(tmp_path) == []
        yield batch_of(then)

    with pytest.raises(SparkFaceError, match=r"RS_SHARD_FAILED.*the load was given up.*" + RUN):
        write(tmp_path, given_up([], [b"a"]))
    assert os.listdir(tmp_path) == []
    with contextlib.suppress(SparkFaceError):
        write(tmp_path, given_up([b"a"], [b"%06d" % n + bytes(2000) for n in range(10_000)]))
    assert os.listdir(tmp_path) == []


def test_rows_that_no_message_can_have_are_left_out_once(tmp_path: Path) -> None:
    """Those that only the encoder finds: the others of their batch are stored, and once."""
    good, large = [b"%d" % n for n in range(5)], bytes(1001)
    batches = [batch_of([large]), batch_of([*good[:2], large, *good[2:]]), batch_of([large])]
    small: dict[str, Any] = {"max_body_bytes": 1000}
    shard = write(tmp_path, batches, drop_bad_rows=True, **small)
    assert shard.rows == 5
    with rocketstore.open(tmp_path / shard.name, "r") as store:
        found = [m for q in range(3) for m in store.consumer("t", queue_id=q)]
    assert sorted(m.body for m in found) == good
    with pytest.raises(SparkFaceError, match="RS_BAD_ROW. row 5 of a partition: body: 1001 bytes"):
        write(tmp_path, [batch_of(good[:3]), batches[1]], 1, **small)
    assert write(tmp_path, [batch_of([large])], 2, drop_bad_rows=True, **small) is None
    made = (tmp_path / STAGED / RUN).glob("0*")
    assert [path.name[:5] for path in made] == ["00000"]


def test_a_store_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(SparkFaceError, match=r"^\[RS_SHARD_FAILED\] host=.*max_message_size_bytes"):
        write(tmp_path, [batch_of([b"a"])], max_body_bytes=9 << 20)
    assert list(tmp_path.rglob("0*")) == []


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    """A frame has all of them; what needs one order or one set of offsets says so."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from rocketstore.spark.jobs.reading import parts_of
    from rocketstore.spark.source.options import ReadOptions
    from rocketstore.spark.source.plan import plan_batch, read
    from rocketstore.spark.source.stream_progress import Progress

    def rows(**given: str) -> list[bytes]:
        options = ReadOptions.parse({"path": str(tmp_path), **given}, stream=False)
        scans, bounds = plan_batch(options)
        batches = [batch for scan in scans for batch in read(scan, options, bounds)]
        return [row["body"] for batch in batches for row in batch.to_pylist()]

    shards = [
        make_shard(tmp_path, RUN, n, [b"%d-%d" % (n, i) for i in range(50)]) for n in range(3)
    ]
    commit_shards(str(tmp_path), RUN, shards)
    expected = [b"%d-%d" % (n, i) for n in range(3) for i in range(50)]
    assert rows() == rows(topic="t", minPartitions="7") == expected
    assert rows(startingOffsets="latest") == rows(topic="none", failOnDataLoss="false") == []
    options = ReadOptions.parse({"path": str(tmp_path), "minPartitions": "7"}, stream=False)
    assert len(plan_batch(options)[0]) >= 7
    assert rows(queues="0") == expected
    for absent in ({"topic": "t,none"}, {"queues": "7"}):
        with pytest.raises(SparkFaceError, match="RS_NO_TOPIC_THERE"):
            rows(**absent)
    one = str(tmp_path / "shard-00001")
    for refused in (
        lambda: rows(startingOffsets='{"t": {"0": 1}}'),
        lambda: rows(endingOffsets='{"t": {"0": 1}}'),
        lambda: parts_of(tmp_path, 1 << 20),
        lambda: Progress(ReadOptions.parse({"path": str(tmp_path)}, stream=True)).initial(),
    ):
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION"):
            refused()
    assert len(parts_of(one, 1 << 20)) == 1
    assert Progress(ReadOptions.parse({"path": one}, stream=True)).initial()["phys"] > 0
    commit_shards(str(tmp_path / "none"), AGAIN, [])
    assert plan_batch(ReadOptions.parse({"path": str(tmp_path / "none")}, stream=False)) == ([], {})


def test_the_manifest_speaks_of_durable_names_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all directories between it and what tasks have written: a commit that was begun is finished out of them. And
    of those above, which tasks make where they are missing."""
    from rocketstore.spark.sink import shards

    done: list[Path] = []
    monkeypatch.setattr(shards, "sync_path", done.append)
    monkeypatch.setattr(shards, "write_durably", lambda path, _: done.append(path))
    assert commit_shards(str(tmp_path), RUN, [make_shard(tmp_path, RUN, 0, [b"a"])])
    begun = done.index(tmp_path / "shards.json")
    staged = tmp_path / shards.STAGED
    above = {path for path in tmp_path.parents if path.stat().st_dev == tmp_path.stat().st_dev}
    assert tmp_path.parent in above
    assert {staged / RUN, staged, tmp_path, *above} <= set(done[:begun])
