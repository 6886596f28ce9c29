"""What a copy of a running broker has beside its log, and what a stream of Spark reads of it."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.log.layout.state_files import read_json
from rocketstore.replication import Master, Replica, promote
from rocketstore.replication.broker.answers import delay_offsets
from rocketstore.replication.broker.frames import Answer, AnswerReader
from rocketstore.replication.broker.side_files import DELAY_OFFSETS
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.interop.broker_oracle import FILES, JavaBroker
from tests.interop.messages import SMALL
from tests.interop.oracle import Oracle
from tests.interop.test_replication_from_java import java_master, put_part
from tests.support.copies import store_is_there
from tests.support.paths import ROOT
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java


SOON = timedelta(milliseconds=100)
SHAPE: dict[str, Any] = {
    "commit_log_file_size_bytes": 1 << 20,
    "consume_queue_file_size_bytes": 20_000,
    "index_slots": 1000,
    "index_entries": 4000,
    "delay_levels": "1s 2s 1h",
}


def open_copy(path: Path, broker: JavaBroker) -> Store:
    replica = Replica(
        master=broker.master,
        protocol="rocketmq",
        broker=broker.address,
        broker_every=SOON,
        reconnect_every=SOON,
        heartbeat_every=SOON,
    )
    return rocketstore.open(path, replication=replica, **SHAPE)


def fill(broker: JavaBroker) -> None:
    for number in range(20):
        broker.ask("topic", name=f"Orders{number}")
        broker.ask("group", name=f"billing_{number}")
        for queue_id in range(3):
            broker.ask(
                "commit",
                group=f"billing_{number}",
                topic="Orders0",
                queue_id=queue_id,
                offset=number * 7 + queue_id,
            )
    for number in range(30):
        assert broker.ask("put", topic="Orders0", body=f"now {number}", level=0) == PUT
        assert (
            broker.ask("put", topic="Orders1", body=f"later {number}", level=1 + number % 3) == PUT
        )


PUT = {"status": "PUT_OK"}


def same(path: Path, broker: JavaBroker) -> bool:
    """Whether the files hold what the broker's classes encode."""
    return not _wrong(path, broker)


def _wrong(path: Path, broker: JavaBroker) -> dict[str, Any]:
    documents = broker.documents()
    offsets = documents["consumerOffset.json"]
    # Derived from the offsets, written since 5.3 and read by no release.
    offsets.pop("groupTopicMap", None)
    offsets.pop("dataVersion", None)  # of the table of all groups, to which a copy adds its own
    found = {name: _read(path, name) for name in FILES}
    if found["consumerOffset.json"]:  # RocketMQ passes over what a copy says of itself
        found["consumerOffset.json"].pop("rocketstore", None)
    return {n: (found[n], documents[n]) for n in FILES if found[n] != documents[n]}


def _read(path: Path, name: str) -> Any:
    return read_json(path / "config" / name)


def different(path: Path, copy: Store, broker: JavaBroker) -> str:
    return f"{copy.replication}: {_wrong(path, broker)}"[:6000]


def has_all(copy: Store) -> bool:
    """What a round counts and says, which follows the files that it writes."""
    files = copy.replication.broker
    return (
        files is not None
        and files.last_error is None
        and files.group_offsets == 60
        and (files.topics or 0) >= 20
        and (files.groups or 0) >= 20
    )


def assert_reads_binary(broker: JavaBroker) -> None:
    """RocketMQ 4 answers with the kind of header that it was asked with, RocketMQ 5 with its own."""
    header = struct.pack(">hBhiiii", DELAY_OFFSETS, 0, 0, 7, 0, 0, 0)
    frame = struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header
    host, port = broker.address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(frame)
        data = b""
        found: list[Answer] = []
        while not found:
            data += sock.recv(1 << 16)
            found = AnswerReader().receive(memoryview(data))
    assert data[4] == 1
    assert found[0].answers(7)
    assert delay_offsets(found[0].body)[0].keys() <= {1, 2, 3}


