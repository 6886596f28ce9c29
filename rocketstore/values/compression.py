"""Bodies that the producer compressed: RocketMQ's clients do so above 4 KiB and say it in
`sys_flag`.

The store keeps and checks the compressed bytes. Callers that want the plain ones ask for them here.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Callable
from typing import Any, Final

from rocketstore.errors import DecompressionError
from rocketstore.values.arguments import whole_number

__all__ = ["COMPRESSED", "COMPRESSION_BITS", "DEFAULT_MAX_BYTES", "plain_body"]

#: Sixteen times what a store takes as one message by default.
DEFAULT_MAX_BYTES: Final = 64 << 20
#: format.md 2.2, bits of sys_flag.
COMPRESSED: Final = 0x1
TYPE_SHIFT: Final = 8
TYPE_MASK: Final = 0x7
#: What says so, all together.
COMPRESSION_BITS: Final = COMPRESSED | TYPE_MASK << TYPE_SHIFT
LZ4: Final = 1
ZSTD: Final = 2
#: A byte of an LZ4 stream can mean 255. Its reader takes memory for all that it may give at
#: once.
LZ4_RATIO: Final = 255
#: A byte of a Zstandard stream can mean 32 KiB.
ZSTD_STEP_BYTES: Final = 256


def plain_body(
    body: bytes, sys_flag: int, physical_offset: int, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> bytes:
    """The body as the producer gave it, of a message with this `sys_flag` (see
    `rocketstore.decompress`)."""
    # The libraries take a negative limit, and zlib one of 0, for none; they are given one more.
    max_bytes = min(whole_number("max_bytes", max_bytes, 0), sys.maxsize - 1)
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag >> TYPE_SHIFT & TYPE_MASK
    if kind not in _KINDS:
        raise DecompressionError(physical_offset, f"compression type {kind} is undefined")
    name, unpack = _KINDS[kind]
    try:
        plain = unpack(body, max_bytes + 1)
    except _failures(kind) as error:
        raise DecompressionError(physical_offset, f"no {name} stream: {error}") from error
    if plain is None:
        raise DecompressionError(physical_offset, f"the {name} stream is cut off")
    if len(plain) > max_bytes:
        text = f"longer than max_bytes = {max_bytes}; raise it to read this one"
        raise DecompressionError(physical_offset, text)
    return plain


def _zlib(body: bytes, most: int) -> bytes | None:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, most)
    return plain if stream.eof or len(plain) == most else None


def _lz4(body: bytes, most: int) -> bytes | None:
    stream = _module("LZ4", "lz4.frame").LZ4FrameDecompressor()
    plain: bytes = stream.decompress(body, max_length=min(most, LZ4_RATIO * len(body)))
    return plain if stream.eof or len(plain) == most else None


def _zstd(body: bytes, most: int) -> bytes | None:
    # The only reader that reports a cut stream has no limit of its own: it is fed in small pieces.
    stream = _module("Zstandard", "zstandard").ZstdDecompressor().decompressobj()
    plain = bytearray()
    for at in range(0, len(body), ZSTD_STEP_BYTES):
        plain += stream.decompress(body[at : at + ZSTD_STEP_BYTES])
        if stream.eof or len(plain) >= most:
            return bytes(plain)
    return None


def _module(name: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{name} bodies need {module}: pip install 'rocketstore[compression]'", name=module
        ) from error


def _failures(kind: int) -> type[Exception] | tuple[type[Exception], ...]:
    """What a library says of bytes that are no stream of its kind."""
    if kind == LZ4:
        return RuntimeError
    if kind == ZSTD:
        error: type[Exception] = _module("Zstandard", "zstandard").ZstdError
        return error
    return zlib.error


_KINDS: Final[dict[int, tuple[str, Callable[[bytes, int], bytes | None]]]] = {
    0: ("zlib", _zlib),  # by clients that knew one kind only
    LZ4: ("LZ4", _lz4),
    ZSTD: ("Zstandard", _zstd),
    3: ("zlib", _zlib),
}
