"""Columns that a caller gives: checked, as one-dimensional NumPy arrays, before anything is done with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rocketstore.errors import MessageRejectedError

__all__ = ["bytes_of", "offsets_of"]

_INT64_MAX = 2**63 - 1


def offsets_of(what: str, given: Any) -> Any:
    """Offsets as int64. Nothing is rounded and nothing wraps.

    Raises:
        MessageRejectedError: not one-dimensional, not integers, empty, or beyond 64 bits.
    """
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageRejectedError(f"{what}: {error}") from None
    if array.dtype.kind not in "iu":
        raise MessageRejectedError(f"{what}: dtype {array.dtype}, expected integers")
    if array.ndim != 1 or array.size == 0:
        raise MessageRejectedError(
            f"{what}: shape {array.shape}, expected n + 1 integers for n rows, in one dimension"
        )
    if array.dtype == np.uint64 and int(array.max()) > _INT64_MAX:
        raise MessageRejectedError(f"{what}: {int(array.max())} does not fit 64 bits with a sign")
    return np.ascontiguousarray(array, np.int64)


def bytes_of(what: str, given: Any) -> Any:
    """Bytes back to back, as an array of uint8 on the memory of `given`.

    Raises:
        TypeError: no buffer.
        MessageRejectedError: not one-dimensional, items of more than one byte, or not contiguous.
    """
    if isinstance(given, str):
        raise TypeError(f"{what}: a str; encode it first, for example {what}.encode()")
    kind = getattr(given, "dtype", None)
    try:
        view = memoryview(given)
    except (TypeError, ValueError, BufferError):
        got = type(given).__name__ if kind is None else f"dtype {kind}"
        raise TypeError(f"{what}: {got}, expected bytes or a buffer of uint8") from None
    if view.itemsize != 1:
        got = f"dtype {kind}" if kind is not None else f"items of {view.itemsize} bytes"
        raise MessageRejectedError(f"{what}: {got}, expected uint8; use .view(np.uint8)")
    if view.ndim != 1:
        raise MessageRejectedError(
            f"{what}: {view.ndim} dimensions, expected one; use .reshape(-1)"
        )
    if not view.c_contiguous:
        raise MessageRejectedError(f"{what}: not contiguous; use np.ascontiguousarray")
    return np.frombuffer(view, np.uint8)
