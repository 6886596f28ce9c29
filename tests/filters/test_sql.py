"""Expressions of filters: what they mean, as a table; and native code beside the functions of Python."""

from __future__ import annotations

import itertools
import pickle
import random
from typing import Any

import pytest

from rocketstore._native.format.codec import encode_properties
from rocketstore._native.format.filter_program import FilterProgram
from rocketstore.errors import FilterSyntaxError
from rocketstore.filters import SqlFilter, program_of, sql, sql_filter
from tests.support.filter_expressions import VALUES, expression, message

T, F, N = True, False, None
A = {"a": "10", "b": "eu", "t": "true", "d": "1.5", "e": "x", "TAGS": "paid"}

MEANINGS = [
    # numbers: a property is read as the type of the constant
    ("a = 10", T), ("a = 10L", T), ("a = +10", T), ("a = 10.0", T), ("a <> 11", T), ("a > 9", T),
    ("a >= 10", T), ("a < 10", F), ("a <= 10.0", T), ("- 5 < a", T), ("10 = a", T), ("9 > a", F),
    ("d = 1.5", T), ("d > 1", N), ("d > 1.0", T), ("d = 15e-1", T), ("d < 1.50000000000000001", F),
    ("a < 9223372036854775807", T), ("a > 2147483648", F), ("-a = 10", N), ("a = -(-(10))", T),
    ("d > 0.0", T), ("a = .1e2", T), ("a = 10.", T),
    # what is no number beside one: unknown, and so is all that hangs on it
    ("b = 10", N), ("b > 1.5", N), ("NOT (b > 1.5)", N), ("b > 1 OR a = 10", N),
    ("a = 10 OR b > 1", T), ("a = 11 AND b > 1", F), ("b > 1 AND a = 11", N),
    # texts
    ("b = 'eu'", T), ("b <> 'eu'", F), ("b = 'EU'", F), ("a = '10'", T), ("a = '10.0'", F),
    ("'eu' = b", T), ("b IN ('us', 'eu')", T), ("b NOT IN ('us', 'eu')", F), ("a IN ('10')", T),
    ("b in ('us','a','c','d','f','eu')", T), ("b CONTAINS 'u'", T), ("b NOT CONTAINS 'u'", F),
    ("b STARTSWITH 'e'", T), ("b STARTSWITH 'eux'", F), ("b ENDSWITH 'u'", T),
    ("b NOT ENDSWITH 'x'", T), ("b CONTAINS ''", F), ("b NOT CONTAINS ''", F),
    ("5 CONTAINS '5'", F), ("b < a", N), ("d < a", T),
    # truth values
    ("t = TRUE", T), ("t = false", F), ("TRUE = t", N), ("b = TRUE", F), ("TRUE", T), ("FALSE", F),
    ("t", F), ("NOT t", T), ("NOT t = 1", F), ("(a = 10) = TRUE", T), ("(a = 10) = (d = 1.5)", T),
    # null
    ("no = 10", N), ("no <> 10", N), ("10 = no", F), ("10 <> no", T), ("no > 10", N),
    ("10 > no", N),
    ("no = 'x'", N), ("no IN ('x')", N), ("no NOT IN ('x')", N), ("no CONTAINS 'x'", F),
    ("no NOT CONTAINS 'x'", F), ("NOT (no CONTAINS 'x')", T), ("no", N), ("NOT no", N),
    ("no IS NULL", T), ("no IS NOT NULL", F), ("a IS NULL", F), ("a IS NOT NULL", T),
    ("no = nor", T), ("no = a", N), ("a = no", F), ("no = TRUE", N), ("NULL", N), ("NOT NULL", N),
    ("(no > 1) IS NULL", T),
    # ranges
    ("a BETWEEN 5 AND 10", T), ("a NOT BETWEEN 5 AND 10", F), ("a BETWEEN 11 AND 20", F),
    ("no BETWEEN 1 AND 2", N), ("b BETWEEN 1 AND 2", N), ("a BETWEEN 5 AND -5", F),
    ("d BETWEEN 1.0 AND 2.0", T), ("5 BETWEEN 1 AND 10", T),
    # AND, OR, NOT with unknown
    ("no = 1 AND a = 10", N), ("no = 1 AND a = 11", F), ("a = 11 AND no = 1", F),
    ("no = 1 OR a = 10", T), ("no = 1 OR a = 11", N), ("NOT (no = 1)", N),
    ("a = 10 AND no = 1 OR b = 'eu'", T), ("a = 1 OR a = 10 AND b = 'us'", F),
    ("(a = 1 OR a = 10) AND b = 'eu'", T), ("not (a = 1 or a = 2 or a = 3)", T),
    # names, blanks and comments
    ("TAGS = 'paid'", T), ("tags = 'paid'", N), ("a=10/* ** / */AND\n\tb='eu'-- all\n", T),
    ("A IS NULL", T), ("isnull IS NULL AND in_ IS NULL AND $a IS NULL AND _ IS NULL", T),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict"), MEANINGS, ids=[text for text, _ in MEANINGS])
def test_what_an_expression_means(text: str, verdict: bool | None) -> None:
    found = sql_filter(text)
    assert found.verdict(A) is verdict
    assert found.matches(A) is (verdict is True)


@pytest.mark.parametrize(("text", "verdict"), MEANINGS, ids=[text for text, _ in MEANINGS])
def test_native_code_means_the_same(text: str, verdict: bool | None) -> None:
    found = program_of(sql_filter(text)).verdict(encode_properties(A))
    assert found in (verdict, "unsure") or (found == "error" and verdict is None)


def test_native_code_is_sure_of_the_usual() -> None:
    for text in (
        *("a = 10", "a > 5 AND b = 'eu'", "b IN ('x', 'eu')", "d < 2.5", "no IS NULL"),
        *("b CONTAINS 'u'", "NOT (a BETWEEN 1 AND 2)", "t = TRUE", "5 < a", "a = 5000000000"),
        *("10 = a", "10.5 <> no", "'eu' = b", "5000000000 = no", "'eu' <> no"),
        *("a = -10", "a BETWEEN -1 AND - - 10", "-2.5 < d", "a > -5000000000", "-(3) <> no"),
    ):
        assert program_of(sql_filter(text)).verdict(encode_properties(A)) != "unsure", text


def test_native_code_agrees_wherever_it_is_sure(rng: random.Random) -> None:
    """Of random expressions and properties, and of each value beside a number of each type."""
    for _ in range(400):
        try:
            found = sql_filter(expression(rng))
        except FilterSyntaxError:  # (NULL) = a
            continue
        program = program_of(found)
        for properties in (message(rng) for _ in range(20)):
            verdict = program.verdict(encode_properties(properties))
            if verdict != "unsure":
                assert (verdict is True) == found.matches(properties), (found, properties)
    for constant in ("10", "5000000000", "-10", "-2147483648", "-0", "10.0", "-.5", "-0.0", "1e22"):
        for symbol in ("=", "<", ">="):
            found = sql_filter(f"a {symbol} {constant}")
            for value in VALUES:
                verdict = program_of(found).verdict(encode_properties({"a": value}))
                assert verdict == "unsure" or (verdict is True) == found.matches({"a": value}), (
                    value
                )


def test_functions_are_made_at_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def evaluator(node: object) -> object:
        made.append(node)
        return lambda get: True

    monkeypatch.setattr(sql, "_evaluator", evaluator)
    found = SqlFilter("a = 1 OR b = 2")
    assert program_of(found).verdict(encode_properties({"a": "1"})) is True
    assert made == []
    assert found.matches({}) and found.verdict({})
    assert made == [found.node]


def containing(text: bytes) -> FilterProgram:
    return FilterProgram([("contains", 0, [text], 0, 0, False)], [b"p"], bool)


def words(letters: str, size_max: int) -> list[str]:
    return [
        "".join(w) for n in range(1, size_max + 1) for w in itertools.product(letters, repeat=n)
    ]


def test_every_text_of_two_letters_is_found_where_it_is() -> None:
    """All texts of up to six letters in all values of up to eight."""
    values = words("ab", 8)
    for text in words("ab", 6):
        program = containing(text.encode())
        for value in values:
            assert program.verdict(b"p\1" + value.encode()) is (text in value), (text, value)


@pytest.mark.parametrize(
    ("before", "after"),
    [(1 << 22, 0), (1 << 21, 1 << 21), (0, 1 << 22)],
    ids=["end", "in", "begin"],
)
def test_a_search_looks_at_each_byte_once(before: int, after: int) -> None:
    """4 MiB of one letter but for one, in 8 MiB of it: at each place anew this takes many minutes."""
    text, size = b"a" * before + b"b" + b"a" * after, 1 << 23
    program = containing(text)
    assert program.verdict(b"p\1" + b"a" * size) is False
    assert program.verdict(b"p\1" + b"a" * size + text) is True


def test_values_that_java_reads_as_numbers() -> None:
    taken = {
        "a = 10": ("10", "+10", "010", "0000000000000000000000000000000000010", "١٠"),
        "a = 10.0": (" 10 ", "1e1", "10f", "10D", "0xap0", "0X1.4P3", "10.00000000000000000001"),
        "a > 1e308": ("Infinity", "+Infinity", "NaN", "1e400", "0x1p5000"),
        "a < -1e308": ("-Infinity", "-1e400", "-0x1p5000"),
        "a = -9223372036854775807": ("-9223372036854775807",),
    }
    for text, values in taken.items():
        for value in values:
            assert sql_filter(text).matches({"a": value}), (text, value)
    left = {
        "a = 10": ("10.0", " 10", "1_0", "10L", "0x10", "2147483648", "", "+", "--10", "1" * 5000),
        "a = 10.0": ("10L", "inf", "0x10", "1_0.0", "1e", ".", "10 f", "１０"),
        "a < 9223372036854775807": ("9223372036854775808",),
    }
    for text, values in left.items():
        for value in values:
            assert sql_filter(text).verdict({"a": value}) is None, (text, value)


@pytest.mark.parametrize("end", ["x", "é", ".0.", "e", " 1"])
def test_long_digits_that_are_no_number(end: str) -> None:
    """A second way to read each digit would take hours here."""
    assert sql_filter("a > 1.5").verdict({"a": "1" * 300_000 + end}) is None
    assert sql_filter("a > 1").verdict({"a": "1" * 300_000 + end}) is None


def test_zeros_and_what_is_no_number() -> None:
    """As Double.compare has it: -0.0 is less than 0.0."""
    for value, zero in (("-0.0", False), ("-0", False), ("0.0", True), ("0", True)):
        found = sql_filter("a >= 0.0")
        assert found.matches({"a": value}) is zero
        assert program_of(found).verdict(encode_properties({"a": value})) is zero
    assert sql_filter("a = b").matches({"a": "NaN", "b": "NaN"})


def test_bytes_that_are_no_text() -> None:
    """Compared as they are shown: with U+FFFD for what is not UTF-8."""
    raw = b"a\x01x\xff\x02b\x01\xc3\xa9"
    for text, verdict in (
        ("a = 'x'", False),
        ("a = 'x\ufffd'", True),
        ("a STARTSWITH 'x'", True),
        ("b ENDSWITH 'é'", True),
        ("b CONTAINS '\ufffd'", False),
    ):
        program = program_of(sql_filter(text))
        asked = program.verdict(raw)
        assert asked in (verdict, "unsure"), text
        assert (asked == "unsure") == ("\ufffd" in text)


def test_names_of_the_properties() -> None:
    assert sql_filter("a = 1 AND (b > a OR NOT c IS NULL)").properties == ("a", "b", "c")


def test_more_properties_than_native_code_holds() -> None:
    names = [f"p{n}" for n in range(40)]
    found = sql_filter(" AND ".join(f"{name} = 1" for name in names))
    program = program_of(found)
    assert program.verdict(encode_properties(dict.fromkeys(names, "1"))) == "unsure"
    assert program.verdict(encode_properties({**dict.fromkeys(names, "1"), "p0": "2"})) is False


def test_a_filter_is_kept_compared_and_pickled() -> None:
    found = sql_filter("a = 1")
    assert sql_filter("a = 1") is found
    assert pickle.loads(pickle.dumps(found)) == found
    assert {found: 1}[SqlFilter("a = 1")] == 1
    assert repr(found) == "sql_filter('a = 1')"


@pytest.mark.parametrize(
    ("ops", "names"),
    [
        ([], []),
        ([("and", 0, [], 0, 0, False)], []),
        ([("in", 0, [b"x"], 0, 0, False)], []),
        ([("in", 1, [b"x"], 0, 0, False)], [b"a"]),
        ([("in", -1, [b"x"], 0, 0, False)], [b"a"]),
        ([("contains", 0, [], 0, 0, False)], [b"a"]),
        ([("contains", 0, [b""], 0, 0, False)], [b"a"]),
        ([("constant", 0, [], 9, 0, False)], []),
        ([("constant", 0, [], 1, 0, False)] * 2, []),
        ([("constant", 0, [], 1, 0, False)] * 300, []),
        ([("constant", 0, [], 1, 0, False)], [b"n"] * 33),
    ],
)
def test_no_program(ops: Any, names: Any) -> None:
    with pytest.raises(ValueError, match="verdicts|slot|text|properties|verdict"):
        FilterProgram(ops, names, bool)
