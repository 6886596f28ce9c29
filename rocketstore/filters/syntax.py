"""The grammar of RocketMQ's SQL92 filters, and what is said of a text that does not follow it.

The parser looks at each word once. Operators wait on a stack of its own for their right side:
nesting costs no recursion. From the loosest to the closest they are

    OR
    AND
    =, <>, IS [NOT] NULL
    <, <=, >, >=, [NOT] BETWEEN … AND …, [NOT] IN (…), [NOT] CONTAINS, STARTSWITH and ENDSWITH
    +, - and NOT before a value

Those of one line bind from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from rocketstore.errors import FilterSyntaxError
from rocketstore.filters import nodes
from rocketstore.filters.nodes import (
    Constant,
    Equal,
    Meaningless,
    Negative,
    Node,
    Not,
    Property,
    TextTest,
)

__all__ = ["LENGTH_MAX", "parse"]

#: Characters of an expression.
LENGTH_MAX: Final = 65_536

#: What follows blanks and comments: NAME is a name, a word of the grammar or a sign of it. One of
#: these is at every place, so that nothing is tried twice.
WORD: Final = re.compile(
    r"""[ \t\n\r\f]*(?:/\*.*?\*/[ \t\n\r\f]*)*(?:
    (?P<NAME>[a-zA-Z_$][a-zA-Z0-9_$]*|<>|<=|>=|[-+=<>(),])
    |(?P<TEXT>'(?:''|[^'])*')
    |(?P<FLOATING>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<DECIMAL>0|[1-9][0-9]*[lL]?)
    |(?P<END>\Z)
    |(?P<OTHER>.))""",
    re.DOTALL | re.VERBOSE,
)
#: A text, or a comment; a group says that it is one of a whole line, which `WORD` leaves out: at
#: each `--` of a line without an end it would look for that end. After such a line there is no other.
TEXT_OR_COMMENT: Final = re.compile(r"'[^']*'|/\*.*?(?:\*/|\Z)|--[^\n\r]*([\n\r])?", re.DOTALL)

#: What a user may have meant by a sign or a word that the grammar does not have.
MEANT: Final = {
    "!": "unequal is <>",
    '"': "texts are in single quotes, and names of properties in none",
    "'": "the text has no closing quote; a quote within is written twice",
    "&": "AND, in words",
    "|": "OR, in words; tags are chosen by tags=",
    "*": "there is no arithmetic",
    "/": "there is no arithmetic",
    "+": "there is no arithmetic",
    "-": "there is no arithmetic, and no minus within a name",
    "%": "there is no arithmetic",
    ".": "names of properties have letters, digits, _ and $",
    "LIKE": "there is no LIKE: CONTAINS, STARTSWITH and ENDSWITH",
}

#: Kinds and words of values.
VALUES: Final[dict[str, Callable[[str], Node]]] = {
    "NAME": Property,
    "TEXT": lambda text: Constant(_unquoted(text)),
    "DECIMAL": nodes.decimal,
    "FLOATING": nodes.floating,
    "TRUE": lambda _: Constant(True),
    "FALSE": lambda _: Constant(False),
    "NULL": lambda _: Constant(None),
}
#: Operators of what is on their sides.
MAKES: Final[dict[str, Callable[..., Node]]] = {
    "OR": partial(nodes.joined, "OR"),
    "AND": partial(nodes.joined, "AND"),
    "=": nodes.equal,
    "<>": lambda left, right: Not(nodes.equal(left, right)),
    "<": partial(nodes.ordered, "<"),
    "<=": partial(nodes.ordered, "<="),
    ">": partial(nodes.ordered, ">"),
    ">=": partial(nodes.ordered, ">="),
    "BETWEEN": partial(nodes.between, negate=False),
    "NOT BETWEEN": partial(nodes.between, negate=True),
    "NOT": lambda of: Not(nodes.boolean(of)),
    "-": Negative,
}
#: How close they bind: what is open, OR, AND, and so on.
OPEN, EITHER, BOTH, EQUALITY, COMPARISON, VALUE, NOTHING = range(7)
TEXT_TESTS: Final = {"CONTAINS", "STARTSWITH", "ENDSWITH"}
TESTS: Final = {"NOT", "BETWEEN", "IN", *TEXT_TESTS}
#: What may follow a value.
AFTER: Final = {
    **dict.fromkeys((")", "END", "OR"), EITHER),
    "AND": BOTH,
    **dict.fromkeys(("=", "<>", "IS"), EQUALITY),
    **dict.fromkeys(("<", "<=", ">", ">=", *TESTS), COMPARISON),
}
#: What may come before one.
BEFORE: Final = {"(": OPEN, "NOT": VALUE, "-": VALUE}
#: The end of what is open: the whole, a bracket, BETWEEN up to its first bound.
ENDS: Final = {"": "END", "(": ")", "BETWEEN": "AND", "NOT BETWEEN": "AND"}
#: Words and signs of the grammar. The parser compares a word in capitals; any other word is a name.
WORDS: Final = {*AFTER, *BEFORE, "+", ",", "TRUE", "FALSE", "NULL"} - {"END"}


def parse(expression: str) -> Node:
    """The node of a whole expression, which is a condition.

    Raises:
        FilterSyntaxError: it is none, or too long, or nested too deep.
    """
    if len(expression) > LENGTH_MAX:
        hint = f"{len(expression)} characters; there may be {LENGTH_MAX}"
        raise FilterSyntaxError(expression, LENGTH_MAX, hint)
    parser = _Parser(expression)
    try:
        return parser.condition()
    except Meaningless as error:
        raise FilterSyntaxError(expression, parser.at, str(error)) from None


def _blanked(found: re.Match[str]) -> str:
    """Blanks in the place of a comment to the end of its line, so that positions stay."""
    return found[0] if found.lastindex is None else " " * len(found[0])


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


class _Parser:
    """Makes nodes from the inside out. Where words make none it raises Meaningless."""

    def __init__(self, expression: str) -> None:
        self._words = WORD.finditer(TEXT_OR_COMMENT.sub(_blanked, expression))
        #: The place of the last word, or of the operator whose node is made.
        self.at = 0
        self._kind = self._text = ""
        #: What waits for its end or its right side: how close it binds, its word, its parts so far,
        #: its place.
        self._waiting: list[tuple[int, str, tuple[Node, ...], int]] = [(OPEN, "", (), 0)]

    def condition(self) -> Node:
        """The node of all words."""
        node, closest, waiting = self._value(), VALUE, self._waiting
        while True:
            word = self._next()
            at, binds = self.at, AFTER.get(word, NOTHING)
            if binds > closest:
                self._unexpected_after(closest)
            while waiting[-1][0] >= binds:
                _, operator, parts, self.at = waiting.pop()
                node = MAKES[operator](*parts, node)
            self.at, opened = at, waiting[-1][1]
            if ENDS.get(opened) == word:
                _, _, parts, self.at = waiting.pop()
                if word == "END":
                    return nodes.boolean(node)
                if word == "AND":
                    node = self._right(COMPARISON, opened, *parts, node)
            elif word in (")", "END") or opened in ("BETWEEN", "NOT BETWEEN"):
                self._unexpected_after(closest)
            elif word == "IS":
                node = self._null_test(node)
            elif word in TESTS:
                node = self._word_test(word, node)
            else:
                node = self._right(binds, word, node)
            closest = EQUALITY if word == "IS" else VALUE

    def _next(self) -> str:
        """The next word or sign of the grammar, else the kind of what is next."""
        found = next(self._words)
        self._kind = kind = found.lastgroup or ""
        self.at, self._text = found.start(kind), found[kind]
        word = self._text.upper() if kind == "NAME" else kind
        return word if word in WORDS else kind

    def _value(self) -> Node:
        """The next value; what comes before it waits."""
        while (word := self._next()) not in VALUES:
            if word in BEFORE:
                self._waiting.append((BEFORE[word], word, (), self.at))
            elif word != "+":
                self._unexpected("a property, a number, a text or NOT")
        return VALUES[word](self._text)

    def _right(self, binds: int, word: str, *parts: Node) -> Node:
        """The next value; an operator waits for all that is on its right."""
        self._waiting.append((binds, word, parts, self.at))
        return self._value()

    def _null_test(self, of: Node) -> Node:
        at, word = self.at, self._next()
        negated = word == "NOT"
        if (self._next() if negated else word) != "NULL":
            self._unexpected("NULL, or NOT NULL")
        self.at, node = at, Equal(of, Constant(None))
        return Not(node) if negated else node

    def _word_test(self, word: str, of: Node) -> Node:
        """What a word makes of the value before it; BETWEEN waits, and this is the next value."""
        at, texts, negated = self.at, [""], word == "NOT"
        if negated:
            word = self._next()
        if word == "IN":
            texts = self._texts()
        elif word in TEXT_TESTS:
            texts = [self._quoted()]
        elif word != "BETWEEN":
            self._unexpected("a comparison, AND or OR")
        self.at = at
        if word == "BETWEEN":
            return self._right(OPEN, "NOT BETWEEN" if negated else word, of)
        if word == "IN":
            return nodes.member(of, texts, negate=negated)
        return TextTest(word, of, texts[0], negated)  # type: ignore[arg-type]

    def _texts(self) -> list[str]:
        if self._next() != "(":
            self._unexpected("'('")
        texts = [self._quoted()]
        while (word := self._next()) == ",":
            texts.append(self._quoted())
        if word != ")":
            self._unexpected("',' or ')'")
        return texts

    def _quoted(self) -> str:
        if self._next() != "TEXT":
            self._unexpected("a text in single quotes")
        return _unquoted(self._text)

    def _unexpected_after(self, closest: int) -> NoReturn:
        opened = next(word for binds, word, *_ in reversed(self._waiting) if binds == OPEN)
        after = "AND or OR" if closest == EQUALITY else "a comparison, AND or OR"
        self._unexpected({"": after, "(": "')', AND or OR"}.get(opened, "AND"))

    def _unexpected(self, expected: str) -> NoReturn:
        sign = "no sign of an expression; " if self._kind == "OTHER" else ""
        raise Meaningless(MEANT.get(self._text.upper(), f"{sign}expected {expected}"))
