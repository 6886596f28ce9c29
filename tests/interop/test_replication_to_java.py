"""RocketMQ's own stores as slaves of our master: the same bytes, and each status of SYNC_MASTER."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ReplicasUnavailableError, ReplicaTimeoutError
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, OracleStore
from tests.interop.views import Tally, of_oracle, of_ours
from tests.replication.cutting_proxy import CuttingProxy
from tests.replication.masters import open_master
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

#: How much a slave copies while its connection is cut: bytes, and how often.
BYTES = int(os.environ.get("ROCKETSTORE_REPLICATED_BYTES", 8 << 20))
CUTS = int(os.environ.get("ROCKETSTORE_REPLICATION_CUTS", 2))
SLAVE = {
    "brokerRole": "SLAVE",
    # The first report of RocketMQ 4 comes after this time (K-78).
    "haSendHeartbeatInterval": 100,
}
LARGE = {**SMALL, "mappedFileSizeCommitLog": 4 << 20, "maxMessageSize": 1 << 20}


@contextmanager
def slave_of(
    oracle: Oracle, path: Path, address: str, settings: dict[str, Any] = SMALL
) -> Iterator[OracleStore]:
    with oracle.open(path, {**settings, **SLAVE}) as slave:
        slave.follow(address)
        yield slave


def is_at(slave: OracleStore, end: int) -> None:
    wait_until(lambda: slave.end() == end, lambda: f"it is at {slave.end()} of {end}")


def assert_same_log(ours: Path, theirs: Path, end: int) -> None:
    """Each file byte for byte, the last one up to the end of the log."""
    own, other = (
        [path for path in sorted((root / "commitlog").iterdir()) if int(path.name) < end]
        for root in (ours, theirs)  # without the next ones, which both make ahead
    )
    assert [path.name for path in own] == [path.name for path in other]
    for mine, its in zip(own, other, strict=True):
        most = min(mine.stat().st_size, end - int(mine.name))
        with open(mine, "rb") as a, open(its, "rb") as b:
            assert a.read(most) == b.read(most), mine.name


def options_of(settings: dict[str, Any], durability: str) -> dict[str, Any]:
    config = config_of(settings, durability=durability)
    return {name: getattr(config, name) for name in config.given}


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_slave_has_the_same_bytes(
    oracle: Oracle, tally: Tally, tmp_path: Path, durability: str
) -> None:
    """Of what was there and of what came later; its queues and index are built from them."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options = options_of(SMALL, durability)
    with open_master(ours, options) as (store, master):
        put_part(store, 0)
        with slave_of(oracle, theirs, master.address) as slave:
            is_at(slave, store.end_offset)
            put_part(store, 1)
            is_at(slave, store.end_offset)
            slave.settle()
            tally.same(of_oracle(slave.dump()), of_ours(store))
            assert_same_log(ours, theirs, store.end_offset)
            wait_until(lambda: master.replicas[0].synced == store.end_offset)


def put_part(store: rocketstore.Store, part: int) -> None:
    for number in range(300):
        Sent(
            queue_id=number % 3,
            body=b"%d.%06d" % (part, number) + b"." * (number % 400),
            properties=(("KEYS", f"k{number}"), ("TAGS", "a")),
        ).put(store)


def test_a_slave_whose_connection_is_cut_has_the_same_bytes(
    oracle: Oracle, tmp_path: Path, rng: random.Random
) -> None:
    """At random bytes of frames, again and again; each time it goes on where it was."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options = {**options_of(LARGE, "os"), "max_unflushed_bytes": 1 << 30}
    with open_master(ours, options) as (store, master):
        writer = store.writer("Orders", queues=4)
        body = rng.randbytes(500_000)
        with (
            CuttingProxy(master.address, rng, CUTS, max(1, 2 * BYTES // (CUTS + 1))) as proxy,
            slave_of(oracle, theirs, proxy.address, LARGE) as slave,
        ):
            while store.end_offset < BYTES or proxy.cut < CUTS:
                writer.put(body[: rng.randint(0, len(body))])
                wait_until(lambda: store.end_offset - slave.end() < 32 << 20)
            is_at(slave, store.end_offset)
            assert proxy.cut == CUTS
            slave.settle()
            assert_same_log(ours, theirs, store.end_offset)


def test_a_slave_and_a_master_that_come_again(version: str, tmp_path: Path) -> None:
    """A slave that was killed goes on, as does one whose master was closed and opened."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options = options_of(SMALL, "disk")
    with open_master(ours, options) as (store, master):
        put_part(store, 0)
        address = master.address
        with Oracle(version) as killed:
            slave = killed.start(theirs, {**SMALL, **SLAVE})
            slave.follow(address)
            is_at(slave, store.end_offset)
            put_part(store, 1)
            killed.halt()
        with Oracle(version) as again:
            slave = again.start_again(theirs, {**SMALL, **SLAVE})
            slave.follow(address)
            is_at(slave, store.end_offset)
            store.close()
            with open_master(ours, options, listen=address) as (store, master):
                put_part(store, 2)
                is_at(slave, store.end_offset)
                slave.shutdown()
                assert_same_log(ours, theirs, store.end_offset)


def test_each_status_of_a_put_that_waits_for_a_slave(
    oracle: Oracle, tally: Tally, tmp_path: Path
) -> None:
    """SLAVE_NOT_AVAILABLE without one, PUT_OK with one, FLUSH_SLAVE_TIMEOUT with one that hangs."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options = options_of(SMALL, "replicas(2)")
    pid = oracle.ask("version")["pid"]
    with open_master(ours, options, replica_timeout=timedelta(seconds=1)) as (store, master):
        writer = store.writer("Orders")
        with pytest.raises(ReplicasUnavailableError) as alone:
            writer.put(b"alone")
        assert alone.value.status == "SLAVE_NOT_AVAILABLE"
        with slave_of(oracle, theirs, master.address) as slave:
            is_at(slave, store.end_offset)
            wait_until(lambda: bool(master.replicas) and master.replicas[0].synced > 0)
            result = writer.put(b"on two machines")
            assert result.durability == "replicas(2)"
            assert slave.end() >= result.end_offset
            os.kill(pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                with pytest.raises(ReplicaTimeoutError) as late:
                    writer.put(b"late")
                assert time.monotonic() - began >= 1
                assert late.value.status == "FLUSH_SLAVE_TIMEOUT"
                assert late.value.result is not None
            finally:
                os.kill(pid, signal.SIGCONT)
            is_at(slave, store.end_offset)
            assert writer.put(b"again").durability == "replicas(2)"
            slave.settle()
            tally.same(of_oracle(slave.dump()), of_ours(store))
        wait_until(lambda: not master.replicas)
        with pytest.raises(ReplicasUnavailableError):
            writer.put(b"alone again")
    assert_same_log(ours, theirs, result.end_offset)
