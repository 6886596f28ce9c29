"""The log on its way, compressed where a replica asks for it and its master does so."""

from __future__ import annotations

import contextlib
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore import ConfigError, ReplicationError
from rocketstore.replication import Master, Replica
from rocketstore.replication.protocol import compression, session
from rocketstore.replication.protocol.compression import CODECS, Codec, is_here, packed, unpacked
from rocketstore.replication.protocol.frames import DATA_MOST, FrameReader, Kind, data_frame
from rocketstore.replication.protocol.session import MasterSession, ReplicaSession
from tests.replication.copies import (
    caught_up,
    copy_of,
    counted,
    open_copy,
    open_master,
    put_some,
    same_log,
)
from tests.replication.ends import Log, Wire, joined, master_of
from tests.support.waiting import PATIENCE_S

KEY = b"a key of 16 bytes or more"
TEXT = b"abcdefgh" * 64


@pytest.fixture(params=["zlib", "zstd"])
def name(request: pytest.FixtureRequest) -> Any:
    if request.param == "zstd":
        pytest.importorskip("zstandard", reason="of the extra `compression`")
    return request.param


def compressed(codec: Codec, data: bytes) -> bytes:
    found = packed(codec, data)
    assert found is not None
    return found


# ---- bytes ----


def test_all_comes_back(name: Any) -> None:
    codec = CODECS[name]
    assert bytes(unpacked(codec, memoryview(compressed(codec, TEXT)), len(TEXT))) == TEXT
    assert packed(codec, b"short") is None
    assert packed(Codec.NONE, TEXT) is None


@pytest.mark.parametrize("size", [0, 1, 511, 513, DATA_MOST])
def test_another_size_than_announced(name: Any, size: int) -> None:
    codec = CODECS[name]
    with pytest.raises(ValueError, match="."):
        unpacked(codec, memoryview(compressed(codec, TEXT)), size)


@pytest.mark.parametrize(
    "changed", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b + b, lambda b: b""]
)
def test_a_stream_that_is_cut_or_followed_by_more(name: Any, changed: Any) -> None:
    codec = CODECS[name]
    with pytest.raises(ValueError, match="."):
        unpacked(codec, memoryview(changed(compressed(codec, TEXT))), len(TEXT))


def test_a_bomb_takes_no_memory(name: Any) -> None:
    """200 MiB in some KiB, announced as what a frame may have."""
    codec = CODECS[name]
    bomb = compressed(codec, bytes(200 << 20))
    assert len(bomb) < DATA_MOST
    tracemalloc.start()
    with pytest.raises(ValueError, match="compressed bytes of more"):
        unpacked(codec, memoryview(bomb), DATA_MOST)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_bomb_of_zstandard_that_does_not_say_its_size() -> None:
    zstandard = pytest.importorskip("zstandard", reason="of the extra `compression`")
    silent = zstandard.ZstdCompressor(write_content_size=False)
    stream = silent.compressobj()
    bomb = stream.compress(bytes(64 << 20)) + stream.flush()
    wide = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27)
    ).compress(bytes(DATA_MOST))
    for said in (bomb, silent.compress(TEXT)):
        with pytest.raises(ValueError, match="compressed bytes of more"):
            unpacked(Codec.ZSTD, memoryview(said), DATA_MOST)
    if zstandard.get_frame_parameters(wide).window_size > compression.WINDOW_MOST:
        with pytest.raises(ValueError, match="."):
            unpacked(Codec.ZSTD, memoryview(wide), DATA_MOST)


@given(said=st.binary(max_size=100), size=st.integers(1, 200))
def test_any_bytes(said: bytes, size: int) -> None:
    for codec in (Codec.ZLIB, Codec.ZSTD):
        if not is_here(codec):
            continue
        try:
            assert len(unpacked(codec, memoryview(said), size)) == size
        except ValueError:
            continue


# ---- what both ends agree ----


def wire_of(codec: Codec, master: bool = True) -> Wire:
    wire = Wire(
        MasterSession(master_of(TEXT), KEY, compression=master),
        ReplicaSession(Log(), KEY, codec=codec),
    )
    wire.greet()
    return wire


def test_a_library_that_cannot_be_loaded_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)  # an import of it fails
    assert not is_here(Codec.ZSTD)
    assert is_here(Codec.ZLIB)


def test_data_is_compressed_as_agreed(name: Any) -> None:
    wire = wire_of(CODECS[name])
    [one] = FrameReader().take(memoryview(joined(wire.master.data(0, memoryview(TEXT)))))
    assert (one.kind, one.flags) == (Kind.DATA, CODECS[name])
    assert len(one.body) < len(TEXT)


