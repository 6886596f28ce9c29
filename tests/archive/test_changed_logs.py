"""States × causes: what was shipped, and what reads histories, of a log that lost its tail.

Each cell ships a log, takes its tail away in one way, lets it grow again or not, and asks one state. Each
message that is there afterwards is in the log or in the archive, and no archive gets two histories.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Retention
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery.progress import order_cut
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.export import ExportNote, choice_of
from tests.archive.changed_log import Case, note_of, rows, trim
from tests.support.retention_tools import Disk, used
from tests.support.small_store import SEGMENT, open_small, segments

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


# ---- causes: the log loses what lies above its first segments ----


def lost_files(case: Case, older: Path) -> None:
    for path in segments(case.root)[2:]:
        path.unlink()
    open_small(case.root, force=True).close()


def older_log(case: Case, older: Path) -> None:
    for name in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(case.root / name)
        shutil.copytree(older / name, case.root / name)
    open_small(case.root, force=True).close()


def older_copy(case: Case, older: Path) -> None:
    shutil.rmtree(case.root)
    shutil.copytree(older, case.root)


def ordered_cut(case: Case, older: Path) -> None:
    """As a copy is cut that follows a new master."""
    at = rocketstore.scan(older).end_offset
    order_cut(StoreLayout(case.root), at)
    with open_small(case.root) as store:
        assert store.end_offset == at


Cause = Callable[[Case, Path], None]
CAUSES: tuple[Cause, ...] = (lost_files, older_log, older_copy, ordered_cut)


#: Messages that come after the cause: the log stays cut, ends within what was shipped, or behind it.
GROWN = {"cut": 0, "some": 10, "beyond": 120}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Cause, str], Case]:
    """A case whose cause is over."""

    @functools.cache
    def make(cause: Cause, grown: str) -> Case:
        path = tmp_path_factory.mktemp("case")
        case = Case(path / "s", (path / "archive").as_uri(), (path / "tails").as_uri())
        case.put(b"old", 20)
        shutil.copytree(case.root, path / "older")
        case.put(b"gone", 55)
        rocketstore.ship(case.root, case.uri)
        rocketstore.ship(case.root, case.with_tail, tail=True)
        case.bookmark = rocketstore.scan(case.root).bookmark
        stream = case.stream()
        case.offset = stream.end()
        stream.close()
        case.note = note_of(case).read_text()
        cause(case, path / "older")
        case.new = case.put(b"new", GROWN[grown])
        return case

    return make


@pytest.fixture(params=CAUSES, ids=lambda cause: cause.__name__)
def cut(
    request: pytest.FixtureRequest, made: Callable[[Cause, str], Case], tmp_path: Path
) -> Callable[[str], Case]:
    """A copy of the log of such a case. Its archives are those of all tests, which add nothing."""

    def copied(grown: str) -> Case:
        case = made(request.param, grown)
        shutil.copytree(case.root, tmp_path / "s")
        return dataclasses.replace(case, root=tmp_path / "s")

    return copied


each = pytest.mark.parametrize("grown", list(GROWN))


# ---- states ----


@each
@pytest.mark.parametrize(
    "rule",
    [
        Retention(max_bytes=1, keep_unshipped=True),
        Retention(max_age=datetime.timedelta(microseconds=1), keep_unshipped=True),
    ],
    ids=["max_bytes", "max_age"],
)
def test_retention_keeps_what_no_archive_has(
    cut: Callable[[str], Case], grown: str, rule: Retention
) -> None:
    case = cut(grown)
    note_of(case).write_text(case.note)  # no open had to empty it
    with case.open() as store:
        store.retention.run(rule)
        assert store.retention.plan(rule).count == 0
    assert case.kept() == case.new


def test_an_emergency_says_what_no_archive_has(
    cut: Callable[[str], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cut("beyond")
    note_of(case).write_text(case.note)
    with case.open() as store:
        Disk(monkeypatch, store, 100).others = 99 * SEGMENT - len(used(store)) * SEGMENT
        rule = Retention(keep_unshipped=True, emergency_watermark=0.98)
        assert store.retention.run(rule).count > 0
        [event] = store.retention.events
        assert any(text.startswith(f"not shipped to {case.uri}") for text in event.given_up)


@each
@pytest.mark.parametrize("tail", [False, True], ids=["segments", "tail"])
def test_a_shipment_is_refused(cut: Callable[[str], Case], grown: str, tail: bool) -> None:
    case = cut(grown)
    for uri in (case.uri, case.with_tail):
        before = rows(uri)
        for force in (False, True):
            with pytest.raises(rocketstore.ConfigError, match="cut or replaced"):
                rocketstore.ship(case.root, uri, tail=tail, force=force)
        assert rows(uri) == before


@pytest.mark.parametrize("tail", [False, True], ids=["segments", "tail"])
def test_a_shipment_is_refused_where_nothing_is_in_common(
    cut: Callable[[str], Case], tail: bool
) -> None:
    """The log went on until no segment is left that the archive has, by a rule that keeps nothing."""
    case = cut("beyond")
    trim(case)
    for uri in (case.uri, case.with_tail):
        before = rows(uri)
        with pytest.raises(rocketstore.ConfigError, match="no segment in common.*--force"):
            rocketstore.ship(case.root, uri, tail=tail)
        assert rows(uri) == before


@each
def test_a_bookmark_is_refused(cut: Callable[[str], Case], grown: str) -> None:
    case = cut(grown)
    with pytest.raises(rocketstore.BookmarkError) as caught:
        rocketstore.scan(case.root, after=case.bookmark)
    assert caught.value.kind == ("history" if grown == "beyond" else "cut")


@pytest.mark.parametrize("topics", [None, "rare"])
def test_a_bookmark_of_the_log_is_refused_by_the_old_archive(
    cut: Callable[[str], Case], topics: str | None
) -> None:
    case = cut("some")
    mine = rocketstore.scan(case.root).bookmark
    assert case.bookmark is not None and mine.offset < case.bookmark.offset
    with pytest.raises(rocketstore.BookmarkError) as caught:
        rocketstore.scan(case.with_tail, after=mine, topics=topics)
    assert caught.value.kind == "history"


@each
def test_an_export_is_refused(
    cut: Callable[[str], Case], grown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cut(grown)
    module = sys.modules["rocketstore.spark.jobs.export"]
    monkeypatch.setattr(module, "run_parts", lambda session, parts, work: [])
    from rocketstore.spark.jobs.parquet_files import Target

    place = Target((tmp_path / "out").as_uri(), "run", "zstd")
    ExportNote(choice_of({}, ["physical_offset"], True), case.bookmark).write(place)
    with pytest.raises(SparkFaceError, match="RS_BAD_CHECKPOINT"):
        jobs.export(None, case.root, place.uri, columns=["physical_offset"], mode="continue")  # type: ignore[arg-type]


@each
def test_a_stream_is_refused(cut: Callable[[str], Case], grown: str) -> None:
    case = cut(grown)
    stream = case.stream()
    with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED"):
        stream.latest(case.offset)
    stream.close()
