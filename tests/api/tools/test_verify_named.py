"""Verify names what it cannot hold against a queue or an index, and what an index lacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketstore._native.format.index_file import entry, entry_position
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.tools import VerifyReport, WithoutQueue, verify
from tests.support.batch_store import BatchStore
from tests.support.made_store import MadeStore
from tests.support.small_store import SMALL, open_small

SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}
MARK = "\N{REPLACEMENT CHARACTER}"


def check(root: Path) -> VerifyReport:
    return verify(root, **SHAPE)


def rename(root: Path, raw: bytes, old: bytes = b"strange") -> None:
    """Gives every record of a topic another one, as a client may send it."""
    assert len(raw) == len(old)
    for log in (root / "commitlog").iterdir():
        log.write_bytes(log.read_bytes().replace(b"\x07" + old, b"\x07" + raw))


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_a_topic_that_is_not_utf8_is_named(sys_flag: int, tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "s", record_crc=False)
    for _ in range(3):
        made.put("orders")
    first = made.put("strange", sys_flag=sys_flag)
    made.put("strange", sys_flag=sys_flag)
    made.dispatch()
    rename(made.root, b"abc\xffdef")
    shutil.rmtree(made.root / "consumequeue" / "strange")
    report = check(made.root)
    shown = f"abc{MARK}def"
    assert report.without_queue == (WithoutQueue(shown, 0, 2, first.physical_offset),)
    assert report.ok
    assert "2 records in no queue, whose topic or queue id can be no directory" in str(report)
    [notice] = report.notices
    assert (notice.code, shown in notice.reason) == ("name", True)


def test_a_queue_that_rocketmq_made_of_what_is_shown_is_looked_at(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "s", record_crc=False)
    for _ in range(3):
        made.put("strange")
    made.dispatch()
    rename(made.root, b"abc\xffdef")
    queues = made.root / "consumequeue"
    (queues / "strange").rename(queues / f"abc{MARK}def")
    report = check(made.root)
    assert (report.ok, report.notices, report.without_queue) == (True, (), ())


def test_a_topic_that_holds_the_replacement_character_is_no_other(tmp_path: Path) -> None:
    topic = f"a{MARK}b"
    made = MadeStore(tmp_path / "s")
    for _ in range(3):
        made.put(topic)
    made.dispatch()
    assert check(made.root).ok
    shutil.rmtree(made.root / "consumequeue" / topic)
    report = check(made.root)
    [hidden] = report.hidden_messages
    assert (hidden.topic, hidden.count, report.ok) == (topic, 3, False)


@pytest.mark.parametrize("topic", ["a/b", "..", "a\nb"])
def test_a_topic_that_can_be_no_directory_is_named(topic: str, tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "s")
    record = made.put(topic)
    report = check(made.root)
    assert report.without_queue == (WithoutQueue(topic, 0, 1, record.physical_offset),)


def tagged(root: Path, *, tags: bool) -> None:
    with open_small(root, index_tags=tags) as store:
        writer = store.writer("orders", tags="red")
        for number in range(20):
            writer.put(b"%d" % number, keys=f"k{number}")


def test_tags_without_an_entry_are_noticed(tmp_path: Path) -> None:
    tagged(tmp_path, tags=False)
    assert check(tmp_path).notices == ()  # an index of before 5.4: no tag has an entry
    tagged(tmp_path, tags=True)
    report = check(tmp_path)
    [notice] = report.notices
    assert (notice.code, notice.kind, report.ok) == ("tags", "derived", True)
    assert "none for 20 records with tags" in notice.reason


def test_one_entry_of_tags_that_is_wrong_is_noticed_as_missing(tmp_path: Path) -> None:
    tagged(tmp_path, tags=True)
    assert (check(tmp_path).notices, check(tmp_path).ok) == ((), True)
    index = IndexStore(StoreLayout(tmp_path), "read", *SHAPE.values())
    index.load()
    segment = index.files[0]
    hashes = [entry(segment.file, *segment.shape, number)[0] for number in range(1, 10)]
    index.close()
    number = next(n for n, one in enumerate(hashes, 1) if hashes.count(one) > 1)
    at = entry_position(SMALL["index_slots"], number)
    path = Path(segment.file.path)
    data = bytearray(path.read_bytes())
    data[at : at + 4] = (7).to_bytes(4)
    path.write_bytes(data)
    report = check(tmp_path)
    assert not report.ok
    assert ["tags" for notice in report.notices if "1 record with tags" in notice.reason] == [
        "tags"
    ]


def test_single_records_of_a_topic_with_batch_queues_are_named(tmp_path: Path) -> None:
    made = BatchStore(tmp_path / "s")
    made.put_batch([(b"one", {}), (b"two", {})])
    made.put(made.records[0].topic)
    report = check(made.root)
    assert [one.code for one in report.notices if one.code != "keys"] == ["batch"]
    assert report.ok
