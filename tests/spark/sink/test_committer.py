"""The sink's committer without Spark: exactly once, whatever dies, and nothing lost in silence."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import shutil
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.cleanup import abandon, remove_orphans
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Journal, sink_directory
from rocketstore.spark.sink.store_access import journal_lock
from rocketstore.tools import verify
from tests.spark.staged import killed_at, make, stage_bodies
from tests.support.forking import fork
from tests.support.verifying import faults

STEPS = ("locked", "checked", "begun", "appended 0", "appended 3", "flushed", "noted", "discarded")
RESUMED_STEPS = ("locked", "resumed", "appended 4", "flushed", "noted", "discarded")


def log_of(root: Path) -> list[bytes]:
    """Bodies in the order of the log."""
    with rocketstore.open(root, "r") as store:
        found = [m for q in store.queues("t") for m in store.consumer("t", queue_id=q)]
    return [m.body for m in sorted(found, key=lambda m: m.physical_offset)]


def some_bodies(rng: random.Random, name: str, count: int) -> list[bytes]:
    return [f"{name}-{n} ".encode() + rng.randbytes(rng.randrange(300)) for n in range(count)]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step_and_done_again(root: Path, rng: random.Random, step: str) -> None:
    """The second try is Spark's: the same version, staged anew. Every message once, in order."""
    bodies = some_bodies(rng, "a", 75)
    first = [stage_bodies(root, "1", bodies[:40]), stage_bodies(root, "2", bodies[40:])]
    assert killed_at(step, root, "query", 7, first)
    again = [stage_bodies(root, "3", bodies[:40]), stage_bodies(root, "4", bodies[40:])]
    before = STEPS.index(step) < STEPS.index("begun")
    assert commit(str(root), "query", 7, again) is before
    assert log_of(root) == [b"first", *bodies]
    journal = Journal(root)
    assert journal.pending() is None
    assert [entry["version"] for entry in journal.commits("query")] == [7]
    left = [] if not before else [file.path for file in first]
    assert sorted(map(str, (sink_directory(root) / "staging").rglob("*.frames"))) == sorted(left)
    assert faults(verify(root)) == []


@pytest.mark.parametrize("step", RESUMED_STEPS)
def test_killed_again_while_the_rest_is_appended(root: Path, rng: random.Random, step: str) -> None:
    """Another writer puts messages between the deaths: they are neither lost nor taken for ours."""
    bodies = some_bodies(rng, "a", 75)
    assert killed_at("appended 2", root, "query", 0, [stage_bodies(root, "1", bodies)])
    with rocketstore.open(root, durability="os") as store:
        store.writer("t", queue_id=1).put(b"other")
    assert killed_at(step, root, "another", 0, [stage_bodies(root, "2", [b"more"])])
    with rocketstore.open(root, durability="os") as store:
        store.writer("t", queue_id=1).put(b"third")
    commit(str(root), "another", 0, [stage_bodies(root, "3", [b"more"])])
    found = log_of(root)
    assert [body for body in found if body.startswith(b"a-")] == bodies
    assert sorted(body for body in found if not body.startswith(b"a-")) == [
        b"first", b"more", b"other", b"third"
    ]  # fmt: skip
    assert found[:31] == [b"first", *bodies[:30]]
    assert faults(verify(root)) == []


def test_a_committed_version_is_not_appended_again(root: Path) -> None:
    assert commit(str(root), "q", 3, [stage_bodies(root, "1", [b"a", b"b"])])
    for version in (3, 2, 0):
        assert not commit(str(root), "q", version, [stage_bodies(root, "2", [b"a", b"b"])])
    assert commit(str(root), "p", 3, [stage_bodies(root, "3", [b"c"])])
    assert commit(str(root), "q", 4, [stage_bodies(root, "4", [b"d"])])
    assert log_of(root) == [b"first", b"a", b"b", b"c", b"d"]
    commits = Journal(root).commits("q")
    assert [(c["version"], c["rows"]) for c in commits] == [(3, 2), (4, 1)]
    assert commits[0]["end"] <= commits[1]["begin"] < commits[1]["end"]


def test_a_store_held_elsewhere_is_named(root: Path) -> None:
    staged = stage_bodies(root, "1", [b"a"])
    with (
        rocketstore.open(root, durability="os"),
        pytest.raises(SparkFaceError, match=r"^\[RS_STORE_LOCKED\].*lockTimeoutS"),
    ):
        commit(str(root), "q", 0, [staged], lock_timeout_s=0.2)
    assert commit(str(root), "q", 0, [staged])


