"""How two values compare: as Java does in RocketMQ's filter, to the last conversion.

Properties are texts. Where one meets a number it is read as a number of that very type: as one of 32
bits with a constant of 32 bits, so that "10.5" is an error with 10, and a number with 10.0. An
error anywhere means that the message does not match, as a broker has it.
"""

from __future__ import annotations

import math
import re
from typing import Final

from rocketstore.filters.nodes import Long, Value

__all__ = ["UndecidedError", "compare", "double_of", "int_of", "long_of", "same"]

#: What Double.valueOf takes, between blanks.
DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
WHOLE: Final = re.compile(r"[+-]?\d+")
#: Texts that are longer are no number in its shortest form; Python takes long for very long ones.
DIGITS_MAX: Final = 1000
BLANKS: Final = "".join(map(chr, range(33)))


class UndecidedError(Exception):
    """A comparison that RocketMQ answers with an exception."""


def long_of(text: str) -> int:
    """Java's Long.valueOf."""
    return _whole(text, 63)


def int_of(text: str) -> int:
    """Java's Integer.valueOf."""
    return _whole(text, 31)


def _whole(text: str, bits: int) -> int:
    if WHOLE.fullmatch(text) is None or not (text.isascii() or max(text) <= "\uffff"):
        raise UndecidedError
    if len(text) > DIGITS_MAX:
        sign, digits = text[:1].strip("0123456789"), text.lstrip("+-0")
        if len(digits) > DIGITS_MAX:
            raise UndecidedError
        text = sign + (digits or "0")
    number = int(text)
    if not -(1 << bits) <= number < 1 << bits:
        raise UndecidedError
    return number


def double_of(text: str) -> float:
    """Java's Double.valueOf."""
    plain = text.strip(BLANKS)
    if DOUBLE.fullmatch(plain) is None:
        raise UndecidedError
    if "x" in plain[:3] or "X" in plain[:3]:
        try:
            return float.fromhex(plain.rstrip("fFdD") if plain[-1] in "fFdD" else plain)
        except OverflowError:
            return -math.inf if plain[0] == "-" else math.inf
    return float(plain.rstrip("fFdD"))


def compare(left: Value, right: Value) -> int:
    """Less than 0, 0 or more, of two values that are not null. -1 also where types do not meet.

    Raises:
        UndecidedError: Java has an exception.
    """
    ours, theirs = type(left), type(right)
    if ours is theirs:
        return _order(left, right)
    if ours is str:
        return _text_with(str(left), right)
    if theirs is str:
        return _with_text(left, str(right))
    if ours is bool or theirs is bool:
        return -1
    if ours is float or theirs is float:
        return _order(float(left), float(right))  # type: ignore[arg-type]
    return _order(left, right)


def _text_with(text: str, value: Value) -> int:
    if isinstance(value, bool):
        return _order(text.lower() == "true", value)
    if isinstance(value, float):
        return _order(double_of(text), value)
    if isinstance(value, Long):
        return _order(long_of(text), value)
    return _order(int_of(text), value)


def _with_text(value: Value, text: str) -> int:
    if isinstance(value, bool):
        raise UndecidedError  # Java casts the truth value to a text
    if isinstance(value, float):
        return _order(value, double_of(text))
    if isinstance(value, Long):
        return _order(value, long_of(text))
    return _order(value, int_of(text))


def _order(left: Value, right: Value) -> int:
    if isinstance(left, float) and isinstance(right, float):
        return _double_order(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def _double_order(left: float, right: float) -> int:
    """Java's Double.compare: -0.0 is less than 0.0, and NaN the greatest, equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    ours = (math.isnan(left), math.copysign(1.0, left))
    theirs = (math.isnan(right), math.copysign(1.0, right))
    if ours[0] or theirs[0]:
        return ours[0] - theirs[0]
    return (ours > theirs) - (ours < theirs) if left == right == 0 else 0


def same(left: Value, right: Value) -> bool | None:
    """`left = right`, also of nulls: two are equal, and one alone is unknown on the left, else not
    equal."""
    if left is None or right is None:
        if left is None and right is None:
            return True
        return None if left is None else False
    return compare(left, right) == 0
