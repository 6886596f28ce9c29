"""A directory of shards: stores that tasks wrote side by side, and the manifest that says which
count.

    shards.json          the shards in their order, and how far each writer has come; a shard that it does
                         not name does not exist for readers
    shard-00000/ …       stores, each with offsets and an order of its own
    _staged/<run>/       what tasks write, until the manifest has it; the driver makes it, and a run whose
                         directory is gone is over: its tasks find no place any more
    shards.lock          held by the process that changes the manifest

A commit is noted as `pending` with all its renames before the first of them; from then on it is
finished by the next process that commits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from rocketstore.archive import sync_path
from rocketstore.spark.errors import SparkFaceError, bad_option, coded_errors
from rocketstore.spark.sink.journal import (
    coded_damage,
    read_state,
    reused,
    whole_number,
    write_durably,
)
from rocketstore.spark.sink.store_access import Step, file_lock, no_step

__all__ = [
    "STAGED",
    "Shard",
    "abandon_shards",
    "commit_shards",
    "committed_shards",
    "make_run",
    "refuse_shards",
    "shard_paths",
]

logger = logging.getLogger(__name__)

STAGED = "_staged"
NAME = re.compile(r"shard-([0-9]{5,})")
ORPHAN_AGE_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Shard:
    """One store that a task has written, closed and synced: `name` is relative to the directory of
    the shards, `size` bytes of log."""

    name: str
    rows: int
    size: int


# ---- reading ----


def shard_paths(path: str) -> list[str] | None:
    """The stores of a directory of shards, in their order; None for any other directory.

    Raises:
        SparkFaceError: RS_JOURNAL_DAMAGED.
    """
    found = _read(path)
    return None if found is None else [os.path.join(path, s["name"]) for s in found["shards"]]


def refuse_shards(path: str, why: str) -> None:
    """Raises SparkFaceError: RS_BAD_OPTION, where `path` is a directory of shards."""
    found = shard_paths(path)
    if found is not None:
        raise bad_option("path", path, f"it holds {len(found)} shards; {why}")


def committed_shards(path: str, writer: str) -> dict[int, int]:
    """Rows by version of what a writer has added."""
    return _rows_by_version(_read(path) or {"shards": []}, writer)


def _rows_by_version(manifest: dict[str, Any], writer: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for shard in manifest["shards"]:
        if shard.get("writer") == writer:
            found[shard["version"]] = found.get(shard["version"], 0) + shard["rows"]
    return found


# ---- committing ----


def make_run(path: str, run: str) -> None:
    """Makes the directory in which the tasks of a run write, for as long as the run goes on. It has a
    file: a directory without it is one that a store of a task made again after the removal."""
    directory = Path(path) / STAGED / run
    for _ in range(9):
        with contextlib.suppress(FileNotFoundError):  # another run has ended, and was the last here
            os.makedirs(directory)
            break
    (directory / "open").touch()


def commit_shards(
    path: str,
    run: str,
    shards: Sequence[Shard],
    *,
    writer: str | None = None,
    version: int = 0,
    lock_timeout_s: float = 60.0,
    skip_reused: bool = False,
    on_step: Step = no_step,
) -> bool:
    """Adds what tasks have written under `_staged/<run>` unless `writer` has committed `version`
    already, and removes the rest of the run; True when it was added. Without a writer it always is.

    Raises:
        SparkFaceError: RS_VERSION_REUSED: it has committed other rows, unless `skip_reused`;
            RS_SHARDS_LOCKED after `lock_timeout_s` seconds; RS_STAGED_LOST;
            RS_JOURNAL_DAMAGED.
    """
    root = Path(path)
    with file_lock(root / "shards.lock", lock_timeout_s, "RS_SHARDS_LOCKED"):
        on_step("locked")
        found = _read(path) or {"format": 1, "shards": [], "writers": {}, "pending": None}
        _finish(root, found, on_step)
        known = writer is not None and version <= found["writers"].get(writer, -1)
        if known and not skip_reused and shards:
            _check_reused(found, str(writer), version, shards)
        if not known:
            for shard in shards:
                _check_there(root / shard.name)
            if shards:
                sync_path(root / STAGED / run)
                sync_path(root / STAGED)
            sync_path(root)
            for directory in _above(root):
                with contextlib.suppress(PermissionError):  # this user has made none there
                    sync_path(directory)
            number = _next_number(root, found)
            moves = [
                {
                    **asdict(shard),
                    "from": shard.name,
                    "name": f"shard-{number + place:05d}",
                    "writer": writer,
                    "version": version,
                }
                for place, shard in enumerate(shards)
            ]
            found["pending"] = {"writer": writer, "version": version, "moves": moves}
            write_durably(root / "shards.json", found)
            on_step("begun")
            _finish(root, found, on_step)
        _remove(root / STAGED / run)
        on_step("removed")
        _remove_orphans(root)
    return not known


def _check_reused(
    found: dict[str, Any], writer: str, version: int, shards: Sequence[Shard]
) -> None:
    """By the rows alone: the tasks of one that is tried again may be others."""
    was = _rows_by_version(found, writer).get(version)
    rows = sum(shard.rows for shard in shards)
    if was is not None and was != rows:
        raise reused(writer, version, f"rows {was}, now {rows}")


def abandon_shards(path: str, run: str) -> bool:
    """Removes all of a run that is given up, unless its commit was begun: then it will be finished.
    True when it was removed."""
    try:
        found = _read(path)
    except SparkFaceError:
        return False  # its state is not known
    if found is not None and any(_run_of(move) == run for move in _moves(found)):
        return False
    _remove(Path(path) / STAGED / run)
    return True


def _finish(root: Path, found: dict[str, Any], on_step: Step) -> None:
    """Renames what is pending, and says so in the manifest."""
    pending, moves = found["pending"], _moves(found)
    if pending is None:
        return
    for number, move in enumerate(moves):
        source, target = root / move["from"], root / move["name"]
        if source.exists():
            os.rename(source, target)
        else:
            _check_there(target)
        on_step(f"moved {number}")
    sync_path(root)
    found["shards"] += [{n: v for n, v in move.items() if n != "from"} for move in moves]
    if pending["writer"] is not None:
        found["writers"][pending["writer"]] = pending["version"]
    found["pending"] = None
    write_durably(root / "shards.json", found)
    on_step("noted")
    for run in {_run_of(move) for move in moves}:
        _remove(root / STAGED / run)


def _moves(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [] if found["pending"] is None else list(found["pending"]["moves"])


def _run_of(move: dict[str, Any]) -> str:
    return Path(move["from"]).parent.name


def _check_there(store: Path) -> None:
    if not (store / "commitlog").is_dir():
        raise SparkFaceError(
            "RS_STAGED_LOST",
            f"{store} is gone, which a task has written; tasks and committer must see the same "
            "directory",
        )


def _above(root: Path) -> list[Path]:
    """The directories above it on its disk: `make_run` makes those that are missing."""
    disk = root.stat().st_dev
    return list(takewhile(lambda above: above.stat().st_dev == disk, root.resolve().parents))


def _next_number(root: Path, found: dict[str, Any]) -> int:
    """The number after that of every shard, also of those that the manifest does not name."""
    names = [*os.listdir(root), *(shard["name"] for shard in found["shards"])]
    return max((int(m[1]) + 1 for name in names if (m := NAME.fullmatch(name))), default=0)


def _read(path: str) -> dict[str, Any] | None:
    file = os.path.join(path, "shards.json")
    passed = FileNotFoundError, NotADirectoryError
    with contextlib.suppress(*passed), coded_damage(file, so=""):
        with coded_errors("RS_READ_FAILED", file, *passed):
            found = read_state(file)
        if found is None:
            return None
        for shard in [*found["shards"], *_moves(found)]:
            whole_number(shard["rows"])
            if not NAME.fullmatch(shard["name"]):
                raise ValueError(f"{shard['name']!r} is no name of a shard")
        for move in _moves(found):
            if not re.fullmatch(rf"{STAGED}/[0-9a-f]+/[0-9a-f-]+", move["from"]):
                raise ValueError(f"{move['from']!r} is nothing that a task has written")
        if os.path.islink(os.path.join(path, STAGED)):
            raise ValueError(f"{STAGED} is a link")
        return found
    return None


# ---- cleaning ----


def _remove(run: Path) -> None:
    """All of a run that is over. It loses its name first: tasks that Spark has killed may still
    write, and what they make by that name from now on fails."""
    gone = run.with_suffix(".gone")
    with contextlib.suppress(OSError):
        os.rename(run, gone)
    for directory in (gone, run):
        shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        run.parent.rmdir()


def _remove_orphans(root: Path, age_s: float = ORPHAN_AGE_S) -> None:
    """Runs in which nothing has changed for a week."""
    oldest = time.time() - age_s
    for run in (root / STAGED).glob("*"):
        if run.is_dir() and _changed(run) < oldest:
            logger.warning("%s is removed: no job is at work there", run)
            _remove(run)


def _changed(directory: Path) -> float:
    """When something in a tree was last changed, in seconds since 1970."""
    latest = 0.0
    for place, _, names in os.walk(directory):
        for name in (".", *names):
            with contextlib.suppress(FileNotFoundError):
                latest = max(latest, os.stat(os.path.join(place, name)).st_mtime)
    return latest
