"""A master for slaves of RocketMQ: what they are sent, and when a connection ends."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore.replication import Master
from rocketstore.replication.master.log_source import LogSource
from rocketstore.replication.master.sender import ConnectedReplica, ReplicaSender
from rocketstore.replication.master.service import MasterService, begin_master
from rocketstore.replication.protocol.classic import REPORT, ClassicMasterLink
from rocketstore.replication.protocol.link import Acknowledged
from tests.replication.classic_slave import ClassicSlave
from tests.replication.copies import open_copy
from tests.replication.masters import open_master
from tests.support.ports import free_address
from tests.support.small_store import SEGMENT, dispatched, engine_of, open_small, parts
from tests.support.waiting import PATIENCE_S, wait_until

Served = Callable[..., tuple[rocketstore.Store, MasterService]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with ExitStack() as stack:
        yield lambda options=None, **settings: stack.enter_context(
            open_master(tmp_path / "store", options, **settings)
        )


def log_of(store: rocketstore.Store, begin: int = 0) -> bytes:
    files = parts(store).commit_log.queue
    data = bytearray()
    while begin < store.end_offset:
        file = files.find(begin)
        size = min(file.end_offset, store.end_offset) - begin
        data += file.read(begin - file.start_offset, size)
        begin += size
    return bytes(data)


@pytest.mark.quick
@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_a_slave_gets_the_log_byte_for_byte(served: Served, durability: str) -> None:
    """Blanks included, what is there and what comes, and no frame spans two files."""
    store, master = served({"durability": durability, "commit_interval_ms": 5})
    for number in range(40):
        store.writer("topic").put(b"%d" % number * 100)
    with ClassicSlave(master.address) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        for number in range(40):
            store.writer("topic").put(b"later %d" % number * 50)
        wait_until(lambda: slave.end == store.end_offset)
        assert slave.begin == 0
        assert bytes(slave.data) == log_of(store)
        data = [(offset, size) for offset, size in slave.frames if size]
        assert all(offset // SEGMENT == (offset + size - 1) // SEGMENT for offset, size in data)


def test_a_slave_goes_on_where_it_was(served: Served) -> None:
    """From the offset that it asks for, and no byte twice."""
    store, master = served()
    store.put_message("topic", b"first")
    with ClassicSlave(master.address) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        end = slave.end
    store.put_message("topic", b"second")
    with ClassicSlave(master.address, end) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        assert slave.begin == end
        assert bytes(slave.data) == log_of(store, end)


def test_a_slave_that_asks_within_a_record_does_not_count(served: Served) -> None:
    """Its log is another one, or ends within a record: nothing that it acknowledges is a copy."""
    store, master = served(replica_timeout=timedelta(seconds=9))
    first = store.put_message("topic", b"first").end_offset
    store.put_message("topic", b"second")
    with ClassicSlave(master.address, first + 9) as slave:
        wait_until(lambda: slave.end == store.end_offset and store.replication.peers)
        wait_until(lambda: store.replication.peers[0].lag_bytes == 0)
        (peer,) = store.replication.peers
        assert not peer.counts
        assert f"from {first + 9} on, where no record begins" in peer.unproved
        with pytest.raises(rocketstore.ReplicasUnavailableError):
            store.put_message("topic", b"third", durability="replicas(2)")
    with ClassicSlave(master.address, first) as slave:
        wait_until(lambda: [one.counts for one in store.replication.peers] == [True])
        (peer,) = store.replication.peers
        assert "compares no bytes" in peer.unproved
        store.put_message("topic", b"fourth", durability="replicas(2)")


def test_frames_end_where_records_do(served: Served) -> None:
    """So a slave that lost its connection asks for the log where a record begins."""
    store, master = served(max_bytes_per_s=200_000)  # 4,000 at a time
    ends = {store.put_message("topic", bytes(700 + 13 * n)).end_offset for n in range(40)}
    ends |= {SEGMENT * n for n in range(40)}
    with ClassicSlave(master.address) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        data = [(offset, size) for offset, size in slave.frames if size]
    assert any((offset + size) % SEGMENT and offset + size < slave.end for offset, size in data)
    assert {offset + size for offset, size in data} <= ends


def test_a_copy_of_ours_asks_where_a_record_begins(served: Served, tmp_path: Path) -> None:
    """Also one whose last records are larger than what is compared at the least."""
    small = {"commit_log_file_size_bytes": 1 << 20, "max_message_size_bytes": 1 << 19}
    store, master = served(small)
    for body in (b"x" * 900, bytes(200_000), b"y" * 900, bytes(150_000)):
        for _ in range(3):
            store.put_message("topic", body)
        with open_copy(tmp_path / "copy", master.address, small, protocol="rocketmq") as copy:
            wait_until(lambda copy=copy: copy.flushed_offset == store.end_offset)  # type: ignore[misc]
            wait_until(lambda: [one.counts for one in store.replication.peers] == [True])
        wait_until(lambda: not store.replication.peers)


def test_an_empty_slave_begins_with_the_oldest_message(served: Served) -> None:
    """K-75: not with the last file, also where the log does not begin at 0."""
    store, master = served()
    for number in range(60):
        store.put_message("topic", b"%d" % number * 100)
    dispatched(store).flush()
    begin = store.trim(before_offset=2 * SEGMENT)
    with ClassicSlave(master.address) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        assert slave.begin == store.begin_offset == begin > 0


@pytest.mark.parametrize("ask", [1, 10**9], ids=["removed", "never there"])
def test_a_slave_that_asks_for_what_is_not_there_is_disconnected(served: Served, ask: int) -> None:
    store, master = served()
    for number in range(60):
        store.put_message("topic", b"%d" % number * 100)
    dispatched(store).flush()
    store.trim(before_offset=2 * SEGMENT)
    with ClassicSlave(master.address, ask) as slave:
        assert slave.ended.wait(PATIENCE_S)
        assert not slave.data
    wait_until(lambda: master.last_error is not None)
    assert isinstance(master.last_error, rocketstore.ReplicationError)
    assert f"from {ask} on" in str(master.last_error)


def test_an_acknowledgement_of_what_was_not_sent_ends_the_connection(served: Served) -> None:
    """K-76: and it confirms nothing."""
    store, master = served()
    store.put_message("topic", b"body")
    with ClassicSlave(master.address, acknowledges=False) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        slave.report(store.end_offset + 1)
        assert slave.ended.wait(PATIENCE_S)
    wait_until(lambda: not master.replicas)
    copies = parts(store).commit_log.log.group.copies
    assert copies.confirmed_offset(2) == 0


def test_the_last_whole_report_counts(served: Served) -> None:
    """Reports come in any pieces, and the last whole one of a piece counts."""
    store, master = served()
    store.put_message("topic", b"body")
    end = store.end_offset
    with ClassicSlave(master.address, acknowledges=False) as slave:
        wait_until(lambda: slave.end == end)
        several = REPORT.pack(1) + REPORT.pack(end - 1)
        slave.sock.sendall(several[:11])
        slave.sock.sendall(several[11:] + REPORT.pack(end)[:3])
        wait_until(lambda: master.replicas[0].synced == end - 1)
        slave.sock.sendall(REPORT.pack(end)[3:])
        wait_until(lambda: master.replicas[0].synced == end)
        assert master.replicas[0].lag_bytes == 0


def test_a_connection_with_nothing_to_send_has_heartbeats(served: Served) -> None:
    """Empty frames, whose offset is that of the next byte."""
    store, master = served(heartbeat_every=timedelta(milliseconds=20))
    store.put_message("topic", b"body")
    with ClassicSlave(master.address) as slave:
        wait_until(lambda: slave.frames.count((store.end_offset, 0)) >= 2)


@pytest.mark.parametrize("asks", [True, False], ids=["after its first word", "from the begin"])
def test_a_silent_slave_is_disconnected(served: Served, asks: bool) -> None:
    """Housekeeping."""
    _, master = served(silence_limit=timedelta(milliseconds=100))
    host, port = master.address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
        if asks:
            sock.sendall(REPORT.pack(0))
        # A report that comes in the moment of the end is not read, which resets the connection.
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    wait_until(lambda: "said nothing" in str(master.last_error))


def test_there_are_no_more_slaves_than_allowed(served: Served) -> None:
    store, master = served(max_replicas=1)
    with ClassicSlave(master.address) as first:
        wait_until(lambda: [one.asked for one in master.replicas] == [0])  # it has the place
        with ClassicSlave(master.address) as second:
            assert second.ended.wait(PATIENCE_S)
        store.put_message("topic", b"body")
        wait_until(lambda: first.end == store.end_offset)
    assert master.refused == 1
    wait_until(lambda: not master.replicas)
    with ClassicSlave(master.address) as third:
        wait_until(lambda: third.end == store.end_offset)


def test_a_slave_that_does_not_read_stalls_nobody(served: Served) -> None:
    """S003-47: neither another slave nor a put, and what waits for it has a bound."""
    store, master = served({"commit_log_file_size_bytes": 1 << 20})
    host, port = master.address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as stuck:
        stuck.sendall(REPORT.pack(0))
        with ClassicSlave(master.address) as slave:
            for _ in range(100):
                store.put_message("topic", bytes(100_000))
            wait_until(lambda: slave.end == store.end_offset)
        wait_until(lambda: len(master.replicas) == 1)
        assert master.replicas[0].sent < store.end_offset


def test_a_limit_of_bytes_a_second_holds(served: Served) -> None:
    store, master = served(max_bytes_per_s=200_000)
    for _ in range(100):
        store.put_message("topic", bytes(1000))
    with ClassicSlave(master.address) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        connected_s = master.replicas[0].connected_s
    assert connected_s > 0.8 * store.end_offset / 200_000


def test_a_replica_that_is_seen_to_lack_nothing_counts() -> None:
    """Nobody sees an acknowledgement that has been taken in part."""
    source = LogSource(lambda: 100, lambda: 0, lambda *_: None, dict, lambda _: True)
    nothing: Any = lambda *_: None  # noqa: E731
    channel: Any = SimpleNamespace(peer="127.0.0.1:1")
    seen: list[ConnectedReplica] = []
    looks = threading.Thread(target=lambda: seen.append(sender.snapshot()))

    def count(sender: ReplicaSender, synced: int) -> None:
        looks.start()
        looks.join(0.2)
        seen_before.extend(seen)

    seen_before: list[ConnectedReplica] = []
    sender = ReplicaSender(
        channel,
        ClassicMasterLink(),
        source,
        Master(),
        count,
        nothing,
        nothing,
        nothing,
        throttle=nothing,
    )
    sender.position = 100
    sender._times.note_end(100)
    sender._times.ends[0] = (100, time.monotonic() - 5)
    assert (sender.snapshot().lag_bytes, sender.snapshot().lag_ms >= 5000) == (100, True)
    sender._take(Acknowledged(100, 100))
    looks.join()
    assert seen_before == []
    assert [(one.synced, one.lag_bytes, one.lag_ms) for one in seen] == [(100, 0, 0)]


def test_retention_keeps_what_a_slave_is_sent_next(served: Served) -> None:
    store, master = served()
    guests = engine_of(store).guests
    for number in range(60):
        store.put_message("topic", b"%d" % number * 100)
    assert guests.holds() == []
    with ClassicSlave(master.address, SEGMENT) as slave:
        wait_until(lambda: slave.end == store.end_offset)
        assert guests.holds() == [("a replica", store.end_offset)]
    wait_until(lambda: guests.holds() == [])


def test_a_close_ends_connections_and_frees_the_port(tmp_path: Path) -> None:
    settings = Master(listen=free_address(), protocol="rocketmq")
    with open_small(tmp_path) as store:
        master = begin_master(store._writing("replication"), settings)
        slave = ClassicSlave(master.address)
        wait_until(lambda: len(master.replicas) == 1)
    assert slave.ended.wait(PATIENCE_S)
    slave.close()
    again = Master(listen=master.address, protocol="rocketmq")
    with open_small(tmp_path) as store:
        assert begin_master(store._writing("replication"), again).address == master.address
    assert "rocketstore-master" not in [one.name for one in threading.enumerate()]


def test_a_store_has_one_master(served: Served) -> None:
    """A second call finds the first one's."""
    store, master = served()
    assert (
        begin_master(
            store._writing("replication"), Master(listen="127.0.0.1:0", protocol="rocketmq")
        )
        is master
    )
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("rocketstore-master") == 1


def test_a_port_that_is_taken_is_said(served: Served, tmp_path: Path) -> None:
    _, master = served()
    with open_small(tmp_path / "other") as store, pytest.raises(OSError, match=master.address):
        begin_master(
            store._writing("replication"), Master(listen=master.address, protocol="rocketmq")
        )
