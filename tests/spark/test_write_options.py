"""The sink's options, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from rocketstore.spark.committer import commit
from rocketstore.spark.failures import SparkFaceError
from rocketstore.spark.options import WriteOptions
from tests.spark.staged import stage_bodies


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


def test_a_store_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocketstore.open(tmp_path / "s").close()
    files = [stage_bodies(tmp_path / "s", "a", [b"a"])]

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rocketstore, "open", refuse)
    with pytest.raises(SparkFaceError, match=rf"RS_WRITE_FAILED\] host=\S+ path={tmp_path}/s: "):
        commit(str(tmp_path / "s"), "etl", 4, files)