def test_a_master_that_does_not_compress(name: Any) -> None:
    wire = wire_of(CODECS[name], master=False)
    assert wire.master.codec == wire.replica.codec == Codec.NONE
    [one] = FrameReader().take(memoryview(joined(wire.master.data(0, memoryview(TEXT)))))
    assert one.flags == 0


def test_a_master_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "is_here", lambda codec: codec is not Codec.ZSTD)
    wire = wire_of(Codec.ZSTD)
    assert wire.master.codec == wire.replica.codec == Codec.NONE


def test_a_master_does_not_know_each_number() -> None:
    wire: Any = Wire(MasterSession(master_of(TEXT)), ReplicaSession(Log()))
    wire.replica.codec = 77
    wire.greet()
    assert wire.replica.codec == Codec.NONE


def test_compression_that_was_not_agreed(name: Any) -> None:
    said = data_frame(1, 0, 512, compressed(CODECS[name], TEXT), size=512, codec=CODECS[name])
    wire = wire_of(Codec.NONE)
    with pytest.raises(ReplicationError, match="not agreed"):
        wire.replica.receive(memoryview(joined(said)))


def test_compressed_bytes_are_never_more_than_announced(name: Any) -> None:
    small = compressed(CODECS[name], bytes(50 << 20))
    said = data_frame(1, 0, 2**40, small, size=DATA_MOST, codec=CODECS[name])
    wire = wire_of(CODECS[name])
    with pytest.raises(ReplicationError, match="compressed"):
        wire.replica.receive(memoryview(joined(said)))


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"no stream", 10),
        (zlib.compress(b"x" * 100), 99),
        (zlib.compress(b"x" * 100), 101),
        (zlib.compress(bytes(DATA_MOST + 1)), DATA_MOST + 1),
        (zlib.compress(b""), 0),
    ],
)
def test_what_is_no_compressed_data(data: bytes, size: int) -> None:
    said = data_frame(1, 0, 2**40, data, size=size, codec=Codec.ZLIB)
    wire = wire_of(Codec.ZLIB)
    with pytest.raises(ReplicationError):
        wire.replica.receive(memoryview(joined(said)))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"compression": "lz4"}, "'zlib' or 'zstd'"),
        ({"compression": True}, "'zlib' or 'zstd'"),
        ({"compression": "zlib", "protocol": "rocketmq"}, "rocketmq"),
    ],
)
def test_settings(settings: Any, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        Replica(master="127.0.0.1:1", **settings)


def test_settings_of_a_master_and_of_a_library_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="compression"):
        Master(compression="zlib")  # type: ignore[arg-type]
    monkeypatch.setattr("rocketstore.replication.settings.is_here", lambda codec: False)
    with pytest.raises(ConfigError, match=r"rocketstore\[compression\]"):
        Replica(master="127.0.0.1:1", compression="zstd")


# ---- stores ----


def test_a_compressed_copy_is_byte_for_byte_the_master(tmp_path: Path, name: Any) -> None:
    with open_master(tmp_path / "m", key=KEY) as master:
        put_some(master)
        with open_copy(tmp_path / "c", master, key=KEY, compression=name) as copy:
            put_some(master)
            caught_up(copy, master)
            assert master.replication.peers[0].compression == name
            assert copy.replication.peers[0].compression == name
    same_log(tmp_path / "m", tmp_path / "c")


def test_a_copy_goes_on_without_what_its_master_does_not_do(tmp_path: Path) -> None:
    with open_master(tmp_path / "m", compression=False) as master:
        put_some(master)
        with open_copy(tmp_path / "c", master, compression="zlib") as copy:
            caught_up(copy, master)
            assert copy.replication.peers[0].compression is None


def test_compression_for_one_replica_is_waited_for_by_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, real = threading.Event(), session.packed
    over = threading.Event()

    def slow(codec: Codec, data: Any) -> bytes | None:
        if codec is not Codec.NONE:
            began.set()
            over.wait()
        return real(codec, data)

    monkeypatch.setattr(session, "packed", slow)
    with (
        open_master(tmp_path / "m") as master,
        open_copy(tmp_path / "slow", master, compression="zlib") as copy,
        open_copy(tmp_path / "c", master) as other,
        ending(over),
    ):
        counted(master, 2)
        writer = master.writer("orders")
        writer.put(b"x" * 100, durability="replicas(2)")
        assert began.wait(PATIENCE_S)
        for _ in range(20):
            writer.put(b"x" * 100, durability="replicas(2)")
        caught_up(other, master)
        assert copy.visible_offset == 0
        over.set()
        caught_up(copy, master)
        assert copy_of(copy).error is None


@contextlib.contextmanager
def ending(held: threading.Event) -> Iterator[None]:
    """What is held goes on at the end, also of a test that fails."""
    try:
        yield
    finally:
        held.set()
