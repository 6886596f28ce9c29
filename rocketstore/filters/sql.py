"""An expression as nested functions, each made once: `SqlFilter`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketstore.errors import FilterSyntaxError
from rocketstore.filters.compare import UndecidedError, compare, double_of, int_of, long_of, same
from rocketstore.filters.nodes import (
    Cast,
    Constant,
    Equal,
    Junction,
    Long,
    Member,
    Negative,
    Node,
    Not,
    Order,
    Property,
    TextTest,
    Value,
    properties_of,
)
from rocketstore.filters.syntax import parse
from rocketstore.values.arguments import text
from rocketstore.values.public import public

__all__ = ["SqlFilter", "sql_filter"]

#: Expressions that are kept, parsed.
KEPT: Final = 128

#: Gives the value of a property, None without it.
Get = Callable[[str], str | None]
Evaluate = Callable[[Get], Any]
ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@public
class SqlFilter:
    """A filter over properties, compiled: made by `sql_filter`. Threads may share it."""

    __slots__ = ("_evaluate", "node", "properties", "text")

    def __init__(self, expression: str) -> None:
        self.text = expression
        self.node = parse(expression)
        #: Names of the properties that it speaks of.
        self.properties = properties_of(self.node)
        #: Functions, made at the first use: native code may decide all. Threads make the same.
        self._evaluate: Evaluate = self._first

    def _first(self, get: Get) -> Any:
        self._evaluate = _evaluator(self.node)
        return self._evaluate(get)

    def verdict(self, properties: Mapping[str, str]) -> bool | None:
        """True, False, or None for unknown, which does not match. Raises nothing: what RocketMQ
        answers with an exception is unknown."""
        try:
            found: bool | None = self._evaluate(properties.get)
        except UndecidedError:
            return None
        return found

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties matches. Raises nothing."""
        try:
            return self._evaluate(properties.get) is True
        except UndecidedError:
            return False

    def __repr__(self) -> str:
        return f"sql_filter({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlFilter) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return sql_filter, (self.text,)


def sql_filter(expression: str) -> SqlFilter:
    """The filter of an expression, as in `price > 10 AND region = 'eu'`.

    Raises:
        FilterSyntaxError: It is none, with the position and a hint.
        TypeError: It is no text.
    """
    expression = text("where", expression)
    if not expression.strip():
        raise FilterSyntaxError(expression, 0, "empty: a condition is wanted, as in: price > 10")
    return _kept(expression)


_kept = functools.lru_cache(KEPT)(SqlFilter)


def _evaluator(node: Node) -> Evaluate:
    """A function for a node; its own recursion, and that of the function, is as deep as the
    node, which has a bound."""
    match node:
        case Property(name):
            return lambda get: get(name)
        case Constant(value):
            return lambda get: value
        case Negative(of):
            return _negative(_evaluator(of))
        case Not(of):
            return _not(_evaluator(of))
        case Cast(Property(name)):
            return lambda get: None if get(name) is None else False
        case Junction(word, parts):
            return _junction([_evaluator(part) for part in parts], word == "OR")
        case Equal(left, right):
            return _equal(left, right)
        case Order(symbol, left, right):
            return _order(ORDERS[symbol], left, right)
        case Member(Property(name), texts, negated):
            return _member(name, texts, negated)
        case TextTest(word, of, search, negated):
            return _text_test(word, _evaluator(of), search, negated)


def _negative(of: Evaluate) -> Evaluate:
    def evaluate(get: Get) -> Value:
        value = of(get)
        if isinstance(value, str | bool) or value is None:
            return None
        found: Value = -value
        return Long(found) if isinstance(value, Long) else found  # type: ignore[arg-type]

    return evaluate


def _not(of: Evaluate) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        value: bool | None = of(get)
        return None if value is None else not value

    return evaluate


def _junction(parts: list[Evaluate], decides: bool) -> Evaluate:
    """OR is decided by True, AND by False; else one that is unknown makes it unknown."""

    def evaluate(get: Get) -> bool | None:
        found: bool | None = not decides
        for part in parts:
            value: bool | None = part(get)
            if value is decides:
                return value
            if value is None:
                found = None
        return found

    return evaluate


def _equal(left: Node, right: Node) -> Evaluate:
    if isinstance(left, Property) and isinstance(right, Constant):
        name, value = left.name, right.value
        if value is None:
            return lambda get: get(name) is None
        if isinstance(value, str):
            return lambda get: None if (own := get(name)) is None else own == value
        if type(value) is int:
            return lambda get: None if (own := get(name)) is None else int_of(own) == value
    first, second = _evaluator(left), _evaluator(right)
    return lambda get: same(first(get), second(get))


def _order(answer: Callable[[Any, Any], bool], left: Node, right: Node) -> Evaluate:
    if isinstance(left, Property) and isinstance(right, Constant):
        name, value = left.name, right.value
        number = int_of if type(value) is int else long_of
        if isinstance(value, int):
            return lambda get: None if (own := get(name)) is None else answer(number(own), value)
    first, second = _evaluator(left), _evaluator(right)

    def evaluate(get: Get) -> bool | None:
        one = first(get)
        other = None if one is None else second(get)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            one, other = double_of(one), double_of(other)
        return answer(compare(one, other), 0)

    return evaluate


def _member(name: str, texts: frozenset[str], negated: bool) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        value = get(name)
        return None if value is None else (value in texts) != negated

    return evaluate


def _text_test(word: str, of: Evaluate, search: str, negated: bool) -> Evaluate:
    tests: dict[str, Callable[[str], bool]] = {
        "CONTAINS": lambda value: search in value,
        "STARTSWITH": lambda value: value.startswith(search),
        "ENDSWITH": lambda value: value.endswith(search),
    }
    test = tests[word]

    def evaluate(get: Get) -> bool:
        value = of(get)
        return isinstance(value, str) and search != "" and test(value) != negated

    return evaluate
