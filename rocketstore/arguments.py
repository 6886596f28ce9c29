"""Arguments of public functions: what is not what it should be is named, with its value."""

from __future__ import annotations

import contextlib
import operator
from typing import SupportsIndex

__all__ = ["at_most", "text", "whole_number"]


def whole_number(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """`value` as an int, NumPy's included. A bool is no number, whatever Python says.

    Raises:
        TypeError: not a whole number.
        ValueError: below `low` or above `high`.
    """
    number = None
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        with contextlib.suppress(TypeError):  # of an array of several
            number = operator.index(value)
    if number is None:
        raise TypeError(f"{name} = {value!r}: expected a whole number")
    if low is not None and number < low:
        raise ValueError(f"{name} = {number}: at least {low}")
    if high is not None and number > high:
        raise ValueError(f"{name} = {number}: at most {high}")
    return number


def at_most(name: str, value: object) -> int:
    """How many at most: one or more, as many as a list can have."""
    return min(2**31 - 1, whole_number(name, value, 1))


def text(name: str, value: object) -> str:
    """`value` as a str itself, also of an enum's member or NumPy's text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {value!r}: expected a str")
    return str.__str__(value)
