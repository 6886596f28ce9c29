"""A scan gives the records of a log in physical order, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from tests.support.made_store import MadeStore, rocketmq_store


def values(scan: rocketstore.Scan, column: str) -> list[int]:
    return [value for chunk in scan for value in chunk[column].tolist()]


@pytest.mark.parametrize("name", ["clean-498", "delay-transactions-498", "long-topics-533"])
def test_every_record_of_a_store_comes_in_order(name: str, tmp_path: Path) -> None:
    root, expected = rocketmq_store(name, tmp_path)
    found = values(rocketstore.scan(root, system_topics=True), "physical_offset")
    assert found == sorted(row["physical_offset"] for row in expected["acked"])


def test_records_begin_and_end_where_they_are_told(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    put = made.fill(60)
    begin, end = put[7].physical_offset, put[50].physical_offset
    scan = rocketstore.scan(made.root, begin_offset=begin, end_offset=end)
    assert values(scan, "queue_offset") == list(range(7, 50))
