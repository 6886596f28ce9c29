"""`createStore=false`: an empty place, below which the store's disk is not mounted perhaps, stays empty."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.options import WriteOptions
from tests.spark.reading import everything
from tests.spark.writing import write, writer_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
pytest.importorskip("pyspark", reason="needs pyspark: make spark")
pytestmark = pytest.mark.filterwarnings("ignore")
NONE = r"^\[RS_NO_STORE\] path = .*/s': there is no %s, and createStore=false; .*mounted"


@pytest.mark.parametrize(
    ("kind", "options", "what"),
    [
        ("batch", {}, "store"),
        ("batch", {"txnAppId": "load", "txnVersion": "3"}, "store"),
        ("stream", {"txnAppId": "q"}, "store"),
        (
            "batch",
            {"shards": "auto", "segmentBytes": "64k", "maxMessageSizeBytes": "9k"},
            "directory of shards",
        ),
    ],
    ids=["batch", "named", "stream", "shards"],
)
def test_nothing_is_made(tmp_path: Path, kind: str, options: dict[str, str], what: str) -> None:
    root = tmp_path / "s"
    root.mkdir()
    with pytest.raises(SparkFaceError, match=NONE % what):
        writer_of(root, kind, **options, createStore="false")
    assert list(root.iterdir()) == []
    number = (0,) if kind == "stream" else ()
    write(writer_of(root, kind, **options), *number)  # the first write, which makes it
    again = {"txnVersion": "4"} if "txnVersion" in options else {}
    number = (1,) if kind == "stream" else ()
    write(writer_of(root, kind, **{**options, **again}, createStore="false"), *number)
    stores = sorted(root.glob("shard-*")) if "shards" in options else [root]
    assert [m.body for store in stores for m in everything(store)] == [b"a", b"a"]


@pytest.mark.parametrize("unmounted", ["before", "between"])
def test_a_first_batch_that_is_tried_again(tmp_path: Path, unmounted: str) -> None:
    """It may have been committed, although Spark does not know: a store made now would have it again, or hide it."""
    root, options = tmp_path / "s", {"txnAppId": "q", "createStore": "false"}
    rocketstore.open(root).close()
    write(writer_of(root, "stream", **options), 0)
    again = writer_of(root, "stream", **options) if unmounted == "between" else None
    root.rename(tmp_path / "unmounted")
    root.mkdir()
    with pytest.raises(SparkFaceError, match=NONE % "store"):
        write(again or writer_of(root, "stream", **options), 0)
    assert not (root / "commitlog").exists()


@pytest.mark.parametrize(
    ("kind", "number"), [("batch", ()), ("stream", (0,))], ids=["batch", "stream"]
)
def test_a_new_store_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, number: tuple[int, ...]
) -> None:
    """Once, and where: the path may be mistyped."""
    root = tmp_path / "s"
    told = (
        "rocketstore.spark.sink.sink",
        logging.WARNING,
        f"{root} had no store: a new one is made "
        "(createStore=false, or a command's --no-create, makes it an error)",
    )
    bad = (
        *told[:2],
        f"{root}: rows that cannot be messages: 1, kept in {root}/rocketstore/sink/bad_rows "
        "(badRows=divert)",
    )
    version = {} if number else {"txnVersion": "0"}
    write(writer_of(root, kind, txnAppId="q", **version), *number)
    assert [record for record in caplog.record_tuples if record[0] == told[0]] == [told, bad]
    caplog.clear()
    write(writer_of(root, kind, txnAppId="r", **version), *number)
    assert [record for record in caplog.record_tuples if record[0] == told[0]] == [bad]


def test_what_it_may_be(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "topic": "t"}
    assert WriteOptions.parse(given).create_store
    with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION\] createStore = 'never': true or f"):
        WriteOptions.parse({**given, "createStore": "never"})
