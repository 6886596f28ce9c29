"""Expressions that are none: where, and what would do. None of them costs a recursion."""

from __future__ import annotations

import pickle
import sys
from types import FrameType
from typing import Any

import pytest

from rocketstore import FilterSyntaxError, RocketStoreError
from rocketstore.filters import program_of, sql_filter, syntax
from rocketstore.filters.syntax import LENGTH_MAX

WRONG = [
    ("", 0, "empty"),
    (" \n", 0, "empty"),
    ("price >", 7, "expected a property, a number, a text or NOT"),
    ("price > 10 AND", 14, "expected a property"),
    ("a = 1 b", 6, "AND or OR"),
    ("a = 007", 5, "AND or OR"),
    ("a = 1)", 5, "AND or OR"),
    ("(a = 1", 6, "')', AND or OR"),
    ("a != 1", 2, "unequal is <>"),
    ("a == 1", 3, "expected a property"),
    ('a = "x"', 4, "single quotes"),
    ("a = 'x", 4, "no closing quote"),
    ("a LIKE 'x%'", 2, "there is no LIKE"),
    ("a + 1 > 5", 2, "no arithmetic"),
    ("a = 1 && b = 2", 6, "AND, in words"),
    ("a || b", 2, "tags="),
    ("x.y = 1", 1, "names of properties"),
    ("a = #", 4, "no sign of an expression"),
    ("a IS 5", 5, "NULL, or NOT NULL"),
    ("a IN (1)", 6, "a text in single quotes"),
    ("a IN ()", 6, "a text in single quotes"),
    ("a IN ('x' 'y')", 10, "',' or ')'"),
    ("a IN 'x'", 5, "'('"),
    ("a CONTAINS b", 11, "a text in single quotes"),
    ("a BETWEEN 1 OR 2", 12, "AND"),
    ("5", 0, "a condition is wanted"),
    ("'x'", 0, "a condition is wanted"),
    ("NOT 5", 0, "a condition is wanted"),
    ("a = 1 AND 5", 6, "a condition is wanted"),
    ("a = NULL", 2, "IS NULL"),
    ("NULL <> a", 5, "IS NULL"),
    ("TRUE = 5", 5, "does not compare"),
    ("a > 'x'", 2, "numbers and properties only"),
    ("a > TRUE", 2, "numbers and properties only"),
    ("(a = 1) > 2", 8, "numbers and properties only"),
    ("a BETWEEN 'x' AND 'y'", 2, "numbers and properties only"),
    ("a BETWEEN NULL AND 5", 2, "numbers and properties only"),
    ("a BETWEEN 5 AND 1", 2, "the lesser one"),
    ("1 IN ('a')", 2, "a property on its left"),
    ("a = 9223372036854775808", 4, "at most 9223372036854775807"),
    ("a = " + "9" * 5000, 4, "at most"),
    ("a = 1e999", 4, "greater than a double"),
    ("a = 1 -- b", 6, "no arithmetic"),
]

#: Texts that cost much for their length where they are many.
MANY = [
    *(
        "a<1or ",
        "a=-1or ",
        "1.5<a and ",
        "a=''or ",
        "(a)or",
        "((+a))and ",
        "not a or ",
        "(",
        "-",
        "+",
    ),
    *("a between 1and 2or ", "a is null or ", "a in('')or ", "a contains''or ", "a/**/or/**/"),
    "a or--\n",
]