@pytest.mark.parametrize("when", ["before", "pending"])
@pytest.mark.parametrize("fault", ["gone", "cut", "changed"])
def test_staged_files_that_are_not_as_written_are_refused(
    root: Path, fault: str, when: str
) -> None:
    """Nothing is appended beyond the fault, and the next try says the same: no silent loss."""
    bodies = [b"%d" % n for n in range(40)]
    staged = stage_bodies(root, "1", bodies)
    if when == "pending":
        assert killed_at("appended 0", root, "q", 0, [staged])
    path = Path(staged.path)
    if fault == "gone":
        path.unlink()
    elif fault == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        content = bytearray(path.read_bytes())
        content[-30] ^= 1
        path.write_bytes(content)
    code = "RS_STAGED_LOST" if fault == "gone" else "RS_STAGED_DAMAGED"
    for _ in range(2):
        with pytest.raises(SparkFaceError, match=code):
            commit(str(root), "q", 0, [staged])
    assert set(log_of(root)) <= {b"first", *bodies[:30]}


def test_a_store_that_lost_its_end_is_named(tmp_path: Path) -> None:
    root, other = tmp_path / "s", tmp_path / "other"
    make(root)
    make(other)
    commit(str(root), "q", 0, [stage_bodies(root, "1", [bytes(500)] * 20)])
    assert killed_at("begun", root, "q", 1, [stage_bodies(root, "2", [b"x"])])
    (sink_directory(root)).rename(sink_directory(other))
    with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED"):
        commit(str(other), "q", 1, [])


@pytest.mark.parametrize("content", [b"{", b"\xff"])
def test_a_damaged_journal_is_named(root: Path, content: bytes) -> None:
    commit(str(root), "q", 0, [stage_bodies(root, "1", [b"x"])])
    next((sink_directory(root) / "writers").glob("*.json")).write_bytes(content)
    with pytest.raises(SparkFaceError, match="RS_JOURNAL_DAMAGED"):
        commit(str(root), "q", 0, [stage_bodies(root, "2", [b"x"])])


def test_a_body_that_the_store_does_not_take_is_refused(root: Path) -> None:
    """Files of 16 KiB: nothing is appended, and the next commit is not held up."""
    staged = stage_bodies(root, "1", [b"x", bytes(20_000)])
    for known in (20_000, 0):  # 0: a task of an older release does not say it
        file = dataclasses.replace(staged, largest_body=known)
        with pytest.raises(SparkFaceError, match=r"^\[RS_REFUSED\]"):
            commit(str(root), "q", 0, [file])
    assert Journal(root).pending() is None
    assert commit(str(root), "p", 0, [stage_bodies(root, "2", [b"y"])])
    assert log_of(root) == [b"first", b"y"]


