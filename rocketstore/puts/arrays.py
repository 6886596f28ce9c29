"""Columns that a caller gives: checked, as one-dimensional NumPy arrays, before anything is done
with them.

Memory that cannot be read is refused before any of it is looked at: a file may be mapped there, and
have been cut. Numbers are copied first: native loops index memory with them, and a thread of the caller that
changed its array meanwhile would lead them out of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rocketstore._native.os.sigbus_guard import check_readable
from rocketstore._native.put.string_rows import Strings
from rocketstore.errors import MessageRejectedError

__all__ = ["array_of", "bodies_of", "offsets_of", "strings", "texts_of", "whole_of"]

_INT64_MAX = 2**63 - 1


def array_of(what: str, given: Any) -> Any:
    """`given` as an array, on its memory where it is one.

    Raises:
        MessageRejectedError: it is none, or has rows that are masked, for which an array has some
            number.
    """
    if np.ma.is_masked(given):
        row = np.flatnonzero(np.ma.getmaskarray(given))[0]
        raise MessageRejectedError(f"{what}: row {row} is masked; use .filled with a number")
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageRejectedError(f"{what}: {error}") from None
    check_readable(array)
    return array


def offsets_of(what: str, given: Any) -> Any:
    """Offsets as int64. Nothing is rounded and nothing wraps.

    Raises:
        MessageRejectedError: not one-dimensional, not integers, empty, or beyond 64 bits.
    """
    array = array_of(what, given)
    if array.size and array.dtype.kind not in "iu":  # of an empty list it is a float
        raise MessageRejectedError(f"{what}: dtype {array.dtype}, expected integers")
    if array.ndim != 1 or array.size == 0:
        raise MessageRejectedError(
            f"{what}: shape {array.shape}, expected n + 1 integers for n rows, in one dimension"
        )
    if array.dtype == np.uint64 and int(array.max()) > _INT64_MAX:
        raise MessageRejectedError(f"{what}: {int(array.max())} does not fit 64 bits with a sign")
    return np.array(array, np.int64, order="C")


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
    check_readable(view)
    return np.frombuffer(view, np.uint8)


def bodies_of(bodies: Any) -> Strings:
    """A column of bodies, or one Arrow array of binary or text.

    Raises:
        TypeError: neither of the two.
        MessageRejectedError: a body that is null, or as `strings`.
    """
    if hasattr(bodies, "__arrow_c_array__"):
        return Strings(*arrow_texts("bodies", bodies, nulls=False))
    if hasattr(bodies, "combine_chunks"):
        raise TypeError("bodies: an Arrow array in chunks; use .combine_chunks()")
    return strings("bodies", bodies)


def strings(what: str, column: Any, rows: int | None = None) -> Strings:
    """The rows of a column, the pair (offsets, data), which are to be `rows`, if given.

    Raises:
        TypeError: no pair.
        MessageRejectedError: offsets that are none, fall or leave the data.
    """
    if not isinstance(column, tuple) or len(column) != 2:
        raise TypeError(f"{what}: expected a pair (offsets, data), not {type(column).__name__}")
    try:
        places, data = offsets_of("offsets", column[0]), bytes_of("data", column[1])
    except (TypeError, MessageRejectedError) as error:
        raise type(error)(f"{what}: {error} (a column is the pair (offsets, data))") from None
    try:
        made = Strings(places, data)
    except ValueError as error:
        raise MessageRejectedError(f"{what}: {error}") from None
    if rows is not None and made.rows != rows:
        raise MessageRejectedError(f"{what}: {made.rows} rows, expected {rows}")
    return made


def texts_of(what: str, given: Any, rows: int, *, several: bool) -> Strings:
    """One text a row: an Arrow array, or a sequence of str; None, null and "" mean none. With
    `several` those of one row are a text with blanks between, or a sequence.

    Raises:
        TypeError: something else. MessageRejectedError: not as many as rows.
    """
    if hasattr(given, "__arrow_c_array__"):
        made = Strings(*arrow_texts(what, given, nulls=True))
    else:
        if hasattr(given, "combine_chunks"):
            raise TypeError(f"{what}: an Arrow array in chunks; use .combine_chunks()")
        if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
            raise TypeError(f"{what}: expected one text for each row, not {type(given).__name__}")
        texts = [encoded(what, row, text, several) for row, text in enumerate(given)]
        sizes = np.fromiter((0, *map(len, texts)), np.int64, len(texts) + 1)
        made = Strings(np.cumsum(sizes), b"".join(texts))
    if made.rows != rows:
        raise MessageRejectedError(f"{what}: {made.rows} rows, expected {rows}")
    return made


def encoded(what: str, row: int, text: Any, several: bool) -> bytes:
    if text is None:
        return b""
    if several and isinstance(text, (list, tuple)):
        if any(not isinstance(each, str) or not each or " " in each for each in text):
            raise MessageRejectedError(f"{what}: row {row}: {text!r}: texts without blanks in them")
        text = " ".join(text)
    if not isinstance(text, str):
        raise TypeError(f"{what}: row {row}: expected str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageRejectedError(f"{what}: row {row}: cannot be UTF-8: {error}") from None


def arrow_texts(what: str, given: Any, *, nulls: bool) -> tuple[Any, Any]:
    """(offsets, data) of an Arrow array of text or binary, on its memory."""
    import pyarrow as pa

    array = pa.array(given)
    for buffer in array.buffers():
        check_readable(buffer)
    if array.type not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        raise MessageRejectedError(
            f"{what}: Arrow's type {array.type}, expected string or binary; cast it first"
        )
    if array.null_count and not nulls:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise MessageRejectedError(f"{what}: row {row} is null")
    if array.null_count:
        array = array.fill_null("" if "string" in str(array.type) else b"")
    kind = np.int64 if str(array.type).startswith("large") else np.int32
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    places = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    body = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return places.astype(np.int64), body


def whole_of(what: str, given: Any, rows: int, low: int, high: int) -> Any:
    """Whole numbers between the bounds, one for each row.

    Raises:
        MessageRejectedError: no integers, not as many as rows, or one that is out of bounds.
    """
    array = np.array(array_of(what, given))
    if (rows and array.dtype.kind not in "iu") or array.shape != (rows,):
        raise MessageRejectedError(
            f"{what}: dtype {array.dtype}, shape {array.shape}, expected {rows} integers"
        )
    wrong = np.flatnonzero((array < low) | (array > high))
    if wrong.size:
        raise MessageRejectedError(
            f"{what}: row {wrong[0]}: {array[wrong[0]]}: {low} … {high} (queues= of the writer)"
            if what == "queue_ids"
            else f"{what}: row {wrong[0]}: {array[wrong[0]]}: {low} … {high}"
        )
    return np.ascontiguousarray(array, np.int32 if what == "queue_ids" else np.int64)