@pytest.mark.parametrize(("text", "position", "hint"), WRONG, ids=[text[:24] for text, *_ in WRONG])
def test_where_it_is_wrong_and_what_would_do(text: str, position: int, hint: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        sql_filter(text)
    error = caught.value
    assert (error.expression, error.position) == (text, position)
    assert hint in error.hint
    assert error.hint in str(error)
    assert len(str(error)) < 300
    assert isinstance(error, ValueError) and isinstance(error, RocketStoreError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.position) == (str(error), position)


@pytest.mark.parametrize("given", [5, b"a = 1", ["a = 1"], True, 1.5, object()])
def test_no_text_at_all(given: Any) -> None:
    with pytest.raises(TypeError, match="where"):
        sql_filter(given)


def test_long_expressions_have_a_bound() -> None:
    chain = " OR ".join(["a = 1"] * 7000)
    assert sql_filter(chain).matches({"a": "1"})
    assert program_of(sql_filter(chain)) is not None
    many = f"a IN ({', '.join(repr(str(n)) for n in range(6000))})"
    assert sql_filter(many).matches({"a": "5999"})
    with pytest.raises(FilterSyntaxError, match="characters"):
        sql_filter("a = 1" + " " * LENGTH_MAX)


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 10_000 + "a",
        "- " * 20_000 + "a = 1",
        " = ".join(["a"] * 10_000),
        "NOT (" * 10_000 + "a" + ")" * 10_000,
        "a = 1 AND NOT (" * 3000 + "a = 2" + ")" * 3000,
    ],
)
def test_deep_expressions_are_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="nested deeper than 100"):
        sql_filter(text)


@pytest.mark.parametrize(
    "text",
    [
        *(unit * (LENGTH_MAX // len(unit)) for unit in MANY),
        "(" * (LENGTH_MAX // 2 - 1) + "a" + ")" * (LENGTH_MAX // 2 - 1),
        "a IN (''" + ",''" * 21_000 + ")",
    ],
    ids=[*MANY, "brackets", "texts"],
)
def test_each_character_costs_a_few_calls(text: str) -> None:
    """Of functions, in Python and in C: what each word costs, with its nodes."""
    assert calls_per_character(text) < 10


def calls_per_character(text: str) -> float:
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        syntax.parse(text)
    except FilterSyntaxError:
        pass
    finally:
        sys.setprofile(None)
    return calls / len(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a = " + "-" * 300_000, "expected a property"),
        ("a = " + "-" * 300_000 + "1", "nested deeper than 100"),
        ("a = --1 OR " * 40_000 + "'", "no closing quote"),
        ("a = --1 OR " * 40_000 + "/*", "no arithmetic"),
        ("a = 1 " + "/*" * 200_000, "no arithmetic"),
    ],
    ids=["minus", "minus and a number", "minus in a chain", "minus and a comment", "comments"],
)
def test_starts_of_comments_without_an_end(
    text: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many times the length that may be: where each start looks for its end this takes hours."""
    monkeypatch.setattr(syntax, "LENGTH_MAX", 1 << 20)
    with pytest.raises(FilterSyntaxError, match=hint):
        syntax.parse(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a = --1", "a = - -1"),
        ("a = --1 /* -- */", "a = - -1"),
        ("a = 1 -- b\n", "a = 1"),
        ("a = 1 -- b\r OR b = 2 --", None),
        ("a = '--\n' -- '\n", "a = '--\n'"),
        ("a = '/*' -- */\n OR b = '*/'", "a = '/*' OR b = '*/'"),
        ("a = 1 /* -- */ OR b = 2 --\n", "a = 1 OR b = 2"),
        ("a = 1 /*/ -- */ -- \r\n OR b = 2", "a = 1 OR b = 2"),
        ("a = 1 -- /*\nOR b = 2 -- */\n", "a = 1 OR b = 2"),
        ("a = 1--\n--\r--\r\n", "a = 1"),
    ],
)
def test_where_a_comment_ends(text: str, same: str | None) -> None:
    """`--` is a comment up to the end of its line, and two signs where that has none."""
    if same is None:
        with pytest.raises(FilterSyntaxError, match="no arithmetic"):
            sql_filter(text)
    else:
        assert repr(sql_filter(text).node) == repr(sql_filter(same).node)


def test_what_is_just_deep_enough_works_with_little_stack() -> None:
    depth, limit = "NOT (" * 97 + "a = 1" + ")" * 97, sys.getrecursionlimit()
    found = sql_filter("(" * 15_000 + depth + ")" * 15_000)
    sys.setrecursionlimit(450)
    try:
        assert found.matches({"a": "2"})
        assert not found.matches({"a": "1"})
    finally:
        sys.setrecursionlimit(limit)
