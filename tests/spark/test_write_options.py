"""The sink's options, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.spark.failures import SparkFaceError
from rocketstore.spark.options import WriteOptions


def test_kafkas_own_options_are_left_aside(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "topic": "t", "kafka.bootstrap.servers": "h:9092"}
    assert WriteOptions.parse(given).topic == "t"
    with pytest.raises(SparkFaceError, match=r"RS_UNKNOWN_OPTION.*kafkaesque"):
        WriteOptions.parse({**given, "kafkaesque": "1"})


def test_staging_is_found_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer finishes a commit that died; it may work elsewhere."""
    monkeypatch.chdir(tmp_path)
    options = WriteOptions.parse({"path": "s", "topic": "t", "stagingPath": "staged"})
    assert Path(options.staging).parent == tmp_path / "staged"
