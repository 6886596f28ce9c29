"""Arguments of public functions: what is not what it should be is named, with its value."""

from __future__ import annotations

import contextlib
import datetime
import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    import numpy as np
    from numpy.typing import ArrayLike
    from typing_extensions import Buffer

    class ArrowArray(Protocol):
        """An array of pyarrow, polars or another library that speaks Arrow's C interface."""

        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

    #: What a body may be. NumPy says that its arrays are buffers from Python 3.12 on only.
    Body: TypeAlias = Buffer | np.ndarray[Any, Any]
    #: Whole numbers, one for each row, or one for all rows.
    Numbers: TypeAlias = ArrayLike
    #: n + 1 rising offsets, and bytes: row i is data[offsets[i]:offsets[i + 1]]. Arrow's layout.
    Column: TypeAlias = tuple[Numbers, Body]
    #: One text a row; None and "" mean none.
    TextRows: TypeAlias = Sequence[str | None] | ArrowArray
    #: Several texts a row: a sequence, or one text with blanks between.
    KeyRows: TypeAlias = Sequence[str | Sequence[str] | None] | ArrowArray
else:  # a name to import; what it means only a type checker asks for
    ArrowArray = Body = Column = KeyRows = Numbers = TextRows = object

__all__ = [
    "YEAR_S",
    "Listener",
    "Progress",
    "Row",
    "SegmentFiles",
    "at_most",
    "number_of_seconds",
    "one_of",
    "seconds",
    "text",
    "texts",
    "whole_number",
]

#: (topic, queue_id, next_queue_offset, tags_code, store_timestamp_ms) of a message that arrived.
Listener: TypeAlias = Callable[[str, int, int, int, int], None]
#: Called with (directory, size_bytes), gives a descriptor.
SegmentFiles: TypeAlias = Callable[[str, int], int]
#: A message on its way to the log: topic, queue id, flag, sys flag, born time in ms, property text, body.
Row: TypeAlias = tuple[str, int, int, int, int, bytes, bytes]
#: (what, done bytes, total bytes) while a long step goes on.
Progress: TypeAlias = Callable[[str, int, int], object]

#: The longest wait, seconds.
YEAR_S = 366 * 86_400.0


def whole_number(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """`value` as an int, NumPy's included. A bool is no number, whatever Python says.

    Raises:
        TypeError: not a whole number.
        ValueError: below `low` or above `high`.
    """
    number = value if type(value) is int else None  # the look at a protocol takes its time
    if number is None and isinstance(value, SupportsIndex) and not isinstance(value, bool):
        with contextlib.suppress(TypeError):  # of an array of several
            number = operator.index(value)
    if number is None:
        raise TypeError(f"{name} = {value!r}: expected a whole number")
    if (low is not None and number < low) or (high is not None and number > high):
        allowed = f"at least {low}" if high is None else f"{low} … {high}"
        raise ValueError(f"{name} = {number}: {allowed}")
    return number


def seconds(name: str, value: object) -> float:
    """The seconds of a wait, at least 0 and at most a year. Raises as `number_of_seconds`."""
    return min(max(number_of_seconds(name, value), 0.0), YEAR_S)


def number_of_seconds(name: str, value: object) -> float:
    """A number of seconds, or those of a timedelta.

    Raises:
        TypeError: neither of the two. ValueError: NaN, or more than a float can be.
    """
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        pass  # the look at a protocol takes its time
    elif not isinstance(value, SupportsFloat | SupportsIndex) or isinstance(value, str | bool):
        raise TypeError(f"{name} = {value!r}: expected a number of seconds, or a timedelta")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name}: it is too large; give float('inf') for no end") from None
    if math.isnan(number):
        raise ValueError(f"{name} = nan: give a number of seconds, or float('inf')")
    return number


def at_most(name: str, value: object) -> int:
    """How many at most: one or more, as many as a list can have."""
    return min(2**31 - 1, whole_number(name, value, 1))


def text(name: str, value: object) -> str:
    """`value` as a str itself, also of an enum's member or NumPy's text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {value!r}: expected a str")
    return str.__str__(value)


def texts(name: str, value: object, expected: str) -> tuple[str, ...]:
    """The strs of several, or a single one. Raises TypeError, which says what is `expected`."""
    if isinstance(value, str):
        return (value,)
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(word, str) for word in found):
        raise TypeError(f"{name} = {value!r}: expected {expected}")
    return found


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raises ValueError unless `value` is one of those, texts of an enum included."""
    if not isinstance(value, str | int | None) or value not in allowed:
        raise ValueError(
            f"{name} = {value!r}: {', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}"
        )
