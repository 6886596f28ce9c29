"""Bytes of a log on the way, compressed where a replica has asked for it.

What is unpacked never takes more memory than was announced, whatever the bytes are.
"""

from __future__ import annotations

import enum
import importlib
import zlib
from typing import Any, Final, Literal, TypeAlias

from rocketstore.replication.protocol.link import Buffer

__all__ = ["CODECS", "Codec", "CodecName", "codec_name", "is_here", "packed", "unpacked"]

CodecName: TypeAlias = Literal["zlib", "zstd"]


class Codec(enum.IntEnum):
    """How bytes are compressed. The number goes over the wire, also as the flags of a frame."""

    NONE = 0
    ZLIB = 1
    ZSTD = 2


CODECS: Final[dict[CodecName, Codec]] = {"zlib": Codec.ZLIB, "zstd": Codec.ZSTD}
#: Fast: a link that is worth it is slower than this in any case.
LEVEL: Final = 1
#: Memory of a stream of Zstandard besides what it gives, bytes: of level 1 it has 512 KiB.
WINDOW_MOST: Final = 8 << 20


def codec_name(codec: int) -> CodecName | None:
    """As a setting; None of none."""
    return next((name for name, number in CODECS.items() if number == codec), None)


def is_here(codec: Codec) -> bool:
    """Whether this process can pack and unpack so; Zstandard needs a library."""
    if codec is Codec.ZSTD:
        try:
            _zstandard()
        except ImportError:  # also of one that is there and cannot be loaded
            return False
    return True


def packed(codec: Codec, data: Buffer) -> bytes | None:
    """The compressed form; None where that is no shorter, or `codec` is none."""
    if codec is Codec.NONE:
        return None
    if codec is Codec.ZLIB:
        found = zlib.compress(data, LEVEL)
    else:
        found = _zstandard().ZstdCompressor(level=LEVEL).compress(data)
    return found if len(found) < len(data) else None


def unpacked(codec: Codec, data: memoryview, size: int) -> memoryview:
    """The plain bytes, `size` of them; it never makes more. ValueError where `data` is not their
    compressed form."""
    plain = _unpacked_zlib(data, size) if codec is Codec.ZLIB else _unpacked_zstd(data, size)
    if plain is None or len(plain) != size:
        raise ValueError(f"compressed bytes of more, or of other, than {size}")
    return memoryview(plain)


def _unpacked_zlib(data: memoryview, size: int) -> bytes | None:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return plain if unpacker.eof and not unpacker.unused_data else None


def _unpacked_zstd(data: memoryview, size: int) -> bytes | None:
    library = _zstandard()
    try:
        # A stream that does not say its size, or another one, is not believed with any memory.
        if library.get_frame_parameters(data).content_size != size:
            return None
        unpacker = library.ZstdDecompressor(max_window_size=WINDOW_MOST)
        plain: bytes = unpacker.decompress(data, max_output_size=size, allow_extra_data=False)
    except library.ZstdError as error:
        raise ValueError(str(error)) from error
    return plain


def _zstandard() -> Any:
    return importlib.import_module("zstandard")
