"""What a broker knows beside its log is kept in the files of a copy, and nothing else is."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, ReplicaStoreError, ReplicationError, Store
from rocketstore.log.layout.state_files import read_json
from rocketstore.replication import BrokerFiles, Replica, promote
from rocketstore.values.bounded_json import LIMITS, Limits
from tests.replication.broker.broker_like import BrokerLike, json_frame
from tests.replication.copies import open_copy
from tests.replication.test_classic_replica import JavaLike
from tests.support.small_store import engine_of, log_bytes, open_small
from tests.support.waiting import pause, wait_until

TOPICS, LOG_END, OFFSETS, DELAYS, GROUPS = 21, 28, 43, 45, 201
VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 1700000000000}


def text(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def bodies(end: int, **changed: Any) -> dict[int, Any]:
    """What a broker with a log up to `end` answers; names of `changed` are those of the files."""
    found = {
        "topics": text({
            "dataVersion": VERSION,
            "mappingDataVersion": VERSION,
            "topicConfigTable": {"orders": {"perm": 6, "topicName": "orders"}},
            "topicQueueMappingDetailMap": {},
        }),
        "groups": text({
            "dataVersion": VERSION,
            "forbiddenTable": {},
            "subscriptionGroupTable": {"billing": {"groupName": "billing"}},
        }),
        "offsets": b'{"dataVersion":{"counter":4},"offsetTable":{"orders@billing":{0:5,1:999}}}',
        "delays": b'{"offsetTable":{1:5,18:7}}',
        "end": text({"table": {"commitLogMaxOffset": str(end)}}),
        **changed,
    }  # fmt: skip
    codes = {"topics": TOPICS, "groups": GROUPS, "offsets": OFFSETS, "delays": DELAYS}
    return {code: found[name] for name, code in (*codes.items(), ("end", LOG_END))}


@pytest.fixture
def log(tmp_path: Path) -> bytes:
    path = tmp_path / "source"
    with open_small(path) as store:
        for number in range(30):
            store.writer("orders", queue_id=number % 2).put(b"%d" % number)
        end = store.end_offset
    return log_bytes(path)[:end]


@pytest.fixture
def master(log: bytes) -> Iterator[JavaLike]:
    found = JavaLike(log)
    yield found
    found.close()


def open_asking(path: Path, master: JavaLike, broker: BrokerLike | str, **settings: Any) -> Store:
    return open_copy(
        path,
        master.address,
        **{
            "protocol": "rocketmq",
            "broker": broker if isinstance(broker, str) else broker.address,
            "broker_every": timedelta(milliseconds=50),
            **settings,
        },
    )


def files_of(copy: Store) -> BrokerFiles:
    found = copy.replication.broker
    assert found is not None
    return found


def config_of(path: Path, name: str) -> Any:
    return read_json(path / "config" / name)


def got_all(copy: Store) -> bool:
    files = files_of(copy)
    return None not in (files.topics, files.groups, files.group_offsets, files.delay_levels)


@pytest.mark.parametrize("binary", [False, True])
def test_a_copy_has_what_the_broker_has(
    tmp_path: Path, log: bytes, master: JavaLike, binary: bool
) -> None:
    path = tmp_path / "copy"
    with (
        BrokerLike(bodies(len(log)), binary=binary) as broker,
        open_asking(path, master, broker) as copy,
    ):
        wait_until(lambda: got_all(copy), lambda: repr(files_of(copy)))
        files = files_of(copy)
        assert (files.topics, files.groups, files.group_offsets, files.delay_levels) == (1, 1, 2, 2)
        assert files.asked_ms is not None
        assert abs(files.asked_ms - time.time() * 1000) < 60_000
        assert files.last_error is None
        assert engine_of(copy).offsets.get("orders", "billing") == {0: 5, 1: 999}
        with rocketstore.open(path, "r", config=copy.config) as reader:
            assert engine_of(reader).offsets.get("orders", "billing") == {0: 5, 1: 999}
    assert config_of(path, "topics.json") == {
        "dataVersion": VERSION,
        "topicConfigTable": {"orders": {"perm": 6, "topicName": "orders"}},
    }
    assert config_of(path, "subscriptionGroup.json")["subscriptionGroupTable"].keys() == {"billing"}
    assert config_of(path, "delayOffset.json") == {"offsetTable": {"1": 5, "18": 7}}
    assert set(broker.asked) == {TOPICS, LOG_END, OFFSETS, DELAYS, GROUPS}


def test_nobody_is_asked_without_an_address(tmp_path: Path, master: JavaLike) -> None:
    with open_copy(tmp_path / "copy", master.address, protocol="rocketmq") as copy:
        assert copy.replication.broker is None


def test_a_broker_is_asked_as_often_as_was_said(
    tmp_path: Path, log: bytes, master: JavaLike
) -> None:
    with (
        BrokerLike(bodies(len(log))) as broker,
        open_asking(tmp_path / "copy", master, broker, broker_every=timedelta(hours=1)) as copy,
    ):
        wait_until(lambda: got_all(copy))
        pause(0.3)
        assert sorted(broker.asked) == [TOPICS, LOG_END, OFFSETS, DELAYS, GROUPS]


DAMAGED: dict[str, Any] = {
    "cut": lambda whole: whole[:-2],
    "text": lambda whole: b"\xff" + whole,
    "array": lambda whole: b"[" + whole + b"]",
    "empty": lambda whole: b"",
    "deep": lambda whole: b'{"a":' * 5000,
}


def held(copy: Store, file: Path) -> object:
    """What counts of a file; commits of groups are in a journal first."""
    if file.name == "consumerOffset.json":
        return dict(engine_of(copy).offsets.table)
    return file.read_bytes()


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("topics", "topics.json"),
        ("groups", "subscriptionGroup.json"),
        ("offsets", "consumerOffset.json"),
        ("delays", "delayOffset.json"),
    ],
)
def test_a_damaged_answer_changes_nothing(
    tmp_path: Path, log: bytes, master: JavaLike, name: str, file: str, damage: str
) -> None:
    """The error names the file, the log and the other files go on."""
    path = tmp_path / "copy"
    whole = bodies(len(log))
    with BrokerLike(whole) as broker, open_asking(path, master, broker) as copy:
        wait_until(lambda: got_all(copy))
        before = held(copy, path / "config" / file)
        code = {"topics": TOPICS, "groups": GROUPS, "offsets": OFFSETS, "delays": DELAYS}[name]
        broker.bodies = {**whole, code: DAMAGED[damage](whole[code])}
        wait_until(lambda: files_of(copy).last_error is not None)
        error = files_of(copy).last_error
        assert isinstance(error, ReplicationError)
        assert file in str(error)
        assert held(copy, path / "config" / file) == before
        wait_until(lambda: copy.flushed_offset == len(log))
        assert copy.replication.error is None
        broker.bodies = whole
        wait_until(lambda: files_of(copy).last_error is None)


def test_a_table_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, log: bytes, master: JavaLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that makes up groups does not take those that are there."""
    path = tmp_path / "copy"
    with BrokerLike(bodies(len(log))) as broker, open_asking(path, master, broker) as copy:
        wait_until(lambda: got_all(copy))
        monkeypatch.setitem(LIMITS, "consumerOffset.json", Limits(1 << 20, 100))
        rows = {f"orders@made_up_{number}": {"0": 1} for number in range(50)}
        broker.bodies = {**broker.bodies, OFFSETS: text({"offsetTable": rows})}
        wait_until(lambda: files_of(copy).last_error is not None)
        assert "consumerOffset.json" in str(files_of(copy).last_error)
        assert engine_of(copy).offsets.groups() == ("billing",)


