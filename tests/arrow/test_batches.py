"""Scans as Arrow say what messages say."""

from __future__ import annotations

import datetime
import gc
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.os.mapping import mapped_files
from rocketstore.columns import COLUMNS
from tests.support.column_tools import fill_at_random, messages_of

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def as_arrow(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `messages_of` as pyarrow gives it to Python."""
    found = {name.removesuffix("_ms"): value for name, value in row.items()}
    for name in ("born_timestamp", "store_timestamp"):
        found[name] = EPOCH + datetime.timedelta(milliseconds=row[f"{name}_ms"])
    return found | {"properties": list(row["properties"].items())}


def test_batches_equal_messages(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store"
    fill_at_random(path, rng, 500)
    table = rocketstore.scan(path).to_arrow().read_all()
    table.validate(full=True)
    assert table.to_pylist() == [as_arrow(row) for row in messages_of(path)]


def test_every_column_alone(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store"
    fill_at_random(path, rng, 60)
    whole = rocketstore.scan(path, columns=COLUMNS).to_arrow().read_all()
    for name, field in zip(COLUMNS, whole.schema.names, strict=True):
        alone = rocketstore.scan(path, columns=[name]).to_arrow().read_all()
        alone.validate(full=True)
        assert alone.column(0).to_pylist() == whole.column(field).to_pylist()


def test_no_columns_still_have_rows(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store"
    fill_at_random(path, rng, 60)
    assert sum(batch.num_rows for batch in rocketstore.scan(path, columns=[]).to_arrow()) == 60


def test_views_share_the_mapped_file_and_keep_it(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store"
    fill_at_random(path, rng, 300)
    expected = [row["body"] for row in messages_of(path)]
    gc.collect()
    before = mapped_files()
    table = rocketstore.scan(path, columns=["body_view"]).to_arrow().read_all()
    table.validate(full=True)
    segments = len(list((path / "commitlog").iterdir()))
    gc.collect()
    assert before < mapped_files() <= before + segments
    for segment in (path / "commitlog").iterdir():
        segment.unlink()
    assert table.column("body").to_pylist() == expected
    del table
    gc.collect()
    assert mapped_files() == before


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rocketstore.open(path, durability="os", commit_log_file_size_bytes=4096) as store:
        store.writer("orders").put(b"body", tags="paid", keys="ab", properties={"name": "value"})
        store.writer("orders").put(b"second")
    segment = next((path / "commitlog").iterdir())
    content = segment.read_bytes()
    for old, new in (
        (b"paid", b"p\xffid"),
        (b"value", b"v\xc3lue"),
        (b"\x01ab\x02", b"\x01\xed\xa0\x02"),
    ):
        assert content.count(old) == 1
        content = content.replace(old, new)
    segment.write_bytes(content)
    scan = rocketstore.scan(path, verify=False)
    rows = scan.to_arrow().read_all().to_pylist()
    with rocketstore.open(path, "r") as store:
        message = rocketstore.Message.from_bytes(content[: rows[0]["size"]], verify=False)
    assert rows[0]["tags"] == message.tags == "p\ufffdid"
    assert rows[0]["keys"] == message.properties["KEYS"]
    assert dict(rows[0]["properties"]) == message.properties
    assert rows[1]["tags"] is None


def test_times_beyond_arrow_are_null(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rocketstore.open(path, durability="os", commit_log_file_size_bytes=4096) as store:
        store.put_message("orders", b"body", born_time=2**62)
        store.put_message("orders", b"body", born_time=1)
    table = rocketstore.scan(path, columns=["born_timestamp_ms"]).to_arrow().read_all()
    assert table.column(0).to_pylist() == [None, EPOCH + datetime.timedelta(milliseconds=1)]


def test_damage_ends_the_reader(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store"
    fill_at_random(path, rng, 50)
    rows = messages_of(path)
    place = rows[20]["physical_offset"]
    segment = sorted((path / "commitlog").iterdir())[place // (64 << 10)]
    with segment.open("r+b") as file:
        file.seek(place % (64 << 10) + 40)
        file.write(b"\xff\xff\xff")
    with pytest.raises(rocketstore.CorruptRecordError) as caught:
        rocketstore.scan(path).to_arrow().read_all()
    assert caught.value.physical_offset == place
    table = rocketstore.scan(path, on_damage="skip").to_arrow().read_all()
    assert table.column("physical_offset").to_pylist() == [
        row["physical_offset"] for row in rows if row["physical_offset"] != place
    ]


def test_a_missing_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        store.writer("orders").put(b"body")
        scan = rocketstore.scan(store)
    monkeypatch.setitem(__import__("sys").modules, "rocketstore.arrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rocketstore\[arrow\]'"):
        scan.to_arrow()
