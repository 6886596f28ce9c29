"""Scans as frames of polars, pandas and DuckDB."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

import rocketstore
from tests.support.column_tools import fill_at_random, messages_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


@pytest.mark.parametrize("name", ["polars", "pandas", "duckdb"])
def test_a_missing_package_is_named_with_what_to_install(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rocketstore.open(tmp_path, durability="os") as store:
        scan = rocketstore.scan(store)
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ModuleNotFoundError) as caught:
            getattr(scan, f"to_{name}")()
    assert str(caught.value) == f"to_{name} needs {name}: pip install 'rocketstore[arrow]' {name}"


def test_polars(tmp_path: Path, rng: random.Random) -> None:
    polars = pytest.importorskip("polars", reason="needs polars: make arrow")
    fill_at_random(tmp_path / "store", rng, 200)
    rows = messages_of(tmp_path / "store")
    scan = rocketstore.scan(tmp_path / "store")
    for frame in (scan.to_polars(), polars.DataFrame(scan)):
        assert frame["body"].to_list() == [row["body"] for row in rows]
        assert frame["topic"].to_list() == [row["topic"] for row in rows]


def test_pandas(tmp_path: Path, rng: random.Random) -> None:
    pytest.importorskip("pandas", reason="needs pandas: make arrow")
    fill_at_random(tmp_path / "store", rng, 200)
    rows = messages_of(tmp_path / "store")
    frame = rocketstore.scan(tmp_path / "store").to_pandas()
    assert frame["queue_offset"].tolist() == [row["queue_offset"] for row in rows]
    assert frame["message_id"].tolist() == [row["message_id"] for row in rows]


def test_duckdb(tmp_path: Path, rng: random.Random) -> None:
    pytest.importorskip("duckdb", reason="needs duckdb: make arrow")
    fill_at_random(tmp_path / "store", rng, 200)
    rows = messages_of(tmp_path / "store")
    relation = rocketstore.scan(tmp_path / "store").to_duckdb()
    assert relation.aggregate("count(*)").fetchall() == [(200,)]
    found = relation.query(
        "messages", "select count(*), sum(octet_length(body)), count(distinct topic) from messages"
    ).fetchall()
    topics = {row["topic"] for row in rows}
    assert found == [(len(rows), sum(len(row["body"]) for row in rows), len(topics))]
