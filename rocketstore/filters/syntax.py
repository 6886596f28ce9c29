"""The grammar of RocketMQ's SQL92 filters, and what is said of a text that does not follow it.

`lark` reads the grammar and parses by a table (LALR), with a stack of its own: nesting costs no
recursion.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

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

WORDS: Final = (
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
    *("CONTAINS", "STARTSWITH", "ENDSWITH"),
)
#: The words of the grammar are names for the lexer, in capitals or not, as all words are.
GRAMMAR: Final = rf"""
start: either
?either: both | either OR both -> either
?both: equality | both AND equality -> both
?equality: comparison
    | equality "=" comparison -> equal
    | equality UNEQUAL comparison -> unequal
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison ORDER unary -> order
    | comparison _test TEXT -> text_test
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN "(" texts ")" -> member
    | comparison NOT IN "(" texts ")" -> not_member
_test: NOT? (CONTAINS | STARTSWITH | ENDSWITH)
texts: TEXT ("," TEXT)*
?unary: primary
    | "+" unary -> plus
    | "-" unary -> minus
    | NOT unary -> negation
?primary: TEXT -> text
    | DECIMAL -> decimal
    | FLOATING -> floating
    | TRUE -> true
    | FALSE -> false
    | NULL -> null
    | NAME -> name
    | "(" either ")" -> group

