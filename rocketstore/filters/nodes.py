"""What an expression is made of, and what may not be made: as RocketMQ's filter decides it.

A node is true, false or null for a message, or the value of a property or a constant. `is_boolean`
says which of them AND, OR and NOT take as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = [
    "DEPTH_MAX",
    "Cast",
    "Constant",
    "Equal",
    "Junction",
    "Long",
    "Meaningless",
    "Member",
    "Negative",
    "Node",
    "Not",
    "Order",
    "Property",
    "TextTest",
    "Value",
    "between",
    "boolean",
    "decimal",
    "equal",
    "floating",
    "joined",
    "member",
    "ordered",
    "properties_of",
]

#: Nodes within nodes. A chain of AND, or of OR, is one node.
DEPTH_MAX: Final = 100
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Long(int):
    """A number beyond 32 bits, Java's Long: a text that it is compared with may have 64 bits."""

    __slots__ = ()


#: None is SQL's NULL.
Value = None | bool | int | Long | float | str
Symbol = Literal["<", "<=", ">", ">="]


class Meaningless(Exception):
    """What RocketMQ refuses to make; the text is the hint."""


@dataclass(slots=True)
class Property:
    """Value of a property: a text, or null where a message has none."""

    name: str
    depth: int = 1


@dataclass(slots=True)
class Constant:
    value: Value
    depth: int = 1


@dataclass(slots=True)
class _OfOne:
    """What is made of one other node."""

    of: Node
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = _deeper(self.of.depth)


class Negative(_OfOne):
    """Minus of a number; null of all else."""

    __slots__ = ()


class Not(_OfOne):
    """True of false, false of true, null of null."""

    __slots__ = ()


@dataclass(slots=True)
class Cast:
    """A property where a condition is wanted: null without it, else false, for it is a text."""

    of: Property
    depth: int = 2


@dataclass(slots=True)
class Junction:
    """AND or OR of two or more, looked at from the left until one decides."""

    word: Literal["AND", "OR"]
    parts: list[Node]
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = _deeper(max(part.depth for part in self.parts))


@dataclass(slots=True)
class Equal:
    """`left = right`; with NULL on the right `left IS NULL`."""

    left: Node
    right: Node
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = _deeper(max(self.left.depth, self.right.depth))


@dataclass(slots=True)
class Order:
    symbol: Symbol
    left: Node
    right: Node
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = _deeper(max(self.left.depth, self.right.depth))


@dataclass(slots=True)
class Member:
    """Whether the text of a property is one of `texts`."""

    of: Property
    texts: frozenset[str]
    negated: bool
    depth: int = 2


@dataclass(slots=True)
class TextTest:
    """CONTAINS, STARTSWITH and ENDSWITH. Of null, of what is no text and of an empty `search` it is
    false, negated or not."""

    word: Literal["CONTAINS", "STARTSWITH", "ENDSWITH"]
    of: Node
    search: str
    negated: bool
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = _deeper(self.of.depth)


Node = Property | Constant | Negative | Not | Cast | Junction | Equal | Order | Member | TextTest
BOOLEAN: Final = frozenset({Not, Cast, Junction, Equal, Order, Member, TextTest})


def _deeper(depth: int) -> int:
    """The depth of a node around one of this depth."""
    if depth >= DEPTH_MAX:
        raise Meaningless(f"nested deeper than {DEPTH_MAX}: write it with fewer levels")
    return depth + 1


def is_boolean(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return type(node) in BOOLEAN


def boolean(node: Node) -> Node:
    """A node where a condition is wanted."""
    if is_boolean(node):
        return node
    if isinstance(node, Property):
        return Cast(node)
    raise Meaningless("a condition is wanted here, as in: price > 10")


def decimal(text: str) -> Constant:
    number = int(text.rstrip("lL")) if len(text) < 40 else LONG_MAX + 1
    if number > LONG_MAX:
        raise Meaningless(f"whole numbers are at most {LONG_MAX}; with a point it is a double")
    return Constant(number if number <= INT_MAX else Long(number))


def floating(text: str) -> Constant:
    number = float(text)
    if number == float("inf"):
        raise Meaningless("greater than a double can be")
    return Constant(number)


def _plain(node: Node) -> Node:
    """The constant that says the same as the minus of a number. Refusals come first: RocketMQ takes
    the minus of some constants that it refuses."""
    if isinstance(node, Negative) and isinstance(of := _plain(node.of), Constant):
        value = of.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return Constant(type(value)(-value))
    return node


def equal(left: Node, right: Node) -> Node:
    for side in (left, right):
        if isinstance(side, Constant) and side.value is None:
            raise Meaningless("nothing is equal to NULL: IS NULL, or IS NOT NULL")
    both = isinstance(left, Constant) and isinstance(right, Constant)
    if both and is_boolean(left) and not is_boolean(right):
        raise Meaningless("a truth value does not compare with a number or a text")
    return Equal(_plain(left), _plain(right))


def ordered(symbol: Symbol, left: Node, right: Node) -> Node:
    for side in (left, right):
        if is_boolean(side) or (isinstance(side, Constant) and isinstance(side.value, str)):
            raise Meaningless(f"{symbol} compares numbers and properties only")
    return Order(symbol, _plain(left), _plain(right))


def between(value: Node, low: Node, high: Node, *, negate: bool) -> Node:
    if negate:
        return Junction("OR", [ordered("<", value, low), ordered(">", value, high)])
    found = Junction("AND", [ordered(">=", value, low), ordered("<=", value, high)])
    if isinstance(low, Constant) and isinstance(high, Constant):
        first, last = low.value, high.value
        if isinstance(first, int | float) and isinstance(last, int | float) and last < first:
            raise Meaningless(f"BETWEEN {first} AND {last}: the first has to be the lesser one")
    return found


def member(of: Node, texts: list[str], *, negate: bool) -> Node:
    if not isinstance(of, Property):
        raise Meaningless("IN takes a property on its left, as in: region IN ('eu', 'us')")
    return Member(of, frozenset(texts), negate)


def joined(word: Literal["AND", "OR"], left: Node, right: Node) -> Node:
    """AND or OR. A chain is one node: `left` grows where it is of the same word."""
    right = boolean(right)
    if isinstance(left, Junction) and left.word == word:
        if right.depth >= left.depth:
            left.depth = _deeper(right.depth)
        left.parts.append(right)
        return left
    return Junction(word, [boolean(left), right])


def properties_of(node: Node) -> tuple[str, ...]:
    """Names of all properties in an expression, each once, in its order."""
    return tuple(dict.fromkeys(_names(node)))


def _names(node: Node) -> Iterator[str]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        match node:
            case Property(name):
                yield name
            case Junction(_, parts):
                waiting += reversed(parts)
            case Equal(left, right) | Order(_, left, right):
                waiting += [right, left]
            case Negative(of) | Not(of) | Cast(of) | Member(of) | TextTest(_, of):
                waiting.append(of)
