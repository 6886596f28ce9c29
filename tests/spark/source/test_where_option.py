"""The source's option `where`: RocketMQ's SQL over properties."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import ReadOptions
from tests.spark.reading import make_store

WHERE = "n > 100 AND TAGS <> 'red'"


def parsed(where: str) -> ReadOptions:
    return ReadOptions.parse({"path": "p", "where": where})


def test_a_part_of_the_scan() -> None:
    assert parsed(WHERE).wanted["where"] == WHERE


def test_a_wrong_expression_is_a_bad_option() -> None:
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*unequal is <>, at position 2"):
        parsed("n != 5")
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION"):
        parsed("")


def test_rows_of_a_batch(tmp_path: Path, rng: random.Random) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from tests.spark.source.test_source import numbers, read_all

    messages = make_store(tmp_path / "s", rng)
    expected = [
        m.physical_offset
        for m in messages
        if int(m.properties.get("n", "0")) > 100 and m.tags not in ("red", None)
    ]
    assert len(expected) > 50
    for split in ("1g", "64k"):
        assert numbers(read_all(tmp_path / "s", where=WHERE, splitBytes=split)) == expected
    assert numbers(read_all(tmp_path / "s", where=WHERE, columns="physical_offset")) == expected


def test_micro_batches(tmp_path: Path, rng: random.Random) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from tests.spark.source.test_progress import drained, progress

    messages = make_store(tmp_path / "s", rng)
    stream = progress(
        tmp_path / "s", startingOffsets="earliest", maxOffsetsPerTrigger="20", where="n > 500"
    )
    found, sizes = drained(stream, stream.initial())
    assert found == [m.physical_offset for m in messages if int(m.properties.get("n", "0")) > 500]
    assert max(sizes) == 20
    stream.close()
