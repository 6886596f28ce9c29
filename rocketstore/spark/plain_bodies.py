"""Bodies as their producers gave them, where clients compressed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rocketstore.columns import BytesColumn
from rocketstore.compression import COMPRESSED, COMPRESSION_BITS, plain_body
from rocketstore.spark.failures import SparkFaceError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NEEDED", "with_plain_bodies", "with_plain_flags"]

#: Columns that a scan needs for it, beside the body.
NEEDED: Final = ("sys_flag", "physical_offset")
#: Of one chunk: offsets in a column are 32 bits wide.
MOST_BYTES: Final = 1 << 30


def with_plain_flags(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """The columns of a chunk with `sys_flag` as rows show it whose bodies are unpacked."""
    flags = columns["sys_flag"]
    plain = np.where(flags & COMPRESSED, flags & ~np.int32(COMPRESSION_BITS), flags)
    return {**columns, "sys_flag": plain.astype(flags.dtype)}


def with_plain_bodies(columns: Mapping[str, Any], rows: Any = None) -> Mapping[str, Any]:
    """The columns of a chunk, with bodies unpacked and without the bits of `sys_flag` that said so. `rows`: a
    boolean array of those that are wanted; bodies of others stay as they are.

    Raises:
        DecompressionError: a body that is no stream of its kind, or longer than 64 MiB.
        SparkFaceError: RS_NO_CODEC, RS_BODIES_TOO_LARGE.
    """
    flags = columns["sys_flag"]
    packed = np.flatnonzero(flags & COMPRESSED if rows is None else (flags & COMPRESSED) * rows)
    if not len(packed):
        return columns
    bodies = columns["body"].tolist()
    offsets = columns["physical_offset"]
    for row in packed.tolist():
        try:
            bodies[row] = plain_body(bodies[row], int(flags[row]), int(offsets[row]))
        except ModuleNotFoundError as error:
            raise SparkFaceError(
                "RS_NO_CODEC", f"message at {offsets[row]}: {error}; or decompress=false"
            ) from error
    ends = np.zeros(len(bodies) + 1, np.int64)
    np.cumsum([len(body) for body in bodies], out=ends[1:])
    if ends[-1] > MOST_BYTES:
        text = f"{ends[-1]} bytes of bodies from {offsets[0]} on are too many for a batch"
        raise SparkFaceError("RS_BODIES_TOO_LARGE", f"{text}; decompress=false leaves them packed")
    data = np.frombuffer(b"".join(bodies), np.uint8)
    return {**with_plain_flags(columns), "body": BytesColumn(ends.astype(np.int32), data)}
