"""Compressed bodies, as RocketMQ's clients send them."""

from __future__ import annotations

import json
import sys
import tracemalloc
import zlib
from typing import Any

import pytest

from rocketstore import DecompressionError, Message, decompress
from rocketstore._native.format.codec import encode_record
from tests.support import paths

pytestmark = pytest.mark.quick

VECTORS = paths.VECTORS / "vectors.json"
ROWS = [row for row in json.loads(VECTORS.read_text())["records"] if "plain_body_hex" in row]
NEEDS = {"compressed_lz4": "lz4.frame", "compressed_zstd": "zstandard"}
LZ4, ZSTD, ZLIB, UNDEFINED = 0x101, 0x201, 0x301, 0x401


def message(body: bytes, sys_flag: int) -> Message:
    return Message.from_bytes(encode_record(topic="t", body=body, sys_flag=sys_flag))


def compressed(kind: int, plain: bytes) -> bytes:
    if kind == LZ4:
        return bytes(pytest.importorskip("lz4.frame").compress(plain))
    if kind == ZSTD:
        return bytes(pytest.importorskip("zstandard").compress(plain))
    return zlib.compress(plain)


def test_there_is_a_vector_of_each_kind() -> None:
    assert len(ROWS) == 4


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_vectors(row: dict[str, Any]) -> None:
    pytest.importorskip(NEEDS.get(row["id"], "zlib"))
    record = Message.from_bytes(bytes.fromhex(row["hex"]))
    assert decompress(record) == bytes.fromhex(row["plain_body_hex"])
    assert record.body == bytes.fromhex(row["fields"]["body"]), "the store keeps what was sent"


def test_a_body_that_is_not_compressed_is_given_as_it_is() -> None:
    assert decompress(message(b"plain", 0x300), max_bytes=1) == b"plain"


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_bound(kind: int, size: int) -> None:
    """Exactly `max_bytes` is allowed, one more is not."""
    plain = b"x" * size
    record = message(compressed(kind, plain), kind)
    assert decompress(record, max_bytes=size) == plain
    if size:
        with pytest.raises(DecompressionError, match=f"max_bytes = {size - 1}"):
            decompress(record, max_bytes=size - 1)


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
def test_a_bomb_is_not_unpacked(kind: int) -> None:
    """128 MiB in some kilobytes: what is refused was never made."""
    record = message(compressed(kind, bytes(128 << 20)), kind)
    assert record.size < 3 << 20
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError, match="max_bytes"):
            decompress(record, max_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
def test_damage(kind: int) -> None:
    stream = compressed(kind, bytes(range(256)) * 40)
    for body in (stream[:-1], stream[: len(stream) // 2], b"", b"not a stream at all"):
        with pytest.raises(DecompressionError):
            decompress(message(body, kind))


def test_kinds_that_nobody_defined() -> None:
    with pytest.raises(DecompressionError, match="type 4"):
        decompress(message(b"?", UNDEFINED))


@pytest.mark.parametrize(("kind", "module"), [(LZ4, "lz4.frame"), (ZSTD, "zstandard")])
def test_without_the_extra_it_says_what_to_install(
    kind: int, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r"rocketstore\[compression\]"):
        decompress(message(b"?", kind))


@pytest.mark.parametrize(
    ("most", "error"), [(-1, ValueError), (-2, ValueError), (1.5, TypeError), (None, TypeError)]
)
def test_the_bound_is_a_number_of_bytes(most: Any, error: type[Exception]) -> None:
    """-1 was one less than no bound at all: a bomb was unpacked before it was refused."""
    record = message(zlib.compress(b"x" * 1000), ZLIB)
    with pytest.raises(error, match=f"^max_bytes = {most}: "):
        decompress(record, max_bytes=most)


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_a_bound_beyond_all_memory(kind: int) -> None:
    plain = bytes(1 << 20)
    assert decompress(message(compressed(kind, plain), kind), max_bytes=2**70) == plain
