"""Queues and index made by tasks: the bytes that the store makes itself."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from tests.spark.reading import everything, make_store

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
SHAPE = {"index_slots": 100, "index_entries": 500}


def queues_of(root: Path) -> dict[str, bytes]:
    directory = root / "consumequeue"
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def index_of(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def test_the_same_bytes(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    root, copy = tmp_path / "s", tmp_path / "copy"
    there = make_store(root, rng)
    shutil.copytree(root, copy)
    for lost in (root, copy):
        shutil.rmtree(lost / "consumequeue")
        shutil.rmtree(lost / "index")
    rocketstore.open(copy, "rw", **SHAPE).close()
    report = jobs.rebuild(spark, root, parts=3, **SHAPE)
    assert queues_of(root) == queues_of(copy) and index_of(root) == index_of(copy)
    assert (report.parts, report.units, report.queues) == (3, len(there), 8)
    assert report.index_files == len(index_of(copy)) > 1
    assert len(everything(root)) == len(there)
    assert not (root / "rocketstore" / "rebuild").exists()


def test_what_stops_it_leaves_the_old_files(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    root = tmp_path / "s"
    make_store(root, rng, 200)
    before = queues_of(root)
    with rocketstore.open(root), pytest.raises(SparkFaceError, match=r"RS_STORE_LOCKED"):
        jobs.rebuild(spark, root)
    with pytest.raises(SparkFaceError, match="RS_NO_STORE"):
        jobs.rebuild(spark, tmp_path / "nowhere")
    segment = sorted((root / "commitlog").iterdir())[0]
    content = bytearray(segment.read_bytes())
    content[4] ^= 0xFF
    segment.write_bytes(content)
    with pytest.raises(Exception, match="rocketstore repair"):
        jobs.rebuild(spark, root, parts=2)
    assert queues_of(root) == before
    assert not (root / "rocketstore" / "rebuild").exists()


def test_from_a_shell(
    spark: Any, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    import contextlib

    from click.testing import CliRunner

    from rocketstore.cli import exit_codes
    from rocketstore.cli.app import cli
    from rocketstore.cli.commands import spark as face

    there = make_store(tmp_path / "s", rng, 100)
    monkeypatch.setattr(face, "spark_session", lambda master: contextlib.nullcontext(spark))
    words = ["spark", "rebuild", str(tmp_path / "s"), "--parts", "2"]
    found = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert found.exit_code == exit_codes.OK and f"{len(there)} units in 8 queues" in found.stdout
    found = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    assert json.loads(found.stdout)["units"] == len(there)
