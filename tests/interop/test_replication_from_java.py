"""RocketMQ as the master of our copies: the same bytes, whatever becomes of connections and masters."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import DivergedError, ReplicaStoreError, ReplicationError, Store
from rocketstore.replication import Replica
from rocketstore.replication.replica.service import ReplicaService
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, OracleStore
from tests.interop.views import Tally, of_oracle, of_ours
from tests.replication.cutting_proxy import CuttingProxy
from tests.support.ports import free_port
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

#: How much a copy receives while its connection is cut: bytes, and how often.
BYTES = int(os.environ.get("ROCKETSTORE_REPLICATED_BYTES", 8 << 20))
CUTS = int(os.environ.get("ROCKETSTORE_REPLICATION_CUTS", 5))
LARGE = {**SMALL, "mappedFileSizeCommitLog": 4 << 20, "maxMessageSize": 1 << 20}
SOON = timedelta(milliseconds=50)


@contextmanager
def java_master(
    oracle: Oracle, path: Path, settings: dict[str, Any] = SMALL
) -> Iterator[tuple[OracleStore, str]]:
    """A store of RocketMQ whose slaves come to a port that was just free."""
    port = free_port()
    opened = {**settings, "haListenPort": port, "haSendHeartbeatInterval": 100}
    with oracle.open(path, opened) as store:
        yield store, f"127.0.0.1:{port}"


def open_copy(
    path: Path,
    address: str,
    settings: dict[str, Any] = SMALL,
    durability: str = "disk",
    **replica: Any,
) -> Store:
    chosen = Replica(
        **{
            "master": address,
            "protocol": "rocketmq",
            "heartbeat_every": timedelta(milliseconds=200),
            "reconnect_every": SOON,
            **replica,
        }
    )
    config = config_of(settings, durability=durability)
    return rocketstore.open(path, config=config, replication=chosen)


def service_of(copy: Store) -> ReplicaService:
    service = engine_of(copy).guests.made(ReplicaService)
    assert isinstance(service, ReplicaService)
    return service


def put_part(store: OracleStore, part: int, count: int = 300) -> None:
    messages = [
        Sent(
            queue_id=number % 3,
            body=b"%d/%06d" % (part, number) + b"." * (number * 31 % 700),
            properties=(("KEYS", f"k{part}-{number}"), ("TAGS", f"t{number % 5}")),
        ).for_oracle()
        for number in range(count)
    ]
    store.put(messages)


def is_at(copy: Store, end: int) -> None:
    def why() -> str:
        service = service_of(copy)
        return f"at {copy.flushed_offset} of {end}: {service.error!r}, {service.last_error!r}"

    wait_until(lambda: copy.flushed_offset == end, why)


def assert_same_log(ours: Path, theirs: Path, begin: int, end: int) -> None:
    """Each file byte for byte, the last one up to the end of the log."""
    own, other = (
        [path for path in sorted((root / "commitlog").iterdir()) if begin <= int(path.name) < end]
        for root in (ours, theirs)  # without the next ones, which both make ahead
    )
    assert [path.name for path in own] == [path.name for path in other]
    for mine, its in zip(own, other, strict=True):
        most = min(mine.stat().st_size, end - int(mine.name))
        with open(mine, "rb") as a, open(its, "rb") as b:
            assert a.read(most) == b.read(most), mine.name


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_copy_has_the_same_bytes(
    oracle: Oracle, tally: Tally, tmp_path: Path, durability: str
) -> None:
    """From the oldest byte on, and of what comes later; its queues and index are built from them.
    It takes no puts, and goes on where it was when it is opened again."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with java_master(oracle, theirs) as (master, address):
        put_part(master, 0)
        with open_copy(ours, address, durability=durability) as copy:
            is_at(copy, master.end())
            put_part(master, 1)
            is_at(copy, master.end())
            wait_until(lambda: copy.replication.caught_up)
            with pytest.raises(ReplicaStoreError):
                copy.writer("Orders").put(b"refused")
            master.settle()
            tally.same(of_oracle(master.dump()), of_ours(copy))
        put_part(master, 2)
        with open_copy(ours, address, durability=durability) as copy:
            is_at(copy, master.end())
            assert service_of(copy).connections == 1
            master.settle()
            tally.same(of_oracle(master.dump()), of_ours(copy))
        assert_same_log(ours, theirs, 0, master.end())


