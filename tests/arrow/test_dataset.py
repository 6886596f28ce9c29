"""Scans as datasets of pyarrow: who reads one gets the columns and rows that were asked for."""

from __future__ import annotations

import collections
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.columns import COLUMNS
from tests.support.column_tools import fill_at_random, messages_of

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")
pc = pytest.importorskip("pyarrow.compute", reason="needs pyarrow: make arrow")


class Watched:
    """A scan whose readings are written down: the columns of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[str, ...]] = []
        plain = rocketstore.Scan.__iter__

        def noted(scan: rocketstore.Scan) -> Any:
            self.read.append(scan.columns)
            return plain(scan)

        monkeypatch.setattr(rocketstore.Scan, "__iter__", noted)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.fixture
def made(tmp_path: Path, rng: random.Random) -> tuple[rocketstore.Scan, list[dict[str, Any]]]:
    fill_at_random(tmp_path / "store", rng, 200)
    return rocketstore.scan(tmp_path / "store"), messages_of(tmp_path / "store")


def test_all_of_it(made: Any) -> None:
    scan, rows = made
    dataset = scan.to_dataset()
    table = dataset.to_table()
    assert table.schema == dataset.schema
    assert table.schema.names == scan.to_arrow().schema.names
    assert table.column("topic").to_pylist() == [row["topic"] for row in rows]
    for name in ("body", "properties", "store_timestamp"):
        assert table.column(name).to_pylist() == scan.to_arrow().read_all()[name].to_pylist()
    assert dataset.count_rows() == len(rows)
    assert dataset.head(3).num_rows == 3


def test_columns_and_conditions_reach_the_scan(made: Any, watched: Watched) -> None:
    scan, rows = made
    dataset, topic = scan.to_dataset(), rows[0]["topic"]
    assert dataset.to_table(columns=["queue_offset"]).num_columns == 1
    assert watched.read.pop() == ("queue_offset",)
    mine = [row["queue_offset"] for row in rows if row["topic"] == topic]
    where = pc.field("topic") == topic
    table = dataset.to_table(columns=["queue_offset"], filter=where)
    assert table.column("queue_offset").to_pylist() == mine
    assert watched.read.pop() == ("topic", "queue_offset")
    twice = {"twice": pc.field("queue_offset") * 2}
    table = dataset.filter(where).to_table(columns=twice, filter=pc.field("size") > 0)
    assert table.column("twice").to_pylist() == [2 * offset for offset in mine]
    assert set(watched.read.pop()) == {"topic", "queue_offset", "size"}
    assert dataset.to_table(columns=[]).num_rows == len(rows)
    with pytest.raises(pa.ArrowInvalid, match="nope"):
        dataset.to_table(columns=["nope"])


def test_each_column_alone(made: Any) -> None:
    scan, _ = made
    scan = replace(scan, columns=COLUMNS)
    whole = scan.to_dataset().to_table()
    assert whole.schema.names == [name.removesuffix("_ms") for name in COLUMNS]
    for name in whole.schema.names:
        one = scan.to_dataset().to_table(columns=[name])
        assert one.column(name).to_pylist() == whole.column(name).to_pylist()


def test_duckdb_reads_what_a_query_names(made: Any, watched: Watched) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: make arrow")
    scan, rows = made
    counts = collections.Counter(row["topic"] for row in rows)
    connection = duckdb.connect()
    connection.register("relation", scan.to_dataset())
    asked = "select topic, count(*) from relation group by 1"
    assert dict(connection.execute(asked).fetchall()) == counts
    assert watched.read.pop() == ("topic",)
    one = max(counts)
    mine = sum(row["size"] for row in rows if row["topic"] == one)
    asked = "select sum(size) from relation where topic = ?"
    assert connection.execute(asked, [one]).fetchall() == [(mine,)]
    assert "body" not in watched.read.pop()
    frame = scan.to_duckdb(connection)
    assert frame.query("log", "select count(*) from log where topic is null").fetchall() == [(0,)]
    assert "body" not in watched.read.pop()
    assert frame.aggregate("count(*)").fetchall() == [(len(rows),)]


def test_streams_of_columns_by_name_are_those_of_the_scan(made: Any, tmp_path: Path) -> None:
    scan, rows = made
    dataset = replace(scan, chunk_bytes=1).to_dataset()
    scanner = dataset.scanner(columns=["size", "topic"])
    whole = scanner.to_reader().read_all()
    assert whole.schema.names == ["size", "topic"]
    assert whole.column("size").to_pylist() == [row["size"] for row in rows]
    # Read twice, as no scanner of pyarrow over a stream is, and by what takes streams.
    assert scanner.to_reader().read_all().equals(whole)
    assert pa.table(scanner).equals(whole)
    # All else is a scanner's.
    assert scanner.to_table().equals(whole)
    assert scanner.count_rows() == len(rows)
    assert scanner.head(2).equals(whole.slice(0, 2))
    assert scanner.projected_schema == whole.schema
    small = dataset.scanner(columns=["size"], batch_size=7).to_reader()
    assert small.read_all().num_rows == len(rows)
    pads = pytest.importorskip("pyarrow.dataset", reason="needs pyarrow: make arrow")
    pads.write_dataset(scanner, tmp_path / "files", format="parquet")
    assert pads.dataset(tmp_path / "files").count_rows() == len(rows)
    with pytest.raises(pa.ArrowInvalid, match="nope"):
        dataset.scanner(columns=["size", "nope"])


def test_polars_reads_what_a_frame_needs(made: Any, watched: Watched) -> None:
    polars = pytest.importorskip("polars", reason="needs polars: make arrow")
    scan, rows = made
    frame = polars.scan_pyarrow_dataset(scan.to_dataset())
    watched.read.clear()
    found = frame.select(polars.col("size").sum()).collect().item()
    assert found == sum(row["size"] for row in rows)
    assert watched.read == [("size",)]


def test_it_goes_to_another_process_and_has_no_fragments(made: Any) -> None:
    scan, rows = made
    dataset = scan.to_dataset().filter(pc.field("topic") == rows[0]["topic"])
    again = pickle.loads(pickle.dumps(dataset))
    assert again.to_table(columns=["size"]).equals(dataset.to_table(columns=["size"]))
    assert repr(scan) in repr(again)
    for call in (dataset.get_fragments, dataset.sort_by, dataset.join, dataset.replace_schema):
        with pytest.raises(NotImplementedError, match="no fragments"):
            call("topic")
    with pytest.raises(NotImplementedError):
        _ = dataset.partition_expression


def test_what_the_scan_raises_the_dataset_raises(made: Any, tmp_path: Path) -> None:
    scan, _ = made
    log = next((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[60] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(rocketstore.CorruptRecordError):
        scan.to_dataset().to_table(columns=["size"])
