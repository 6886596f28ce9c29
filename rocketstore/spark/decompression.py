"""Bodies as their producers gave them, where clients compressed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from rocketstore.columns import BytesColumn
from rocketstore.spark.errors import HINTS, SparkFaceError
from rocketstore.values import COMPRESSED, COMPRESSION_BITS, plain_body

__all__ = ["NEEDED", "with_plain_bodies", "with_plain_flags"]

#: Columns that decompression needs besides the body.
NEEDED: Final = ("sys_flag", "physical_offset")
#: Bytes of decompressed bodies in one piece, and one body more: a byte may become a thousand.
PIECE_BYTES: Final = 32 << 20


def with_plain_flags(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """The columns of a chunk with `sys_flag` as rows show it whose bodies are unpacked."""
    flags = columns["sys_flag"]
    plain = np.where(flags & COMPRESSED, flags & ~np.int32(COMPRESSION_BITS), flags)
    return {**columns, "sys_flag": plain.astype(flags.dtype)}


def with_plain_bodies(
    columns: Mapping[str, Any], rows: Any = None
) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """The columns of a chunk, with bodies unpacked and without the bits of `sys_flag` that said so,
    and which rows are wanted. A chunk whose bodies grow beyond PIECE_BYTES comes several times,
    each time with other rows.

    Args:
        rows: a boolean array of those that are wanted, or None for all; bodies of others stay as
            they are.

    Raises:
        DecompressionError: a body that is no stream of its kind, or longer than 64 MiB.
        SparkFaceError: RS_NO_CODEC.
    """
    packed = columns["sys_flag"] & COMPRESSED
    if rows is not None:
        packed = packed * rows
    if not packed.any():
        yield columns, rows
        return
    bodies = columns["body"].tolist()
    plain = with_plain_flags(columns)
    first, size = 0, 0
    for row in np.flatnonzero(packed).tolist():
        if size >= PIECE_BYTES:
            yield _piece(plain, bodies, rows, first, row)
            bodies[first:row] = [b""] * (row - first)
            first, size = row, 0
        bodies[row] = _plain(columns, row, bodies[row])
        size += len(bodies[row])
    yield _piece(plain, bodies, rows, first, len(bodies))


def _plain(columns: Mapping[str, Any], row: int, body: bytes) -> bytes:
    physical_offset = int(columns["physical_offset"][row])
    try:
        return plain_body(body, int(columns["sys_flag"][row]), physical_offset)
    except ModuleNotFoundError as error:
        text = f"message at {physical_offset}: {error}; {HINTS['no_codec']}"
        raise SparkFaceError("RS_NO_CODEC", text) from error


def _piece(
    columns: Mapping[str, Any], bodies: list[bytes], rows: Any, first: int, end: int
) -> tuple[Mapping[str, Any], Any]:
    """The rows [first, end), as far as they are wanted, of a chunk with these bodies."""
    if (first, end) != (0, len(bodies)):
        mine = np.zeros(len(bodies), bool)
        mine[first:end] = True
        rows = mine if rows is None else rows & mine
    ends = np.zeros(len(bodies) + 1, np.int32)
    np.cumsum([len(body) for body in bodies], out=ends[1:])
    data = np.frombuffer(b"".join(bodies), np.uint8)
    return {**columns, "body": BytesColumn(ends, data)}, rows