def test_a_store_that_fails_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark keeps the text of an error alone. The next one finishes the commit."""
    staged = stage_bodies(root, "1", [b"a", b"b"])

    def fail(*_: object, **__: object) -> None:
        raise rocketstore.StoreFailedError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(rocketstore.Store, "put_frames", fail)
        with pytest.raises(
            SparkFaceError, match=rf"RS_WRITE_FAILED\] host=\S+ path={root}: .*no room"
        ):
            commit(str(root), "q", 0, [staged])
    assert Path(staged.path).exists()
    assert not commit(str(root), "q", 0, [staged])
    assert log_of(root) == [b"first", b"a", b"b"]


def test_a_body_larger_than_the_default_is_appended(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with rocketstore.open(root, commit_log_file_size_bytes=16 << 20, index_enabled=False):
        pass
    large = dataclasses.replace(stage_bodies(root, "1", [bytes(5 << 20)]), largest_body=5 << 20)
    assert commit(str(root), "q", 0, [large])
    assert [len(body) for body in log_of(root)] == [5 << 20]


def test_orphans_go_when_they_are_old(root: Path) -> None:
    staged = Path(stage_bodies(root, "1", [b"x"]).path)
    assert remove_orphans(str(root)) == 0
    assert remove_orphans(str(root), age_s=-60) == 1
    assert not staged.exists() and not staged.parent.exists()


def test_frames_of_a_commit_under_way_are_no_orphans(tmp_path: Path) -> None:
    """However old: whoever appends next finishes it, in another directory too, or can never write again."""
    root, elsewhere = tmp_path / "s", tmp_path / "elsewhere"
    make(root)
    bodies = [b"%d" % n for n in range(40)]
    staged, orphan = stage_bodies(root, "1", bodies), stage_bodies(root, "2", [b"x"])
    assert killed_at("appended 1", root, "query", 0, [staged])
    assert remove_orphans(str(root), age_s=-60) == 1
    assert Path(staged.path).exists() and not Path(orphan.path).exists()
    elsewhere.symlink_to(sink_directory(root) / "staging")
    assert remove_orphans(str(root), staging=str(elsewhere), age_s=-60) == 0
    assert commit(str(root), "another", 0, [stage_bodies(root, "3", [b"more"])])
    assert log_of(root) == [b"first", *bodies, b"more"]


def test_what_is_noted_of_a_commit_under_way_stays(tmp_path: Path) -> None:
    """Without it nobody would know that the commit is done, whose frames are gone."""
    root, writer = tmp_path / "s", f"batch-{uuid.uuid4()}"
    make(root)
    assert killed_at("discarded", root, writer, 0, [stage_bodies(root, "1", [b"x"])])
    assert remove_orphans(str(root), age_s=-60) == 0
    assert commit(str(root), "another", 0, [stage_bodies(root, "2", [b"more"])])
    assert log_of(root) == [b"first", b"x", b"more"]
    assert remove_orphans(str(root), age_s=-60) == 1


def test_nothing_is_an_orphan_where_the_commit_under_way_cannot_be_read(root: Path) -> None:
    staged = Path(stage_bodies(root, "1", [b"x"]).path)
    (sink_directory(root) / "pending.json").write_text("{")
    assert remove_orphans(str(root), age_s=-60) == 0
    assert staged.exists()


def test_orphans_of_every_kind(tmp_path: Path) -> None:
    """Rows of the dead; files that have their name, and those of others, stay."""
    root, elsewhere = tmp_path / "s", tmp_path / "elsewhere"
    make(root)
    sink = sink_directory(root)
    kept = [sink / "bad_rows" / "kept.parquet", elsewhere / "kept.parquet"]
    kept += [sink / "bad_rows" / "_staged" / "notes.txt", elsewhere / "run" / "notes.txt"]
    gone = [sink / "bad_rows" / "_staged" / "a.parquet"]
    custom = [elsewhere / "_staged" / "a.parquet", elsewhere / "run" / "a.frames"]
    for file in (*kept, *gone, *custom):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert remove_orphans(str(root), staging=str(elsewhere), bad_rows=str(elsewhere)) == 0
    assert remove_orphans(str(root), age_s=-60) == len(gone)
    assert not any(file.exists() for file in gone) and all(file.exists() for file in custom)
    given = {"staging": str(elsewhere), "bad_rows": str(elsewhere)}
    assert remove_orphans(str(root), age_s=-60, **given) == len(custom)
    assert all(file.exists() for file in kept)


def test_no_commit_fails_for_what_cannot_be_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a staging directory of several users files belong to others. It was committed all the same: who
    wrote it again would have it twice."""
    staged, other = stage_bodies(root, "1", [b"a"]), stage_bodies(root, "2", [b"b"])
    unlink = os.unlink

    def refuse(path: object, *more: Any, **others: Any) -> None:
        if str(path).endswith(".frames"):
            raise PermissionError(errno.EPERM, "not yours", str(path))
        unlink(path, *more, **others)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        assert commit(str(root), "q", 0, [staged])
        assert remove_orphans(str(root), age_s=-60) == 0
    assert Journal(root).pending() is None
    assert Path(staged.path).exists() and Path(other.path).exists()
    assert log_of(root) == [b"first", b"a"]