def test_a_copy_begins_at_the_last_file(oracle: Oracle, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    size = int(SMALL["mappedFileSizeCommitLog"])
    with java_master(oracle, theirs) as (master, address):
        put_part(master, 0)
        begin = master.end() - master.end() % size
        with open_copy(ours, address, begin="last file") as copy:
            is_at(copy, master.end())
            put_part(master, 1)
            is_at(copy, master.end())
            assert copy.begin_offset == begin
        with open_copy(ours, address, begin="last file") as copy:  # after a clean stop
            put_part(master, 2, 40)
            is_at(copy, master.end())
            assert copy.begin_offset == begin
        assert_same_log(ours, theirs, begin, master.end())


def test_connections_are_cut_within_frames(oracle: Oracle, tmp_path: Path) -> None:
    """After each cut the copy compares its last bytes, and goes on."""
    seed = int(os.environ.get("ROCKETSTORE_SEED", "0")) or random.SystemRandom().getrandbits(32)
    print(f"ROCKETSTORE_SEED={seed}")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with java_master(oracle, theirs, LARGE) as (master, address):
        body = random.Random(seed).randbytes(32 << 10)
        for _ in range(0, BYTES, 64 * len(body)):
            master.put([Sent(body=body, queue_id=n % 2).for_oracle() for n in range(64)])
        most = max(BYTES // (2 * CUTS), 1)
        with (
            CuttingProxy(address, random.Random(seed), CUTS, most) as proxy,
            open_copy(ours, proxy.address, LARGE, "os") as copy,
        ):
            is_at(copy, master.end())
            assert proxy.cut == CUTS
            assert service_of(copy).connections >= CUTS
        assert_same_log(ours, theirs, 0, master.end())


def test_a_master_that_is_stopped_and_one_that_is_killed(version: str, tmp_path: Path) -> None:
    """The copy waits for it, and goes on."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    port, end = free_port(), 0
    settings = {
        **SMALL,
        "haListenPort": port,
        "haSendHeartbeatInterval": 100,
        "flushDiskType": "SYNC_FLUSH",
    }
    with open_copy(ours, f"127.0.0.1:{port}") as copy:
        for part, killed in enumerate((False, True, False)):
            with Oracle(version) as oracle:
                master = oracle.start_again(theirs, settings)
                put_part(master, part, 60)
                end = master.end()
                is_at(copy, end)
                if killed:
                    oracle.halt()
                else:
                    master.shutdown()
        assert service_of(copy).error is None
    assert_same_log(ours, theirs, 0, end)


def test_a_master_that_lost_its_tail_is_detected(oracle: Oracle, tmp_path: Path) -> None:
    """It goes on with other bytes at the same offsets: the copy stops, and mixes nothing."""
    ours, theirs, before = tmp_path / "ours", tmp_path / "theirs", tmp_path / "before"
    with java_master(oracle, theirs) as (master, _):
        put_part(master, 0, 50)
    shutil.copytree(theirs, before)
    with java_master(oracle, theirs) as (master, address), open_copy(ours, address) as copy:
        put_part(master, 1, 50)
        is_at(copy, master.end())
        end = master.end()
    with java_master(oracle, before) as (master, address):
        with open_copy(ours, address) as copy:  # shorter than the copy
            wait_until(lambda: service_of(copy).error is not None)
            error = service_of(copy).error
            assert isinstance(error, DivergedError)
            assert error.offset <= master.end() < end
        put_part(master, 2, 100)
        with open_copy(ours, address) as copy:  # longer, with other bytes
            wait_until(lambda: service_of(copy).error is not None)
            error = service_of(copy).error
            assert isinstance(error, DivergedError)
            assert copy.end_offset == end


def test_a_master_that_has_removed_what_a_copy_wants(oracle: Oracle, tmp_path: Path) -> None:
    """It sends nothing, and says nothing: the copy says what is to be done."""
    theirs = tmp_path / "theirs"
    size = int(SMALL["mappedFileSizeCommitLog"])
    with java_master(oracle, theirs) as (master, _):
        put_part(master, 0)
    (theirs / "commitlog" / f"{0:020}").unlink()
    with java_master(oracle, theirs) as (master, address):
        with open_copy(tmp_path / "ours", address) as copy:
            wait_until(lambda: service_of(copy).error is not None)
            error = service_of(copy).error
            assert isinstance(error, ReplicationError)
            assert not isinstance(error, DivergedError)
            assert "begin='last file'" in str(error)
        with open_copy(tmp_path / "other", address, begin=size) as copy:
            is_at(copy, master.end())
            assert copy.begin_offset == size
        assert_same_log(tmp_path / "other", theirs, size, master.end())


def test_a_reader_of_the_copy_while_it_grows(oracle: Oracle, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with java_master(oracle, theirs) as (master, address), open_copy(ours, address) as copy:
        put_part(master, 0, 10)
        is_at(copy, master.end())
        with rocketstore.open(ours, "r", config=config_of(SMALL)) as reader:
            put_part(master, 1, 200)
            seen = []
            with reader.consumer("Orders") as consumer:
                for message in consumer.follow(timeout_s=30):
                    seen.append(message.body)
                    if len(seen) == 210:
                        break
            assert len(set(seen)) == 210
