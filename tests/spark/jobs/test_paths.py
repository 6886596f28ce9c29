"""Paths and file URIs: each option and job means the same directory by them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.stores import local_path, store_path
from tests.spark.reading import make_store

ODD = "a b%41 ü#?"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/x/y", "/x/y"),
        ("//x/y/", "/x/y"),
        ("/x/a%20b", "/x/a%20b"),
        ("file:/x/a%20b", "/x/a b"),
        ("file:///x/a%20b/", "/x/a b"),
        ("FILE:///x", "/x"),
        ("file:////x", "/x"),
        ("file://localhost/x", "/x"),
        ("file:///", "/"),
        ("x/y", "CWD/x/y"),
        ("./s3:/x", "CWD/s3:/x"),
        ("c:/x", "CWD/c:/x"),
        ("s3://bucket/x", None),
    ],
)
def test_what_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, path: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = path and path.replace("CWD", str(tmp_path))
    assert local_path("path", given) == wanted
    assert store_path(given) == (wanted or given)


@pytest.mark.parametrize("given", ["file://host/x", "file://x", "s3:/bucket/x", "hdfs:/x"])
def test_what_nobody_means_is_refused(given: str) -> None:
    for name, options in (
        ("path", {"path": given}),
        ("stagingPath", {"path": "/s", "stagingPath": given}),
        ("badRowsPath", {"path": "/s", "badRows": "divert", "badRowsPath": given}),
    ):
        with pytest.raises(SparkFaceError, match=rf"^\[RS_BAD_OPTION\] {name} = '{given}': "):
            WriteOptions.parse({"topic": "t", **options})
    with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] path"):
        ReadOptions.parse({"path": given})


@pytest.mark.parametrize("name", ["stagingPath", "badRowsPath"])
def test_a_sink_keeps_its_files_in_directories(tmp_path: Path, name: str) -> None:
    given = {"path": str(tmp_path), "topic": "t", "badRows": "divert"}
    with pytest.raises(SparkFaceError, match=rf"^\[RS_BAD_OPTION\] {name} = 's3://b/x': a direct"):
        WriteOptions.parse({**given, name: "s3://b/x"})
    found = WriteOptions.parse({**given, name: f"file:{quote(str(tmp_path / ODD))}"})
    assert str(tmp_path / ODD) in (found.bad_rows_path, found.staging)


def test_an_archive_by_each_of_its_names(tmp_path: Path) -> None:
    (tmp_path / ODD).mkdir()
    (tmp_path / ODD / "manifest.json").touch()
    path = quote(str(tmp_path / ODD))
    for given in (f"file:{path}", f"file://{path}", f"file://localhost{path}"):
        assert store_path(given) == f"file://{path}"


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_jobs_and_frames_by_each_name(
    spark: Any, tmp_path: Path, rng: random.Random, prefix: str
) -> None:
    from rocketstore.spark import jobs

    root = tmp_path / ODD.replace("#?", "")  # patterns and the like, where Spark reads Parquet
    root.mkdir()
    make_store(root / "s", rng, 60)

    def named(name: str) -> str:
        path = str(root / name)
        return prefix + (quote(path) if prefix else path)

    assert jobs.audit(spark, named("s")).collect()[0].records == 60
    assert sum(row.messages for row in jobs.stats(spark, named("s")).collect()) == 60
    assert sum(row.messages for row in jobs.export(spark, named("s"), named("out")).collect()) == 60
    assert jobs.import_(spark, named("out"), named("imported")) == 60
    frame = spark.read.format("rocketstore").load(named("s"))
    sink = frame.write.format("rocketstore").mode("append").option("badRows", "divert")
    sink.options(stagingPath=named("staged"), badRowsPath=named("bad")).save(named("copy"))
    assert jobs.replay(spark, named("s"), named("copy")) == 60
    assert jobs.compact(spark, named("imported"), named("compacted")) > 0
    assert jobs.rebuild(spark, named("copy"), parts=1).units == 120
    assert {path.name for path in root.iterdir()} == {
        "s", "out", "imported", "copy", "compacted", "staged",
    }  # fmt: skip
