"""Patterns of topics: those of `re` wherever both have an answer, and an answer after a bounded count of steps."""

from __future__ import annotations

import random
import re

import pytest

import rocketstore
from rocketstore.values.record_filter import DEPTH_MAX, PATTERN_MAX, RecordFilter, topic_test

pytestmark = pytest.mark.quick

#: Pieces of patterns; some make no pattern, or one that is refused.
PIECES = (
    *("a", "b", "c", "ab", "-", "_", "%", ".", "ä", "#", " ", "]", "{", "}", "{}", "{1", "(?i)"),
    *(
        "[ab]",
        "[^a]",
        "[]a]",
        "[^]a]",
        "[\\]a]",
        "[(]",
        "[)|]",
        "[a-c]",
        "\\d",
        "\\w",
        "\\.",
        "\\(",
    ),
    *("\\x61", "\\u0061", "\\141", "\\07", "\\N{LATIN SMALL LETTER A}", "\\\\", "(?s)"),
    *("(", "(", "(?:", "(?=", "(?!", "(?P<n>", ")", ")", ")", "|", "^", "$", "\\b", "\\B", "\\A"),
    *("*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{1,}", "{,}", "{2}?", "\\Z"),
    *("*+", "++", "?+", "{2}+", "\\1", "(?<=a)", "(?<!a)", "(?>a)", "(?#x)", "(?i:a)", "(?P=n)"),
)
REFUSED = re.compile(r"[*+?}]\+|\\1|\(\?[<>#]|\(\?i:|\(\?P=")
NAMES = (
    *("", "a", "b", "ab", "ba", "aab", "abab", "A", "aB", "a-b", "a_1", "abc", "cab", "aaaa", "ä"),
    *("a{1", "{}", "]", "a.b", "\\", "(", ")|", "a b", "#", "a\n", "aa-bb", "\x07a", "{,}"),
)
#: With names that each takes.
USUAL = (
    ("orders.*", ["orders", "orders-eu"]),
    ("(orders|payments)-(eu|us)(-[a-z]+)*", ["orders-eu", "payments-us-east-a"]),
    ("orders-\\d{4}-\\d{2}", ["orders-2024-01"]),
    ("(?!RMQ_SYS_|%RETRY%).*", ["orders", "RMQ"]),
    ("^(?!__)[\\w-]+$", ["a-b", "_a"]),
    ("(?i)ORDERS-.+", ["orders-x", "Orders-Y"]),
    ("%(RETRY|DLQ)%.*", ["%RETRY%group", "%DLQ%group"]),
    ("([a-z]+-)*[a-z]+", ["a" * 127, "a-" * 63 + "a"]),
    (".*-eu-.*-v[0-9]+.*", ["x-eu-y-v12", "-eu-" * 60 + "-v1"]),
    ("|".join(f"topic-{n}" for n in range(180)), ["topic-0", "topic-179"]),
)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_re_says(rng: random.Random) -> None:
    """Of random patterns, most of them odd; what is refused has a part that may be."""
    taken = 0
    for _ in range(8000):
        pattern = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 8)))
        try:
            test = topic_test(pattern)
        except ValueError:
            if not REFUSED.search(pattern):
                with pytest.raises((re.error, OverflowError)):
                    re.compile(pattern)
            continue
        wanted, taken = re.compile(pattern), taken + 1
        for name in NAMES:
            assert test(name) == (wanted.fullmatch(name) is not None), (pattern, name)
    assert taken > 500


@pytest.mark.parametrize(("pattern", "names"), USUAL, ids=[pattern[:20] for pattern, _ in USUAL])
def test_what_is_usual(pattern: str, names: list[str]) -> None:
    test, wanted = topic_test(pattern), re.compile(pattern)
    for name in (*names, *NAMES, "RMQ_SYS_TRACE_TOPIC", "%RETRY%g", "__offsets", "a" * 255):
        assert test(name) == (wanted.fullmatch(name) is not None), name
    assert all(map(test, names))


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|aa)+x",
        "(a+)+x",
        "(a|a)*x",
        "(a|aa)+$x?",
        "((a*)*)*x",
        "(?:a?){200}a{200}x",
        "(.*a){50}x",
    ],
)
def test_2_to_the_n_ways_cost_no_more_than_their_places(pattern: str) -> None:
    """`re` does not come to an end here."""
    test = topic_test(pattern)
    assert test("a" * 255 + "x") == (pattern != "(a|aa)+$x?")
    assert test("a" * 255) == (pattern == "(a|aa)+$x?")


@pytest.mark.parametrize(
    "pattern",
    [".*" * 1000, "a?" * 1000, "(?=.*" * 45 + "x" + ")" * 45, "(?:(?:(?:){1000}){1000}){1000}"],
)
def test_what_is_too_dear_says_so(pattern: str) -> None:
    with pytest.raises(ValueError, match="topic_pattern = .*: too dear for topic 'aaa"):
        topic_test(pattern)("a" * 255)


def test_names_of_any_length() -> None:
    """Records of other programs name topics of up to 32,767 bytes."""
    assert topic_test(".*foo(-[a-z]+)*")("a" * 30_000 + "foo" + "-b" * 1000)
    assert topic_test("a{3000,}")("a" * 3000) and not topic_test("a{3001}")("a" * 3000)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "topic_pattern = '\\(': a regular expression is wanted, .*unterminated"),
        ("(" * 1024 + ")" * 1024, "a regular expression is wanted"),
        ("(" * 51 + ")" * 51, f"nested deeper than {DEPTH_MAX}"),
        ("a" * 1_000_000, f"has 1000000 characters; there may be {PATTERN_MAX}: choose topics by"),
        (
            "[!-\uffff]" * 5,
            "has 5 ranges of characters beyond U\\+00FF; there may be 4: choose topics",
        ),
        ("[" + "!-\\uffff" * 250 + "]", "has 250 ranges"),
        ("(?i)[!-\\U0010ffff" + "%-\\N{BULLET}" * 99 + "]", "has 100 ranges"),
        ("(a)\\1", "without back references, \\(\\?<= and atomic parts"),
        ("a*+", "without back references, \\(\\?<= and atomic parts"),
        ("(?<=a)b", "without back references, \\(\\?<= and atomic parts"),
        ("a{1,99999999999999999999}", "the repetition number is too large"),
    ],
    ids=[
        "open",
        "brackets",
        "deep",
        "long",
        "ranges",
        "one set",
        "escapes",
        "reference",
        "possessive",
        "look-behind",
        "number",
    ],
)
def test_what_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        RecordFilter.of(topic_pattern=pattern)
    assert len(str(caught.value)) < PATTERN_MAX + 300


def test_ranges_beyond_a_byte_are_few() -> None:
    matches = topic_test(
        "[\u4e00-\u9fff]+[a-z\\u0370-\\u03ff]*([!-\xff]|[^\u3400-\u4dbf\\u2000-\\u206f])"
    )
    assert matches("\u4e00\u9fffz\u03ff\u3000")
    assert not matches("\u4e00\u2000")


def test_a_scan_of_a_store_with_a_name_made_for_it(tmp_path: object) -> None:
    with rocketstore.open(f"{tmp_path}/s", durability="os") as store:
        store.writer("a" * 125 + "-").put(b"x")
        store.writer("aax").put(b"y")
        scan = rocketstore.scan(store, topic_pattern="(a|aa)+x")
        assert [bytes(body) for chunk in scan for body in chunk["body"].tolist()] == [b"y"]
        with pytest.raises(ValueError, match="too dear for topic"):
            list(rocketstore.scan(store, topic_pattern=".*" * 1000))