def test_a_directory_that_goes_while_it_is_cleaned(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of another write has just removed its own."""
    run = Path(stage_bodies(root, "1", [b"a"]).path).parent
    listed = Path.iterdir

    def gone(path: Path) -> Any:
        if path == run:
            shutil.rmtree(path)
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", gone)
    assert remove_orphans(str(root), age_s=-60) == 0
    assert not run.exists()


def test_destroy_takes_the_sink_with_it(root: Path) -> None:
    commit(str(root), "q", 0, [stage_bodies(root, "1", [b"x"])])
    with rocketstore.open(root) as store:
        store.destroy()
    assert not root.exists()


def test_stores_that_share_a_staging_path_keep_their_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write cleans up behind the dead of its own store, and knows what that one's commits need."""
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    from rocketstore.spark.sink.options import WriteOptions
    from rocketstore.spark.sink.sink import staging_of

    places = {}
    for name in ("a", "b"):
        make(tmp_path / name)
        given = {
            "path": str(tmp_path / name),
            "topic": "t",
            "stagingPath": str(tmp_path / "shared"),
        }
        places[name] = staging_of(WriteOptions.parse(given))
    staged = stage_bodies(tmp_path / "b", "1", [b"%d" % n for n in range(40)])
    moved = Path(places["b"]) / "run" / "1.frames"
    moved.parent.mkdir(parents=True)
    os.rename(staged.path, moved)
    staged = dataclasses.replace(staged, path=str(moved))
    assert killed_at("appended 1", tmp_path / "b", "query", 0, [staged])
    orphan = Path(places["a"]) / "run" / "2.frames"
    orphan.parent.mkdir(parents=True)
    orphan.touch()
    assert remove_orphans(str(tmp_path / "a"), staging=places["a"], age_s=-60) == 1
    assert moved.exists() and not orphan.exists()
    assert remove_orphans(str(tmp_path / "b"), staging=places["b"], age_s=-60) == 0
    # A second name of a store is the same store.
    (tmp_path / "c").symlink_to(tmp_path / "b")
    given = {"path": str(tmp_path / "c"), "topic": "t", "stagingPath": str(tmp_path / "shared")}
    assert staging_of(WriteOptions.parse(given)) == places["b"]


def test_what_was_trimmed_before_it_was_finished_is_not_written_again(
    root: Path, rng: random.Random
) -> None:
    """Nobody can tell how much of it was in the log: readers may have had it."""
    bodies = some_bodies(rng, "a", 300)
    assert killed_at("appended 25", root, "query", 0, [stage_bodies(root, "1", bodies)])
    with rocketstore.open(root, durability="os") as store:
        begin = store.begin_offset
        store.trim(before_offset=store.end_offset - 1)
        assert store.begin_offset > begin
    before = log_of(root)
    with pytest.raises(SparkFaceError, match=r"^\[RS_DATA_LOST\] .*pending\.json"):
        commit(str(root), "query", 1, [stage_bodies(root, "2", [b"more"])])
    assert log_of(root) == before
    (sink_directory(root) / "pending.json").unlink()
    assert commit(str(root), "query", 1, [stage_bodies(root, "2", [b"more"])])
    assert log_of(root) == [*before, b"more"]


def test_writes_without_a_name_are_forgotten_after_a_week(root: Path) -> None:
    """Each has a file of its own; those that somebody named stay, for they may be written again."""
    named = ["etl", "batch-7", f"etl-batch-{uuid.uuid4()}"]
    for number, writer in enumerate([*named, f"batch-{uuid.uuid4()}", f"batch-{uuid.uuid4()}"]):
        assert commit(str(root), writer, 0, [stage_bodies(root, f"{number}", [b"x"])])
    (sink_directory(root) / "writers" / "odd.json").write_text("[]")
    assert remove_orphans(str(root)) == 0
    assert remove_orphans(str(root), age_s=-60) == 2
    assert [len(Journal(root).commits(writer)) for writer in named] == [1, 1, 1]
    assert len(list((sink_directory(root) / "writers").iterdir())) == 4


def test_a_write_that_is_given_up_keeps_what_was_begun(root: Path, rng: random.Random) -> None:
    """Spark drops the files of a commit that failed; one that was begun still needs them."""
    bodies = some_bodies(rng, "a", 75)
    staged = [stage_bodies(root, "1", bodies)]
    assert killed_at("appended 3", root, "query", 0, staged)
    assert not abandon(str(root), staged)
    assert not commit(str(root), "query", 0, [stage_bodies(root, "2", bodies)])
    unasked = [stage_bodies(root, "3", [b"b"])]
    assert abandon(str(root), unasked) and not Path(unasked[0].path).exists()
    assert log_of(root) == [b"first", *bodies]


def test_a_forked_child_does_not_keep_the_lock(root: Path) -> None:
    with journal_lock(str(root)):
        child = fork()
        if child == 0:
            signal.pause()
    with journal_lock(str(root), 0.0):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
