"""Export of parts of a log to Parquet, as tasks do it but without a JVM."""

from __future__ import annotations

import datetime
import functools
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.schema import VIEWS
from tests.spark.reading import make_store, rows_in, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

FIELDS = tuple(field for name, field in VIEWS["rocketstore"].items() if name != "topic")


def write(
    root: Path, target: Path, split_bytes: int, *, unpack: bool = False, **wanted: Any
) -> list[tuple[Any, ...]]:
    from rocketstore.spark.jobs.export import ALWAYS, export_part
    from rocketstore.spark.jobs.parquet_files import Target
    from rocketstore.spark.jobs.reading import parts_of
    from rocketstore.spark.schema import scan_columns

    place = Target(str(target), "run", "zstd")
    parts = parts_of(root, split_bytes, columns=scan_columns(FIELDS, ALWAYS), **wanted)
    given = [pickle.loads(pickle.dumps((part, place))) for part in parts]
    try:
        rows = [
            row
            for part, to in given
            for row in export_part(part, target=to, fields=FIELDS, unpack=unpack)
        ]
        assert not place.holds_files()
        return place.keep(rows)
    finally:
        place.clean()


def read(target: Path) -> list[tuple[Any, ...]]:
    """Rows of all files, in the order of the log; topics out of the directories' names."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    parts = ds.partitioning(
        pa.schema([("topic", pa.string()), ("day", pa.string())]), flavor="hive"
    )
    table = ds.dataset(target, format="parquet", partitioning=parts).to_table()
    return sorted(rows_in(table.to_batches()), key=lambda row: row[3])


@pytest.mark.parametrize("split_bytes", [1 << 30, 20_000])
def test_every_message_once_by_topic_and_day(
    tmp_path: Path, rng: random.Random, split_bytes: int
) -> None:
    messages = make_store(tmp_path / "s", rng)
    rows = write(tmp_path / "s", tmp_path / "out", split_bytes)
    assert read(tmp_path / "out") == rows_of(messages)
    assert sum(row[3] for row in rows) == len(messages)
    assert sum(row[4] for row in rows) == sum(m.size for m in messages)
    assert min(row[5] for row in rows) == messages[0].physical_offset
    files = sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*"))
    assert files == sorted(row[0] for row in rows)
    today = datetime.datetime.now(datetime.UTC).date()
    assert {row[1] for row in rows} == {"orders", "events"}
    assert {row[2] for row in rows} <= {str(today), str(today - datetime.timedelta(days=1))}


def test_more_topics_than_files_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    from rocketstore.spark.jobs import parquet_files

    messages = make_store(tmp_path / "s", rng)
    monkeypatch.setattr(parquet_files, "OPEN_FILES", 1)
    monkeypatch.setattr(parquet_files, "WAITING_BYTES", 1000)
    rows = write(tmp_path / "s", tmp_path / "out", 1 << 30, chunk_bytes=2000)
    assert len(rows) > 2 and len({row[0] for row in rows}) == len(rows)
    assert read(tmp_path / "out") == rows_of(messages)


def test_what_fails_leaves_nothing_that_is_read(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng)
    damaged = messages[300]
    segment = sorted((tmp_path / "s" / "commitlog").iterdir())[damaged.physical_offset >> 16]
    content = bytearray(segment.read_bytes())
    content[damaged.physical_offset % (64 * 1024) + 92] ^= 0xFF
    segment.write_bytes(content)
    with pytest.raises(rocketstore.CorruptRecordError):
        write(tmp_path / "s", tmp_path / "out", 1 << 30, chunk_bytes=2000)
    assert list((tmp_path / "out").rglob("*")) == []


def test_files_that_cannot_all_get_their_names_get_none(tmp_path: Path) -> None:
    """A run that is done again would write them once more."""
    long = "%" * 100  # three bytes each in the name of a directory
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        for topic in ("a", long, "b"):
            store.writer(topic).put(b"x")
    with pytest.raises(OSError, match="name too long"):
        write(tmp_path / "s", tmp_path / "out", 1 << 30)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
    rows = write(tmp_path / "s", tmp_path / "out", 1 << 30, topics=["a", "b"])
    assert {row[1] for row in rows} == {"a", "b"}


def compressed(root: Path) -> None:
    """A body that says it is compressed, and is not."""
    with rocketstore.open(root, durability="os") as store:
        store.put_message("t", b"no stream", sys_flag=0x1)


@pytest.mark.parametrize("failing", ["unpack", "write"])
def test_what_fails_in_a_task_has_a_code(tmp_path: Path, rng: random.Random, failing: str) -> None:
    """Spark keeps nothing else of it."""
    from rocketstore.spark.jobs.export import export_part, target_of
    from rocketstore.spark.jobs.reading import coded_rows, parts_of

    root, target = tmp_path / "s", tmp_path / "out"
    if failing == "unpack":
        compressed(root)
        code = "RS_BAD_COMPRESSION"
    else:
        make_store(root, rng, 60)
        code = "RS_WRITE_FAILED"
    columns = ("topic", "physical_offset", "size", "store_timestamp_ms", "sys_flag", "body")
    [part] = parts_of(root, 1 << 30, columns=columns)
    fields = (VIEWS["rocketstore"]["body"],)
    if failing == "write":
        target.touch()
    with pytest.raises(SparkFaceError, match=rf"^\[{code}\] host=\S+ path=\S+"):
        work = functools.partial(
            export_part, target=target_of(str(target), "zstd"), fields=fields, unpack=True
        )
        list(coded_rows(work, part))


def test_what_the_driver_cannot_do_has_a_code(tmp_path: Path, rng: random.Random) -> None:
    from rocketstore.spark import jobs

    make_store(tmp_path / "s", rng, 60)
    (tmp_path / "file").touch()
    nobody: Any = None
    with pytest.raises(SparkFaceError, match=r"^\[RS_READ_FAILED\] host=\S+ path=\S+/file: "):
        jobs.export(nobody, tmp_path / "s", str(tmp_path / "file"))
    with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] target = 'nope://x': "):
        jobs.export(nobody, tmp_path / "s", "nope://x")
    with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] compression = 'zip': zstd or "):
        jobs.export(nobody, tmp_path / "s", str(tmp_path / "out"), compression="zip")
    (tmp_path / "s" / "shards.json").mkdir()
    with pytest.raises(
        SparkFaceError, match=r"^\[RS_READ_FAILED\] host=\S+ path=\S+/shards.json: "
    ):
        jobs.stats(nobody, tmp_path / "s")


def test_statistics_let_readers_pass_over_rows(tmp_path: Path, rng: random.Random) -> None:
    import pyarrow.parquet as pq

    make_store(tmp_path / "s", rng)
    rows = write(tmp_path / "s", tmp_path / "out", 1 << 30)
    for name, *_, first, last, _, _ in rows:
        group = pq.ParquetFile(tmp_path / "out" / name).metadata.row_group(0)
        columns = {
            group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)
        }
        found = columns["physical_offset"].statistics
        assert (found.min, found.max) == (first, last)
        assert not columns["body"].is_stats_set
        assert columns["store_timestamp"].is_stats_set


@pytest.mark.parametrize(
    ("topic", "name"), [("a/b", "a%2Fb"), ("..", ".."), ("a=b", "a%3Db"), ("%DLQ%g", "%25DLQ%25g")]
)
def test_topics_are_names_of_directories(topic: str, name: str) -> None:
    from rocketstore.spark.jobs.parquet_files import directory_text

    assert directory_text(topic) == name


def test_days(tmp_path: Path) -> None:
    from rocketstore.spark.jobs.parquet_files import FIRST_DAY, LAST_DAY, NO_DAY, day_text

    assert [day_text(n) for n in (0, FIRST_DAY, LAST_DAY)] == [
        "1970-01-01", "0001-01-01", "9999-12-31",
    ]  # fmt: skip
    assert day_text(NO_DAY) == "__HIVE_DEFAULT_PARTITION__"


def test_a_target_with_files_is_refused(tmp_path: Path, rng: random.Random) -> None:
    from rocketstore.spark import jobs

    make_store(tmp_path / "s", rng)
    (tmp_path / "out" / "_temporary").mkdir(parents=True)
    (tmp_path / "out" / "_temporary" / "x").touch()
    (tmp_path / "out" / "old.parquet").touch()
    nobody: Any = None
    with pytest.raises(SparkFaceError, match="RS_TARGET_NOT_EMPTY"):
        jobs.export(nobody, tmp_path / "s", str(tmp_path / "out"))
    with pytest.raises(SparkFaceError, match="RS_UNKNOWN_COLUMN"):
        jobs.export(nobody, tmp_path / "s", str(tmp_path / "out"), columns=["topics"])
    with pytest.raises(SparkFaceError, match="RS_NO_STORE"):
        jobs.export(nobody, tmp_path / "nothing", str(tmp_path / "out"))