def test_a_refused_request_leaves_the_others(tmp_path: Path, log: bytes, master: JavaLike) -> None:
    """As a broker whose store keeps no delay levels."""
    with (
        BrokerLike(bodies(len(log), delays=1)) as broker,
        open_asking(tmp_path / "copy", master, broker) as copy,
    ):
        wait_until(lambda: files_of(copy).group_offsets is not None)
        wait_until(lambda: files_of(copy).last_error is not None)
        assert "No such thing in this broker" in str(files_of(copy).last_error)
        assert files_of(copy).delay_levels is None


def test_a_broker_that_is_not_there(tmp_path: Path, log: bytes, master: JavaLike) -> None:
    with socket.socket() as bound:  # nobody listens at its port, and no other process gets it
        bound.bind(("127.0.0.1", 0))
        broker = f"127.0.0.1:{bound.getsockname()[1]}"
        with open_asking(tmp_path / "copy", master, broker) as copy:
            wait_until(lambda: files_of(copy).last_error is not None)
            assert isinstance(files_of(copy).last_error, OSError)
            wait_until(lambda: copy.flushed_offset == len(log))


def test_another_broker_is_noticed(tmp_path: Path, log: bytes, master: JavaLike) -> None:
    """Its log is shorter than the copy."""
    path = tmp_path / "copy"
    with (
        BrokerLike(bodies(len(log) - 1)) as broker,
        open_asking(path, master, broker) as copy,
    ):
        wait_until(lambda: copy.flushed_offset == len(log))
        wait_until(lambda: files_of(copy).last_error is not None)
        assert "the log of this broker ends at" in str(files_of(copy).last_error)


