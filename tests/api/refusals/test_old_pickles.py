"""Pickles that 0.1 made before its modules moved still load, by the names that they hold."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from tests.support.paths import ROOT

#: Errors that 0.1 did not have.
NEW_ERRORS = {
    rocketstore.BookmarkError,
    rocketstore.CronSyntaxError,
    rocketstore.DivergedError,
    rocketstore.FencedError,
    rocketstore.FilterSyntaxError,
    rocketstore.InvalidGroupError,
    rocketstore.NoGroupError,
    rocketstore.QueueNotFoundError,
    rocketstore.QueueOffsetMismatchError,
    rocketstore.ReplicaStoreError,
    rocketstore.ReplicaTimeoutError,
    rocketstore.ReplicasUnavailableError,
    rocketstore.ReplicationError,
    rocketstore.StoreBehindError,
    rocketstore.StoreRecoveringError,
    rocketstore.StoreReplacedError,
    rocketstore.TransactionBusyError,
    rocketstore.TransactionSettledError,
    rocketstore.UnknownTransactionError,
}
SAMPLES = ROOT / "tests" / "vectors" / "pickles_0_1"


def load(name: str) -> Any:
    return pickle.loads((SAMPLES / f"{name}.pickle").read_bytes())


def modules_of(sample: Path) -> set[str]:
    """Every module that a pickle of protocol 4 names."""
    texts = [str(argument) for _, argument, _ in pickletools.genops(sample.read_bytes())]
    return {text for text in texts if text.startswith("rocketstore.")}


SAMPLE_NAMES = sorted(path.stem for path in SAMPLES.glob("*.pickle"))


@pytest.mark.parametrize("name", SAMPLE_NAMES)
def test_an_old_pickle_loads_and_can_be_pickled_again(name: str) -> None:
    value = load(name)
    assert repr(pickle.loads(pickle.dumps(value))) == repr(value)


def test_the_samples_hold_old_names() -> None:
    names = set().union(*(modules_of(path) for path in SAMPLES.glob("*.pickle")))
    assert {"rocketstore._native.message", "rocketstore._native.put_result"} <= names
    assert len(names) == 15


def test_a_message() -> None:
    message = load("message")
    assert type(message) is rocketstore.Message
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 0, 0)
    assert (message.body, message.tags, message.keys) == (b"hello", "a", ("k1", "k2"))
    assert message.properties["p"] == "v"


def test_put_results() -> None:
    one, batch = load("put_result"), load("put_result_of_a_batch")
    assert type(one) is type(batch) is rocketstore.PutResult
    assert (one.physical_offset, one.size, one.durability) == (0, 144, "os")
    assert (batch.physical_offset, batch.count, batch.size) == (144, 2, 239)
    assert list(batch.queue_offsets) == [1, 0]


def test_a_scan() -> None:
    scan = load("scan")
    assert type(scan) is rocketstore.Scan
    assert (scan.begin_offset, scan.end_offset, scan.columns) == (0, 383, ("topic", "body"))
    assert scan.filter.topics == {"orders"}
    assert scan.filter.tags == {"a"}


def test_configurations() -> None:
    assert load("store_config") == rocketstore.StoreConfig(durability="os", flush_interval_ms=250)
    of_broker = load("store_config_of_a_broker")
    assert of_broker == rocketstore.StoreConfig.from_rocketmq(
        {"flushDiskType": "SYNC_FLUSH", "brokerName": "b"}
    )


def test_values() -> None:
    message = rocketstore.NewMessage(
        "orders", b"hello", 3, "a", ("k1", "k2"), {"p": "v"}, 7, 1_700_000_000_000, "s"
    )
    assert load("new_message") == message
    assert load("frames_result") == rocketstore.FramesResult(10, 20, 3, "disk")
    assert load("ship_report") == rocketstore.ShipReport(1, 2, 3.0, 4, 5, 6)
    report = load("recovery_report")
    assert type(report) is rocketstore.RecoveryReport
    assert (report.mode, report.cut, report.lost) == ("unclean", (100, 200), True)
    assert report.checkpoint.flushed == 100


def test_errors() -> None:
    errors = load("errors")
    public = {type(error) for error in errors}
    exported = [getattr(rocketstore, name) for name in rocketstore.__all__]
    assert public | NEW_ERRORS == {
        kind for kind in exported if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert not public & NEW_ERRORS
    said = {type(error).__name__: str(error) for error in errors}
    assert said["ConfigError"] == "a = 1: b"
    assert said["OffsetOutOfRangeError"] == "offset 5 is outside 0 … 3 (OFFSET_OVERFLOW_BADLY)"
