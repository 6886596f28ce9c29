"""`startingOffsets` of a checkpoint or of a group, as a function and as a command."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rocketstore
from rocketstore.cli.app import cli
from rocketstore.spark import starting_offsets
from rocketstore.spark.errors import SparkFaceError
from tests.spark.reading import make_store
from tests.spark.source.test_progress import batch, progress

SMALL = {"maxBytesPerTrigger": "30000", "startingOffsets": "earliest"}


def checkpoint(root: Path, *offsets: Any, done: int = 1, form: str = "v1") -> Path:
    """What Spark writes of micro-batches, of which the first ones are done; "-" for a stream without any."""
    for name in ("commits", "offsets"):
        (root / name).mkdir(parents=True, exist_ok=True)
    lines = [one if isinstance(one, str) else json.dumps(one) for one in offsets]
    for number in range(done + 1):
        text = "\n".join([form, '{"batchWatermarkMs":0}', *(lines if number == done - 1 else "-")])
        (root / "offsets" / f"{number}").write_text(text)
        (root / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number < done:
            (root / "commits" / f"{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return root


@pytest.mark.parametrize("given", [{}, {"startingOffsets": '{"orders": {"2": 9}}'}])
def test_a_new_query_goes_on_where_a_checkpoint_ends(
    tmp_path: Path, rng: random.Random, given: dict[str, str]
) -> None:
    root = tmp_path / "s"
    make_store(root, rng, 300)
    stream = progress(root, **{**SMALL, **given})
    place = stream.latest(stream.initial())
    stream.close()
    _, rest = batch(progress(root), place)
    other = {"topic": {"0": 5}}
    files = checkpoint(tmp_path / "c", other, f"1:{json.dumps(place)}", done=11)
    text = starting_offsets(root, files, source=1)
    first = progress(root, startingOffsets=text).initial()
    assert batch(progress(root, startingOffsets=text), first)[1] == rest != []
    words = ["spark", "offsets", str(root), files.as_uri(), "--source", "1", "--topic", "orders"]
    found = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert json.loads(found.stdout) == {"orders": json.loads(text)["orders"]}
    for source in (0, 2):
        with pytest.raises(SparkFaceError, match=rf"RS_BAD_CHECKPOINT.*with stream {source}"):
            starting_offsets(root, files, source=source)


def test_a_group_and_what_is_refused(tmp_path: Path, rng: random.Random) -> None:
    root = tmp_path / "s"
    make_store(root, rng, 60)
    with rocketstore.open(root) as store, store.consumer("orders", group="g") as consumer:
        consumer.poll(max_messages=20)
        kept = {"orders": {str(queue): at for queue, at in consumer.commit().items()}}
    found = CliRunner().invoke(cli, ["spark", "offsets", str(root), "--group", "g"])
    assert json.loads(found.stdout) == kept
    place = progress(root).end()
    for given, message in (
        ({}, "RS_BAD_OPTION. checkpoint"),
        ({"group": "g", "checkpoint": tmp_path / "c"}, "RS_BAD_OPTION. checkpoint"),
        ({"group": "g", "topics": ["events"]}, "RS_BAD_OPTION. group"),
        ({"group": "nobody"}, "RS_BAD_OPTION. group"),
        ({"checkpoint": "s3://lake/c"}, "RS_BAD_OPTION. checkpoint"),
        ({"checkpoint": tmp_path / "c"}, "RS_BAD_CHECKPOINT.*FileNotFoundError"),
        ({"checkpoint": checkpoint(tmp_path / "0", done=0)}, "RS_BAD_CHECKPOINT.*nothing is comm"),
        ({"checkpoint": checkpoint(tmp_path / "1", "-")}, "RS_BAD_CHECKPOINT"),
        ({"checkpoint": checkpoint(tmp_path / "2", {**place, "phys": None})}, "RS_BAD_CHECKPOINT"),
        ({"checkpoint": checkpoint(tmp_path / "3", {**place, "v": 9})}, "RS_BAD_CHECKPOINT"),
        ({"checkpoint": checkpoint(tmp_path / "4", {**place, "store": "x"})}, "RS_STORE_REPLACED"),
        ({"checkpoint": checkpoint(tmp_path / "5", {**place, "phys": 1 << 40})}, "RS_LOG_TRUNC"),
    ):
        with pytest.raises(SparkFaceError, match=message):
            starting_offsets(root, **given)