def test_delay_levels_wait_for_the_log(tmp_path: Path, log: bytes) -> None:
    """The broker has delivered what the copy lacks: its offsets come with the log that has it."""
    path = tmp_path / "copy"
    part = JavaLike(log[: len(log) // 2])
    with BrokerLike(bodies(len(log))) as broker, open_asking(path, part, broker) as copy:
        wait_until(lambda: files_of(copy).group_offsets is not None)
        pause(0.3)
        assert files_of(copy).delay_levels is None
        assert not (path / "config" / "delayOffset.json").exists()
    part.close()
    whole = JavaLike(log)
    with BrokerLike(bodies(len(log))) as broker, open_asking(path, whole, broker) as copy:
        wait_until(lambda: files_of(copy).delay_levels == 2)
    whole.close()


def test_a_group_of_the_broker_commits_there(tmp_path: Path, log: bytes, master: JavaLike) -> None:
    """Others commit in the copy, and stay."""
    at_five = text({"offsetTable": {"orders@billing": {"0": 5}, "of no group": {"0": 5}}})
    with (
        BrokerLike({**bodies(len(log)), OFFSETS: at_five}) as broker,
        open_asking(tmp_path / "copy", master, broker, broker_every=timedelta(seconds=0.2)) as copy,
    ):
        wait_until(lambda: files_of(copy).group_offsets == 1, lambda: repr(files_of(copy)))
        wait_until(lambda: copy.flushed_offset == len(log))
        with copy.consumer("orders", group="billing") as consumer:
            assert consumer.poll()
            with pytest.raises(ReplicaStoreError, match="billing"):
                consumer.commit()
        with copy.consumer("orders", group="here") as consumer:
            assert consumer.poll()
            consumer.commit()
        assert "of no group" not in engine_of(copy).offsets.table
        here = engine_of(copy).offsets.get("orders", "here")
        begun = broker.asked.count(OFFSETS)
        broker.bodies = {
            **broker.bodies,
            OFFSETS: text({"offsetTable": {"orders@billing": {"0": 6}}}),
        }
        wait_until(lambda: broker.asked.count(OFFSETS) > begun + 2)
        assert engine_of(copy).offsets.get("orders", "here") == here
        assert engine_of(copy).offsets.get("orders", "billing") == {0: 6}


def test_a_promoted_copy_sets_offsets_back_to_its_log(
    tmp_path: Path, log: bytes, master: JavaLike
) -> None:
    """What a group had consumed beyond it comes again under other offsets."""
    path = tmp_path / "copy"
    with BrokerLike(bodies(len(log))) as broker, open_asking(path, master, broker) as copy:
        wait_until(lambda: got_all(copy) and copy.flushed_offset == len(log))
        assert engine_of(copy).offsets.get("orders", "billing")[1] == 999
    promote(path)
    with open_small(
        path, replication=rocketstore.replication.Master(listen="127.0.0.1:0")
    ) as store:
        assert engine_of(store).offsets.get("orders", "billing") == {0: 5, 1: 15}
        store.writer("orders", queue_id=1).put(b"new")
        with store.consumer("orders", group="billing") as consumer:
            got = {message.body for message in consumer.follow(timeout_s=0.5)}
        assert b"new" in got


def test_frames_that_answer_nothing_end_the_connection(
    tmp_path: Path, log: bytes, master: JavaLike
) -> None:
    noise = tuple(json_frame(9999, b"") for _ in range(20))
    with (
        BrokerLike(bodies(len(log), delays=noise)) as broker,
        open_asking(tmp_path / "copy", master, broker) as copy,
    ):
        wait_until(lambda: files_of(copy).last_error is not None)
        assert isinstance(files_of(copy).last_error, ReplicationError)


@pytest.mark.parametrize(
    "given",
    [
        {"broker": "nowhere"},
        {"broker": "127.0.0.1:0"},
        {"broker": 10911},
        {"broker": "127.0.0.1:10911", "protocol": "rocketstore"},
        {"broker_every": timedelta(0)},
        {"broker_every": "10"},
    ],
)
def test_settings_that_there_are_not(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Replica(**{"master": "127.0.0.1:10912", "protocol": "rocketmq", **given})
    assert refused.value.field in given
