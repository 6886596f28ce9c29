"""A copy of a master of RocketMQ, which a socket with the bytes of a log plays here."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rocketstore import DivergedError, ReplicaStoreError, ReplicationError, Store
from rocketstore.replication.protocol.classic import OVERLAP_BYTES, ClassicReplicaLink
from rocketstore.replication.protocol.link import Data, Heartbeat
from rocketstore.replication.replica.records import RecordAssembler
from tests.replication.copies import open_copy, put_some
from tests.support.small_store import SEGMENT, engine_of, log_bytes, open_small
from tests.support.waiting import pause, wait_until


class JavaLike:
    """Sends `log[offset:]` to who asks for an offset it has, in frames of `frame` bytes; else a
    heartbeat, again and again. 0 is the begin of the last file, as with RocketMQ. It reads after
    `late_s`, the last number that has come, as RocketMQ does."""

    def __init__(
        self, log: bytes, *, begin: int = 0, frame: int = 700, late_s: float = 0.0
    ) -> None:
        self.log, self.begin, self.frame, self.late_s = log, begin, frame, late_s
        #: First number of each connection, and the last of all.
        self.asked: list[int] = []
        self.acknowledged = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._open):
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            first = _exactly(sock, 8)
            pause(self.late_s)
            with contextlib.suppress(BlockingIOError):
                first += sock.recv(1 << 10, socket.MSG_DONTWAIT)
            offset = struct.unpack(">q", first[-8:])[0]
            self.asked.append(offset)
            at = offset or (len(self.log) - len(self.log) % SEGMENT)
            has = self.begin <= at <= len(self.log)
            while has and at < len(self.log):
                to = min(len(self.log), at + self.frame, at - at % SEGMENT + SEGMENT)
                sock.sendall(struct.pack(">qi", at, to - at) + self.log[at:to])
                at = to
            sock.settimeout(0.02)
            while True:
                try:
                    self.acknowledged = struct.unpack(">q", _exactly(sock, 8))[0]
                except TimeoutError:
                    sock.sendall(struct.pack(">qi", at, 0))
        except OSError:
            sock.close()


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError
    return data


@contextmanager
def java_like(log: bytes, **how: Any) -> Iterator[JavaLike]:
    master = JavaLike(log, **how)
    try:
        yield master
    finally:
        master.close()


def follow(path: Path, master: JavaLike, **settings: Any) -> Store:
    settings = {"heartbeat_every": timedelta(milliseconds=50), **settings}
    return open_copy(path, master.address, protocol="rocketmq", **settings)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("log") / "m"
    with open_small(path) as store:
        put_some(store, 60)
        return log_bytes(path)[: store.end_offset]


def is_at(copy: Store, end: int) -> None:
    def why() -> str:
        return f"{copy.replication}"

    wait_until(lambda: copy.flushed_offset == end, why)


def test_a_copy_acknowledges_what_is_on_its_disk(tmp_path: Path, log: bytes) -> None:
    with java_like(log) as master, follow(tmp_path / "c", master) as copy:
        is_at(copy, len(log))
        wait_until(lambda: master.acknowledged == len(log))
        assert master.asked == [1]  # 0 would be the last file
        status = copy.replication
        assert (status.role, [peer.lag_bytes for peer in status.peers]) == ("replica", [0])
        assert len(list(copy.consumer("orders"))) == 60
        assert log_bytes(tmp_path / "c")[: len(log)] == log


def test_a_master_that_reads_late_takes_a_heartbeat_for_the_request(
    tmp_path: Path, log: bytes
) -> None:
    """The last number counts, so each one before the first byte is the same."""
    with (
        java_like(log, late_s=0.3) as master,
        follow(tmp_path / "c", master, heartbeat_every=timedelta(milliseconds=20)) as copy,
    ):
        is_at(copy, len(log))
        assert master.asked == [1]
        assert copy.begin_offset == 0


def test_a_copy_takes_no_puts(tmp_path: Path, log: bytes) -> None:
    """S003-16: the log itself refuses them, whichever way they come."""
    with java_like(log) as master, follow(tmp_path / "c", master) as copy:
        with pytest.raises(ReplicaStoreError):
            copy.writer("orders")
        is_at(copy, len(log))
        native = engine_of(copy).plain_writer("orders", 0)
        with pytest.raises(ReplicaStoreError):
            native.put(b"from within")
        assert copy.end_offset == len(log)


def test_it_compares_its_last_bytes_first(tmp_path: Path, log: bytes) -> None:
    some = len(log) // 2
    with java_like(log[:some]) as master, follow(tmp_path / "c", master) as copy:
        wait_until(lambda: copy.end_offset > some - 400)
        end = copy.end_offset
    with java_like(log) as master, follow(tmp_path / "c", master) as copy:
        is_at(copy, len(log))
        assert master.asked == [1]  # the copy is shorter than what it compares
    changed = bytearray(log + log)
    changed[end - 9] ^= 1
    with java_like(bytes(changed)) as master, follow(tmp_path / "c", master) as copy:
        wait_until(lambda: copy.replication.error is not None)
        error = copy.replication.error
        assert isinstance(error, DivergedError)
        assert error.offset == end - 9
        assert copy.end_offset == len(log)


def test_logs_that_part_before_what_is_compared(tmp_path: Path) -> None:
    """The first byte that differs is where the comparison begins: they part there or before."""
    with open_small(tmp_path / "m") as store:
        put_some(store, 900)
        log = log_bytes(tmp_path / "m")[: store.end_offset]
    assert len(log) > 2 * OVERLAP_BYTES
    with java_like(log) as master, follow(tmp_path / "c", master) as copy:
        is_at(copy, len(log))
    other = log[: len(log) // 4] + bytes(byte ^ 0xFF for byte in log[len(log) // 4 :])
    with java_like(other) as master, follow(tmp_path / "c", master) as copy:
        wait_until(lambda: copy.replication.error is not None)
        error = copy.replication.error
        assert isinstance(error, DivergedError)
        assert error.offset == master.asked[-1] >= len(log) - OVERLAP_BYTES
        assert f"from {error.offset} on, or before" in str(error)
        assert "cut this one" not in str(error)


def test_a_master_that_lost_its_end(tmp_path: Path, log: bytes) -> None:
    with java_like(log) as master, follow(tmp_path / "c", master) as copy:
        is_at(copy, len(log))
    short = len(log) - 1000
    with java_like(log[:short]) as master, follow(tmp_path / "c", master) as copy:
        wait_until(lambda: copy.replication.error is not None)
        error = copy.replication.error
        assert isinstance(error, DivergedError)
        assert error.offset == short


def test_a_master_without_its_first_file(tmp_path: Path, log: bytes) -> None:
    with java_like(log, begin=SEGMENT) as master:
        with follow(tmp_path / "c", master) as copy:
            wait_until(lambda: copy.replication.error is not None)
            assert "begin='last file'" in str(copy.replication.error)
        with follow(tmp_path / "d", master, begin=SEGMENT) as copy:
            is_at(copy, len(log))
            assert copy.begin_offset == SEGMENT
        with follow(tmp_path / "e", master, begin="last file") as copy:
            is_at(copy, len(log))
            assert copy.begin_offset == len(log) - len(log) % SEGMENT
        with open_small(tmp_path / "e", "r") as reader:  # after a stop as well
            assert reader.begin_offset == len(log) - len(log) % SEGMENT


def test_an_empty_master_is_waited_for(tmp_path: Path) -> None:
    with java_like(b"") as master, follow(tmp_path / "c", master) as copy:
        wait_until(lambda: 0 in master.asked)  # it has asked for a last file, too
        assert copy.replication.error is None


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (2 * SEGMENT, f"{SEGMENT}, not {2 * SEGMENT}"),
        (SEGMENT // 2, f"larger than {SEGMENT // 2}"),
    ],
)
def test_files_of_another_size(tmp_path: Path, log: bytes, own: int, said: str) -> None:
    """The first file of the master shows it; the error has both sizes and the option."""
    size = {"commit_log_file_size_bytes": own}
    with java_like(log) as master, open_copy(
        tmp_path / "c", master.address, size, protocol="rocketmq"
    ) as copy:  # fmt: skip
        wait_until(lambda: copy.replication.error is not None)
        assert f"commit_log_file_size_bytes {said}" in str(copy.replication.error)


def test_what_comes_is_no_log(tmp_path: Path, log: bytes) -> None:
    for damaged in (b"\0" * 5000, log[:600] + b"HTTP/1.1 400 Bad Request\r\n" * 40):
        with java_like(damaged) as master, follow(tmp_path / "c", master) as copy:
            wait_until(lambda: copy.replication.error is not None)
            assert isinstance(copy.replication.error, ReplicationError)
            assert copy.end_offset <= 600


def test_frames_in_any_pieces(log: bytes) -> None:
    rng = random.Random(5)
    sent = b"".join(
        struct.pack(">qi", at, len(log[at : at + 900])) + log[at : at + 900]
        for at in range(0, len(log), 900)
    )
    sent += struct.pack(">qi", len(log), 0)
    for most in (1, 7, 40, 5000):
        link, got, at = ClassicReplicaLink(), bytearray(), 0
        while at < len(sent):
            size = rng.randint(1, most)
            for event in link.receive(memoryview(sent)[at : at + size]):
                if isinstance(event, Data):
                    assert event.offset == len(got)
                    got += event.data
                else:
                    assert event == Heartbeat(len(log))
            at += size
        assert got == log


@pytest.mark.parametrize("header", [(-1, 5), (0, -1), (0, 1 << 30), (1 << 62, 1 << 23)])
def test_headers_that_no_master_sends(header: tuple[int, int]) -> None:
    with pytest.raises(ReplicationError, match="does not speak"):
        ClassicReplicaLink().receive(memoryview(struct.pack(">qi", *header)))


def test_a_record_is_given_when_all_of_it_has_come(log: bytes) -> None:
    """Byte by byte: what has not come yet was never read as zeros."""
    for step in (1, 13, 301):
        assembler = RecordAssembler(0, SEGMENT, record_most=SEGMENT, append_most=4 * SEGMENT)
        got = bytearray()
        for at in range(0, len(log), step):
            for piece in assembler.take(memoryview(log)[at : at + step]):
                assert piece.offset == len(got)
                got += piece.data
                assert len(got) <= at + step
        assert got == log


def test_random_damage_is_never_appended(log: bytes) -> None:
    rng = random.Random(11)
    for _ in range(300):
        damaged = bytearray(log)
        at = rng.randrange(len(log))
        damaged[at] ^= 1 << rng.randrange(8)
        assembler = RecordAssembler(0, SEGMENT, record_most=SEGMENT, append_most=4 * SEGMENT)
        end = 0
        try:
            for piece in assembler.take(memoryview(damaged)):
                end = piece.offset + len(piece.data)
        except ReplicationError:
            assert end <= at
