"""Stores whose consume queues RocketMQ keeps in RocksDB: read through the log, not written."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import ConfigError, ReadFailedError, tools
from rocketstore._native.format.scanner import VERIFY_BODY_CRC
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.paths import StoreLayout
from tests.support.made_store import MadeStore
from tests.support.small_store import SMALL, everything, open_small

PLACES = ("consumequeue", "consumequeue_rocksdb")


@pytest.fixture(params=PLACES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> MadeStore:
    """Another program's store of 90 messages, whose queues are in RocksDB."""
    made = MadeStore(tmp_path / "made")
    made.fill(90)
    shutil.rmtree(made.root / "consumequeue")
    directory = made.root / request.param
    directory.mkdir()
    (directory / "CURRENT").write_text("MANIFEST-000004\n")
    (directory / "MANIFEST-000004").write_bytes(b"\x01" * 100)
    return made


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_a_reader_makes_the_queues_from_the_log(
    made: MadeStore, caplog: pytest.LogCaptureFixture
) -> None:
    before = names(made.root)
    with caplog.at_level(logging.WARNING), open_small(made.root, "r") as store:
        topic = store.topics(system=True)[0]
        found = [message.physical_offset for message in everything(store, topic)]
        assert found == [record.physical_offset for record in made.records]
        assert any("are in RocksDB" in note for note in store.recovery.notes)
    assert "the consume queues are in RocksDB" in caplog.text
    assert names(made.root) == before


@pytest.mark.parametrize("mode", ["rw", "r+"])
def test_no_open_writes_to_it(made: MadeStore, mode: str) -> None:
    before = names(made.root)
    with pytest.raises(ConfigError, match="has its consume queues in RocksDB .*mode='r'"):
        open_small(made.root, mode)
    with pytest.raises(ConfigError, match="in RocksDB"):
        tools.rebuild(made.root, **SMALL)
    with pytest.raises(ConfigError, match="in RocksDB"):
        tools.repair(made.root)
    assert names(made.root) == before


def test_verify_says_that_queues_are_not_checked(made: MadeStore) -> None:
    report = tools.verify(made.root, index_slots=16, index_entries=64)
    assert not report.faults
    assert [one.reason for one in report.notices if "RocksDB" in one.reason]


def test_a_follower_gives_no_empty_answer(made: MadeStore) -> None:
    """While a broker writes. A scan reads the log all the same."""
    follower = Follower(StoreLayout(made.root), verify=VERIFY_BODY_CRC)
    try:
        for ask in (
            follower.topics,
            lambda: follower.queues("orders"),
            lambda: follower.queue("orders", 0),
        ):
            with pytest.raises(ReadFailedError, match="in RocksDB .*stop the broker.*scan"):
                ask()
    finally:
        follower.close()
    found = [offset for part in rocketstore.scan(made.root) for offset in part["physical_offset"]]
    assert len(found) == len(made.records)


def test_a_topic_of_that_name_is_none(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("CURRENT").put(b"x")
    with open_small(tmp_path) as store:
        assert [message.body for message in everything(store, "CURRENT")] == [b"x"]
