"""Files of the sink as earlier versions wrote them: a commit that one of those began is finished by this one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Journal, Staged, sink_directory
from tests.spark.sink.test_committer import log_of, make, some_bodies
from tests.spark.staged import stage_bodies

#: What later versions put into `pending.json`, of the commit and of each of its files.
ADDED = ("mixed", "largest_body")


def as_first(file: Staged) -> dict[str, Any]:
    """A staged file as the first version named it."""
    return {"path": file.path, "rows": file.rows, "chunks": [list(chunk) for chunk in file.chunks]}


def pending(begin: int, files: list[Staged], **more: Any) -> str:
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
    tmp_path: Path, rng: random.Random, appended: int, more: dict[str, Any]
) -> None:
    """`appended`: chunks that were in the log when its committer died, of three and four."""
    root = tmp_path / "s"
    make(root)
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
    text = pending(begin, files, **more)
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
def test_a_journal_without_something_is_named(tmp_path: Path, gone: str) -> None:
    """A plain KeyError came out of it."""
    root = tmp_path / "s"
    make(root)
    found = json.loads(pending(0, [stage_bodies(root, "1", [b"a"])]))
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
