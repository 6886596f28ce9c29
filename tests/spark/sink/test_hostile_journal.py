"""State files of the sink that earlier versions wrote, which are finished, or somebody else: an error with a code."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.cleanup import remove_orphans
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Journal, Staged, file_name, sink_directory
from rocketstore.spark.sink.serve import answer_commit, answer_offsets, serve
from rocketstore.spark.sink.shards import shard_paths
from tests.spark.sink.test_committer import log_of, some_bodies
from tests.spark.staged import make, stage_bodies

SECRET = b"precious " * 20
DAMAGED = "RS_JOURNAL_DAMAGED"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "s"
    make(root)
    Journal(root)
    return root


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret.txt"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


def frames(path: object, *, rows: Any = 0, chunks: Any = ()) -> dict[str, Any]:
    return {"path": path, "rows": rows, "chunks": chunks}


def pending(**fields: Any) -> str:
    known = {"format": 1, "writer": "w", "version": 0, "begin": 0, "files": [], "present": 0}
    known |= {"reuse": "skip", "wait_ms": 0}  # of a call
    return json.dumps({**known, **fields})


def commits(root: Path, *versions: object) -> None:
    """As the journal notes them of the writer `w`."""
    noted = [{"version": n, "begin": 0, "end": 0, "rows": 0} for n in versions]
    file = sink_directory(root) / "writers" / f"{file_name('w')}.json"
    file.write_text(json.dumps({"format": 1, "writer": "w", "commits": noted}))


def refused(root: Path) -> None:
    with pytest.raises(SparkFaceError, match=r"^\[RS_JOURNAL_DAMAGED\]"):
        commit(str(root), "q", 0, [stage_bodies(root, "1", [b"x"])])
    assert log_of(root) == [b"first"]


def test_a_file_that_is_no_staged_one_is_not_removed(root: Path, secret: Path) -> None:
    """The commit counts as done, so that its files would be removed unread."""
    commits(root, 5)
    chunks = [[len(SECRET), 1, zlib.crc32(SECRET)]]
    (sink_directory(root) / "pending.json").write_text(
        pending(files=[frames(str(secret), rows=1, chunks=chunks)])
    )
    refused(root)
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize(
    "fields",
    [
        {"begin": -1},
        {"begin": 1e300},
        {"present": True},
        {"version": "one"},
        {"files": [frames("/a.frames", rows=-1)]},
        {"files": [frames("/a.frames", chunks=[[4, 10**18, 0]])]},
        {"files": [frames("/a.frames", chunks=[[-4, 1, 0], [8, 1, 0]])]},
        {"files": [frames("/a.frames", chunks=[[4, 1]])]},
        {"files": [frames("/a\0.frames")]},
        {"files": [frames(7)]},
        {"files": 7},
        {"files": [["path"]]},
    ],
    ids=repr,
)
def test_numbers_and_names_are_checked(root: Path, fields: dict[str, Any]) -> None:
    (sink_directory(root) / "pending.json").write_text(pending(**fields))
    refused(root)
    (sink_directory(root) / "pending.json").unlink()
    with rocketstore.open(root) as store:
        said = answer_commit(store, pending(**fields).encode())
        assert said.get("code") == (None if {"begin", "present"} & set(fields) else DAMAGED)


@pytest.mark.parametrize(
    "asked",
    [b"", b"\xff", b"[]", b"7", b"{}", b"[" * 100_000, b'{"writer": "w", "version": 1e999}'],
    ids=lambda asked: repr(asked[:9]),
)
def test_calls_that_no_sink_makes(root: Path, asked: bytes) -> None:
    with rocketstore.open(root) as store:
        for answer in (answer_commit, answer_offsets):
            assert answer(store, asked)["code"] == DAMAGED
        assert store.groups() == []
    assert log_of(root) == [b"first"]


def deep(path: Path) -> None:
    path.write_text("[" * 200_000 + "]" * 200_000)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def listed(path: Path) -> None:
    path.write_text("[1, 2]")


@pytest.mark.parametrize("spoil", [deep, pipe, huge, listed])
@pytest.mark.parametrize("name", ["pending.json", "writers"])
def test_odd_files_end_in_an_error(root: Path, name: str, spoil: Any) -> None:
    """No wait for who writes into a pipe, no terabyte in memory."""
    commits(root, 0)
    writers = sink_directory(root) / "writers"
    file = sink_directory(root) / name
    spoil(file if name != "writers" else writers / f"{file_name('q')}.json")
    refused(root)


@pytest.mark.parametrize("version", ["1", None, 1.5, True])
def test_versions_are_numbers(root: Path, version: object) -> None:
    commits(root, version)
    with pytest.raises(SparkFaceError, match="RS_JOURNAL_DAMAGED"):
        commit(str(root), "w", 2, [stage_bodies(root, "1", [b"x"])])


@pytest.mark.parametrize("spoil", [deep, pipe, huge, listed])
def test_odd_manifests_of_shards_end_in_an_error(tmp_path: Path, spoil: Any) -> None:
    spoil(tmp_path / "shards.json")
    with pytest.raises(SparkFaceError, match="RS_JOURNAL_DAMAGED"):
        shard_paths(str(tmp_path))


def test_links_in_place_of_the_sinks_files_are_not_followed(root: Path, secret: Path) -> None:
    sink = sink_directory(root)
    (sink / "pending.tmp").symlink_to(secret)
    (sink / "writers" / f"{file_name('q')}.tmp").symlink_to(secret)
    assert commit(str(root), "q", 0, [stage_bodies(root, "1", [b"x"])])
    assert secret.read_bytes() == SECRET
    (sink / "journal.lock").unlink()
    (sink / "journal.lock").symlink_to(secret.with_name("new"))
    with pytest.raises((SparkFaceError, OSError)):
        commit(str(root), "q", 1, [stage_bodies(root, "2", [b"x"])])
    assert not secret.with_name("new").exists()


def test_clean_up_removes_nothing_that_is_not_below_the_sink(root: Path, secret: Path) -> None:
    old = time.time() - 30 * 24 * 3600
    report = secret.with_name("report.json")
    report.write_text("{}")
    os.utime(report, (old, old))
    sink = sink_directory(root)
    (sink / "staging").mkdir()
    (sink / "staging" / "run").symlink_to(secret.parent)
    assert remove_orphans(str(root)) == 0
    assert report.exists()
    # A place that the caller names may be a link.
    (secret.parent / "run").mkdir()
    left = secret.parent / "run" / "1.frames"
    left.touch()
    os.utime(left, (old, old))
    (root.parent / "link").symlink_to(secret.parent)
    assert remove_orphans(str(root), staging=str(root.parent / "link")) == 1
    assert report.exists()


def test_what_is_sound_is_still_taken(root: Path) -> None:
    """The checks refuse nothing that the sink writes."""
    assert commit(str(root), "q", 0, [stage_bodies(root, "1", [b"x", b"y"])])
    assert not commit(str(root), "q", 0, [])
    with rocketstore.open(root, "r") as store:
        assert [m.body for m in store.consumer("t", queue_id=1)] == [b"y"]


#: What later versions put into `pending.json`, of the commit and of each of its files.
ADDED = ("mixed", "largest_body")


def as_first(file: Staged) -> dict[str, Any]:
    """A staged file as the first version named it."""
    return {"path": file.path, "rows": file.rows, "chunks": [list(chunk) for chunk in file.chunks]}


def begun(begin: int, files: list[Staged], **more: Any) -> str:
    """The whole file as the first version wrote it, one value after the other."""
    return json.dumps(
        {
            "format": 1,
            "writer": "etl",
            "version": 7,
            "begin": begin,
            "files": [as_first(file) for file in files],
            "present": 0,
            **more,
        }
    )


@pytest.mark.parametrize("appended", [0, 2, 3, 7])
@pytest.mark.parametrize("more", [{}, {"mixed": False}], ids=["first", "with mixed"])
def test_a_commit_that_was_begun_is_finished(
    root: Path, rng: random.Random, appended: int, more: dict[str, Any]
) -> None:
    """`appended`: chunks that were in the log when its committer died, of three and four."""
    bodies = some_bodies(rng, "a", 70)
    files = [stage_bodies(root, "1", bodies[:30]), stage_bodies(root, "2", bodies[30:])]
    with rocketstore.open(root, durability="os") as store:
        begin, left = store.end_offset, appended
        for file in files:
            content, place = Path(file.path).read_bytes(), 0
            for size, _, _ in file.chunks[: max(0, left)]:
                store.put_frames(content[place : place + size])
                place += size
            left -= len(file.chunks)
    text = begun(begin, files, **more)
    assert not any(name in text for name in ADDED if name not in more)
    (sink_directory(root) / "pending.json").write_text(text)
    assert commit(str(root), "next", 0, [stage_bodies(root, "3", [b"next"])])
    assert log_of(root) == [b"first", *bodies, b"next"]
    assert Journal(root).pending() is None
    assert [(c["version"], c["rows"]) for c in Journal(root).commits("etl")] == [(7, 70)]
    assert not any(Path(file.path).exists() for file in files)
    again = [stage_bodies(root, "4", bodies)]
    assert not commit(str(root), "etl", 7, again)
    assert log_of(root) == [b"first", *bodies, b"next"]


@pytest.mark.parametrize("gone", ["writer", "version", "begin", "files", "present"])
def test_a_journal_without_something_is_named(root: Path, gone: str) -> None:
    """A plain KeyError came out of it."""
    found = json.loads(begun(0, [stage_bodies(root, "1", [b"a"])]))
    del found[gone]
    (sink_directory(root) / "pending.json").write_text(json.dumps(found))
    with pytest.raises(SparkFaceError, match=rf"RS_JOURNAL_DAMAGED\] .*pending.json: .*{gone}"):
        commit(str(root), "etl", 8, [stage_bodies(root, "2", [b"b"])])
    (sink_directory(root) / "pending.json").unlink()
    assert commit(str(root), "etl", 8, [stage_bodies(root, "2", [b"b"])])
    for broken in ({"format": 1, "writer": "etl"}, {"format": 1, "commits": [{"version": 1}]}, [1]):
        next((sink_directory(root) / "writers").glob("*.json")).write_text(json.dumps(broken))
        with pytest.raises(SparkFaceError, match=r"RS_JOURNAL_DAMAGED\] .*writers"):
            commit(str(root), "etl", 9, [stage_bodies(root, "3", [b"c"])])


def test_frames_that_are_not_whole_bar_no_other_commit(root: Path) -> None:
    """Nothing of them is appended, or begun: also of a file without end that lies about its chunks."""
    damaged = stage_bodies(root, "1", [b"%d" % n for n in range(30)])
    with open(damaged.path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    endless = stage_bodies(root, "2", [b"a"])
    os.truncate(endless.path, 1 << 42)
    endless = dataclasses.replace(endless, chunks=((1 << 42, 1, 0),))
    with rocketstore.open(root, durability="os") as store, serve(store):
        for staged, code in (
            (damaged, "RS_STAGED_DAMAGED"),
            (endless, "RS_JOURNAL_DAMAGED.*chunk"),
        ):
            with pytest.raises(SparkFaceError, match=code):
                commit(str(root), "query", 0, [staged])
        assert commit(str(root), "query", 0, [stage_bodies(root, "3", [b"a"])])
    assert log_of(root)[-1:] == [b"a"]
