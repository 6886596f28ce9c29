"""An expression as a program for native code, which asks `SqlFilter` where it is not sure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rocketstore._native.format.codec import decode_properties
from rocketstore._native.format.filter_program import (
    ELSE_FALSE,
    LESS,
    MORE,
    SAME,
    SLOTS_MAX,
    FilterProgram,
)
from rocketstore.filters.nodes import (
    Cast,
    Constant,
    Equal,
    Junction,
    Long,
    Member,
    Node,
    Not,
    Order,
    Property,
    Symbol,
    TextTest,
)
from rocketstore.filters.sql import SqlFilter

__all__ = ["program_of"]

#: Name, slot of the property, texts, number, what a comparison accepts, whether it is negated.
Operation = tuple[str, int, list[bytes], int | float, int, bool]

ACCEPTS: Final[dict[str, int]] = {"<": LESS, "<=": LESS | SAME, ">": MORE, ">=": MORE | SAME}
#: The comparison of a property with a constant that says the same as that constant on the left.
TURNED: Final[dict[str, Symbol]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
TESTS: Final = {"CONTAINS": "contains", "STARTSWITH": "starts", "ENDSWITH": "ends"}
FALSE, TRUE, NULL, ERROR, UNSURE = range(5)


def program_of(found: SqlFilter) -> FilterProgram:
    """The program of a filter. What native code does not know is unsure, and asked here."""
    names = found.properties[:SLOTS_MAX]
    slots = {name: slot for slot, name in enumerate(names)}

    def unsure(properties: bytes) -> bool:
        return found.matches(decode_properties(properties))

    return FilterProgram(_ops(found.node, slots), [name.encode() for name in names], unsure)


def _op(
    code: str,
    slot: int = 0,
    texts: list[bytes] | None = None,
    number: int | float = 0,
    accepts: int = 0,
    negated: bool = False,
) -> Operation:
    return code, slot, texts or [], number, accepts, negated


def _ops(node: Node, slots: dict[str, int]) -> Iterator[Operation]:
    """Postfix. As deep as the node."""
    match node:
        case Junction(word, parts):
            yield from _ops(parts[0], slots)
            for part in parts[1:]:
                yield from _ops(part, slots)
                yield _op(word.lower())
        case Not(of):
            yield from _ops(of, slots)
            yield _op("not")
        case _:
            yield _leaf(node, slots) or _op("constant", number=UNSURE)


def _leaf(node: Node, slots: dict[str, int]) -> Operation | None:
    """An operation over one property; None for what native code does not know."""
    match node:
        case Constant(bool() | None as value):
            return _op("constant", number=NULL if value is None else int(value))
        case Order(symbol, Constant(value), Property(_) as right):
            return _leaf(Order(TURNED[symbol], right, Constant(value)), slots)
        case Equal(Constant(int() | float() | str() as value), Property(name)) if not isinstance(
            value, bool
        ):
            turned = name in slots and _leaf(Equal(Property(name), Constant(value)), slots)
            return (*turned[:4], turned[4] | ELSE_FALSE, turned[5]) if turned else None
        case (
            Cast(Property(name))
            | Equal(Property(name), Constant())
            | Order(_, Property(name), Constant())
            | Member(Property(name))
            | TextTest(_, Property(name))
        ):
            slot = slots.get(name)
            return None if slot is None else _of_property(node, slot)
    return None


def _of_property(node: Node, slot: int) -> Operation | None:
    match node:
        case Cast():
            return _op("cast", slot)
        case Equal(_, Constant(None)):
            return _op("is_null", slot)
        case Equal(_, Constant(bool() as value)):
            return _op("truth", slot, number=int(value))
        case Equal(_, Constant(str() as text)):
            return _of_texts("in", slot, [text], False)
        case Equal(_, Constant(value)):
            return _number(slot, value, SAME)
        case Order(symbol, _, Constant(value)):
            return _number(slot, value, ACCEPTS[symbol])
        case Member(_, texts, negated):
            return _of_texts("in", slot, sorted(texts), negated)
        case TextTest(_, _, ""):
            return _op("constant", number=FALSE)
        case TextTest(word, _, search, negated):
            return _of_texts(TESTS[word], slot, [search], negated)
    return None


def _number(slot: int, value: object, accepts: int) -> Operation | None:
    if isinstance(value, float):
        return _op("double", slot, number=value, accepts=accepts)
    if isinstance(value, Long):
        return _op("long", slot, number=int(value), accepts=accepts)
    return _op("int", slot, number=value, accepts=accepts) if isinstance(value, int) else None


def _of_texts(code: str, slot: int, texts: list[str], negated: bool) -> Operation | None:
    """Compared as bytes. What is shown in place of bytes that are not UTF-8 has none of its own."""
    if any("\ufffd" in text or not _encodes(text) for text in texts):
        return None
    return _op(code, slot, [text.encode() for text in texts], negated=negated)


def _encodes(text: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in text)