def test_a_copy_has_what_its_broker_encodes(version: str, tmp_path: Path) -> None:
    """Its answers have binary headers, the next test has those in JSON."""
    ours = tmp_path / "ours"
    with JavaBroker(version, tmp_path / "theirs", "ROCKETMQ") as broker:
        fill(broker)
        assert_reads_binary(broker)
        with open_copy(ours, broker) as copy:
            wait_until(lambda: same(ours, broker), lambda: different(ours, copy, broker))
            # A broker of RocketMQ 4 does not say where its log ends before its first second is over.
            wait_until(lambda: has_all(copy), lambda: different(ours, copy, broker))
            assert engine_of(copy).offsets.get("Orders0", "billing_3") == {0: 21, 1: 22, 2: 23}
            # What is delivered later comes with the log.
            broker.ask("commit", group="late", topic="Orders0", queue_id=0, offset=9)
            broker.ask("put", topic="Orders0", body="later", level=1)
            wait_until(
                lambda: (
                    _read(ours, "consumerOffset.json")["offsetTable"].get("Orders0@late")
                    == {"0": 9}
                )
            )
            wait_until(
                lambda: _read(ours, "delayOffset.json")["offsetTable"].get("1") == 11,
                lambda: different(ours, copy, broker),
            )


def test_a_promoted_copy_delivers_what_the_broker_had_not(version: str, tmp_path: Path) -> None:
    """Each delayed message once: those of the broker are not put again."""
    ours = tmp_path / "ours"
    with JavaBroker(version, tmp_path / "theirs") as broker:
        broker.ask("topic", name="Orders")
        for number in range(20):
            assert broker.ask("put", topic="Orders", body=f"soon {number}", level=1) == PUT
        assert broker.ask("put", topic="Orders", body="in an hour", level=3) == PUT
        with open_copy(ours, broker) as copy:
            wait_until(
                lambda: (
                    (_read(ours, "delayOffset.json") or {}).get("offsetTable", {}).get("1") == 20
                ),
                lambda: different(ours, copy, broker),
            )
            for number in range(20, 25):
                broker.ask("put", topic="Orders", body=f"soon {number}", level=1)
            end = broker.end()
            wait_until(lambda: copy.flushed_offset >= end)
    promote(ours)
    with rocketstore.open(ours, replication=Master(listen="127.0.0.1:0"), **SHAPE) as store:
        bodies: list[bytes] = []

        def delivered() -> bool:
            with store.consumer("Orders") as consumer:
                bodies[:] = [bytes(message.body) for message in consumer]
            return len(bodies) >= 25

        wait_until(delivered, lambda: repr(bodies))
        assert sorted(bodies) == sorted(b"soon %d" % number for number in range(25))


def test_a_stream_reads_each_message_of_a_master_once(oracle: Oracle, tmp_path: Path) -> None:
    """Also those that come while it reads, and after the copy was killed and began again."""
    copy = tmp_path / "copy"
    with java_master(oracle, tmp_path / "java") as (master, address):
        put_part(master, 0)
        with _following(address, copy):
            wait_until(lambda: store_is_there(copy))
            stream = Progress(ReadOptions.parse(_options(copy), stream=True))
            reading = _Reading(stream)
            put_part(master, 1)
            wait_until(lambda: reading.goes_on() >= 600)
        put_part(master, 2)
        with _following(address, copy):
            wait_until(lambda: reading.goes_on() >= 900)
        stream.close()
    assert [body.rstrip(b".") for body in reading.bodies] == [
        b"%d/%06d" % (part, number) for part in range(3) for number in range(300)
    ]


class _Reading:
    """What micro-batches had, one after the other; offsets go through a checkpoint's JSON."""

    def __init__(self, stream: Progress) -> None:
        self._stream, self._start = stream, stream.initial()
        self.bodies: list[bytes] = []

    def goes_on(self) -> int:
        """Reads what came; how many there are."""
        start = json.loads(json.dumps(self._start))
        end = self._stream.latest(start)
        if end != start:
            scans, _ = self._stream.parts(start, end)
            self.bodies += [bytes(body) for scan in scans for rows in scan for body in rows["body"]]
            self._start = end
        return len(self.bodies)


def _options(copy: Path) -> dict[str, str]:
    return {"path": str(copy), "startingOffsets": "earliest", "columns": "body"}


@contextlib.contextmanager
def _following(address: str, copy: Path) -> Iterator[None]:
    """`rocketstore follow`, which is killed at the end of the block."""
    size = SMALL["mappedFileSizeCommitLog"]
    words = ("follow", address, copy, "--protocol", "rocketmq", "--segment-bytes", size)
    with (
        open(copy.with_suffix(".log"), "ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "rocketstore", *map(str, words)],
            stdout=log, stderr=log, cwd=ROOT,
        ) as child,
    ):  # fmt: skip
        try:
            yield
        finally:
            child.kill()