%declare {" ".join(WORDS)}
UNEQUAL.2: "<>"
ORDER: "<=" | ">=" | "<" | ">"
TEXT: /'(''|[^'])*'/
FLOATING.2: /[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
DECIMAL: /0|[1-9][0-9]*l?/i
NAME: /[a-z_$][a-z0-9_$]*/i
%ignore /[ \t\n\r\f]+/
%ignore /\/\*[^*]*\*+([^*\/][^*]*\*+)*\//
"""
#: A text, or a comment; a group says that it is one of a whole line, which the grammar leaves out: at
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
#: What may stand at a place, by one of its tokens; the first that is there says it.
EXPECTED: Final = (
    ("NAME", "a property, a number, a text or NOT"),
    ("LPAR", "'('"),
    ("TEXT", "a text in single quotes"),
    ("COMMA", "',' or ')'"),
    ("RPAR", "')', AND or OR"),
    ("BETWEEN", "a comparison, AND or OR"),
    ("NULL", "NULL, or NOT NULL"),
    ("OR", "AND or OR"),
    ("AND", "AND"),
)


def parse(expression: str) -> Node:
    """The node of a whole expression, which is a condition.

    Raises:
        FilterSyntaxError: it is none, or too long, or nested too deep.
        ModuleNotFoundError: there is no lark.
    """
    if len(expression) > LENGTH_MAX:
        hint = f"{len(expression)} characters; there may be {LENGTH_MAX}"
        raise FilterSyntaxError(expression, LENGTH_MAX, hint)
    errors = _lark().exceptions
    try:
        found: Node = _parser().parse(TEXT_OR_COMMENT.sub(_blanked, expression))
    except errors.UnexpectedCharacters as error:
        at, wanted = error.pos_in_stream, _expected(error.allowed)
        hint = MEANT.get(expression[at], f"no sign of an expression; expected {wanted}")
    except errors.UnexpectedToken as error:
        token = error.token
        at = len(expression) if token.type == "$END" else token.start_pos
        hint = MEANT.get(str(token).upper(), f"expected {_expected(error.accepts)}")
    except _WrongAt as error:
        at, hint = error.position, error.hint
    else:
        return found
    raise FilterSyntaxError(expression, at, hint)


def _blanked(found: re.Match[str]) -> str:
    """Blanks in the place of a comment to the end of its line, so that positions stay."""
    return found[0] if found.lastindex is None else " " * len(found[0])


def _expected(allowed: set[str] | None) -> str:
    for name, words in EXPECTED:
        if name in (allowed or ()):
            return words
    return "the end"


class _WrongAt(Exception):
    """What may not be made, and where its operator stands."""

    def __init__(self, position: int, hint: str) -> None:
        super().__init__(position, hint)
        self.position = position
        self.hint = hint


def _making(make: Callable[[_Maker, list[Any]], Node]) -> Callable[[_Maker, list[Any]], Node]:
    """What may not be made is told with the place of its first token: the operator."""

    @functools.wraps(make)
    def made(self: _Maker, parts: list[Any]) -> Node:
        try:
            return make(self, parts)
        except Meaningless as error:
            places = [part.start_pos for part in parts if hasattr(part, "start_pos")]
            raise _WrongAt(places[0] if places else 0, str(error)) from None

    return made


class _Maker:
    """Nodes out of what the grammar found, called from the inside out; `parts` has nodes and
    tokens."""

    @_making
    def start(self, parts: list[Any]) -> Node:
        return nodes.boolean(parts[0])

    @_making
    def either(self, parts: list[Any]) -> Node:
        return nodes.joined("OR", parts[0], parts[2])

    @_making
    def both(self, parts: list[Any]) -> Node:
        return nodes.joined("AND", parts[0], parts[2])

    @_making
    def equal(self, parts: list[Any]) -> Node:
        return nodes.equal(parts[0], parts[2])

    @_making
    def unequal(self, parts: list[Any]) -> Node:
        return Not(nodes.equal(parts[0], parts[2]))

    @_making
    def is_null(self, parts: list[Any]) -> Node:
        return Equal(parts[0], Constant(None))

    @_making
    def is_not_null(self, parts: list[Any]) -> Node:
        return Not(Equal(parts[0], Constant(None)))

    @_making
    def order(self, parts: list[Any]) -> Node:
        left, symbol, right = parts
        return nodes.ordered(str(symbol), left, right)  # type: ignore[arg-type]

    @_making
    def text_test(self, parts: list[Any]) -> Node:
        of, *words, search = parts
        word: Any = words[-1].type
        return TextTest(word, of, _unquoted(search), len(words) == 2)

    @_making
    def between(self, parts: list[Any]) -> Node:
        return nodes.between(parts[0], parts[2], parts[4], negate=False)

    @_making
    def not_between(self, parts: list[Any]) -> Node:
        return nodes.between(parts[0], parts[3], parts[5], negate=True)

    @_making
    def member(self, parts: list[Any]) -> Node:
        return nodes.member(parts[0], parts[-2], negate=False)

    @_making
    def not_member(self, parts: list[Any]) -> Node:
        return nodes.member(parts[0], parts[-2], negate=True)

    def texts(self, parts: list[Any]) -> list[str]:
        return [_unquoted(token) for token in parts[::2]]

    def plus(self, parts: list[Any]) -> Node:
        found: Node = parts[1]
        return found

    @_making
    def minus(self, parts: list[Any]) -> Node:
        return Negative(parts[1])

    @_making
    def negation(self, parts: list[Any]) -> Node:
        return Not(nodes.boolean(parts[1]))

    def group(self, parts: list[Any]) -> Node:
        found: Node = parts[1]
        return found

    def text(self, parts: list[Any]) -> Node:
        return Constant(_unquoted(parts[0]))

    @_making
    def decimal(self, parts: list[Any]) -> Node:
        return nodes.decimal(str(parts[0]))

    @_making
    def floating(self, parts: list[Any]) -> Node:
        return nodes.floating(str(parts[0]))

    def true(self, _parts: list[Any]) -> Node:
        return Constant(True)

    def false(self, _parts: list[Any]) -> Node:
        return Constant(False)

    def null(self, _parts: list[Any]) -> Node:
        return Constant(None)

    def name(self, parts: list[Any]) -> Node:
        return Property(str(parts[0]))


def _unquoted(token: str) -> str:
    return str(token)[1:-1].replace("''", "'")


def _lark() -> ModuleType:
    try:
        import lark
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "where= needs lark: pip install 'rocketstore[sql]'", name="lark"
        ) from error
    return lark


@functools.cache
def _parser() -> Any:
    def word(token: Any) -> Any:
        name = token.upper()
        return token.update(type=name) if name in WORDS else token

    return _lark().Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        transformer=_Maker(),
        keep_all_tokens=True,
        lexer_callbacks={"NAME": word},
    )
