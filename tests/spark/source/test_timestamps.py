"""Store and born times that no moment of Spark or Python has: rows without them, never a failed job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketstore.spark.jobs.stats import HOUR_MS, merge_stats, stats_part, stats_scans
from rocketstore.spark.timestamps import END_MS, FIRST_MS, moment
from tests.support.made_store import MadeStore

TODAY_MS = 1_700_000_000_000
#: In order: of years 1 and 9999, then of none that has four digits.
EDGES = (FIRST_MS, TODAY_MS, END_MS - 1)
BEYOND = (FIRST_MS - 1, END_MS, 2**63 // 1000, 2**63 - 1, -(2**63) + 1)


def make(root: Path) -> None:
    store = MadeStore(root)
    for time_ms in (*EDGES, *BEYOND):
        store.put("t", store_ms=time_ms)
    store.dispatch()


def test_moments() -> None:
    assert [str(moment(time_ms)) for time_ms in EDGES] == [
        "0001-01-02 00:00:00+00:00",
        "2023-11-14 22:13:20+00:00",
        "9999-12-30 23:59:59.999000+00:00",
    ]
    assert [moment(time_ms) for time_ms in BEYOND] == [None] * len(BEYOND)


def test_stats_have_one_row_for_all_that_have_no_hour(tmp_path: Path) -> None:
    make(tmp_path)
    rows = merge_stats(row for scan in stats_scans(tmp_path, 1 << 30) for row in stats_part(scan))
    assert [(row[2], row[3]) for row in rows] == [
        *((time_ms // HOUR_MS, 1) for time_ms in EDGES),
        (END_MS // HOUR_MS, len(BEYOND)),
    ]


def test_rows_and_files_show_no_time_instead_of_another(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    import pyarrow.dataset as ds

    from tests.spark.jobs.test_export import write
    from tests.spark.source.test_delivered import rows

    root, target = tmp_path / "s", tmp_path / "out"
    make(root)
    shown = rows(root, columns="store_timestamp,born_timestamp", endingOffsets='{"t": {"0": 3}}')
    assert [row["store_timestamp"] for row in shown] == [moment(time_ms) for time_ms in EDGES]
    shown = rows(root, columns="queue_offset,body", startingOffsets='{"t": {"0": 3}}')
    assert len(shown) == len(BEYOND)
    written = write(root, target, 1 << 30)
    assert sorted((row[2], row[3]) for row in written)[-1] == (
        "__HIVE_DEFAULT_PARTITION__", 3,
    )  # fmt: skip
    times = ds.dataset(target, format="parquet").to_table()["store_timestamp"]
    assert times.null_count == 3


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_stats_in_a_session(spark: Any, tmp_path: Path) -> None:
    from rocketstore.spark import jobs

    make(tmp_path)
    rows = jobs.stats(spark, tmp_path).collect()
    assert [(row.hour is None, row.messages) for row in rows] == [
        (False, 1), (False, 1), (False, 1), (True, len(BEYOND)),
    ]  # fmt: skip
    frame = spark.read.format("rocketstore").option("path", str(tmp_path)).load()
    assert frame.where("store_timestamp is null").count() == 3
