"""Filters by SQL beside RocketMQ's own classes."""

from __future__ import annotations

import random
import re

import pytest

from rocketstore._native.format.codec import encode_properties
from rocketstore.errors import FilterSyntaxError
from rocketstore.filters import program_of, sql_filter
from rocketstore.filters.compare import UndecidedError
from tests.interop.filter_oracle import Verdict, verdicts
from tests.support.filter_expressions import broken, expression, message

pytestmark = pytest.mark.java

EXPRESSIONS = 1000
MESSAGES = 60
#: A double that RocketMQ calls too small.
ZERO = re.compile(r"(?<![0-9.])0+\.0*(?![0-9])|(?<![0-9])\.0+(?![0-9])")


def ours(text: str, messages: list[dict[str, str]]) -> list[Verdict] | str:
    """As the oracle answers; native code agrees wherever it is sure."""
    try:
        found = sql_filter(text)
    except FilterSyntaxError:
        return "refused"
    program = program_of(found)
    answers: list[Verdict] = []
    for properties in messages:
        try:
            answers.append(found._evaluate(properties.get))
        except UndecidedError:
            answers.append("error")
        native = program.verdict(encode_properties(properties))
        assert native in (answers[-1], "unsure"), (text, properties)
    return answers


def test_the_same_verdicts(version: str, rng: random.Random) -> None:
    """Of random expressions on random messages: true, false, unknown and exceptions."""
    messages = [message(rng) for _ in range(MESSAGES)]
    texts = [expression(rng) for _ in range(EXPRESSIONS)]
    answers = verdicts(version, texts, messages)
    refused = 0
    for text, answer in zip(texts, answers, strict=True):
        mine = ours(text, messages)
        assert mine == answer, text
        refused += answer == "refused"
    assert refused < EXPRESSIONS // 10
    print(f"\nRocketMQ {version}: {EXPRESSIONS} expressions on {MESSAGES} messages, all equal")


def test_what_rocketmq_refuses_is_refused(version: str, rng: random.Random) -> None:
    """RocketMQ does not read what follows a whole expression; here that is refused."""
    messages = [message(rng) for _ in range(10)]
    texts = [broken(rng) for _ in range(EXPRESSIONS)]
    answers = verdicts(version, texts, messages)
    counts = {"both": 0, "neither": 0, "ours": 0}
    for text, answer in zip(texts, answers, strict=True):
        mine = ours(text, messages)
        if mine == "refused":
            counts["both" if answer == "refused" else "ours"] += 1
        else:
            assert mine == answer, text
            counts["neither"] += 1
    assert min(counts.values()) > 0, counts


def test_known_differences(version: str) -> None:
    """A text after the expression, which RocketMQ drops, and 0.0, which it calls too small."""
    texts = ["price = 10 AND region = 'eu' price", "price = 007", "price > 0.0"]
    properties = [{"price": "10", "region": "eu"}]
    assert verdicts(version, texts, properties) == [[True], [False], "refused"]
    assert [ours(text, properties) for text in texts] == ["refused", "refused", [True]]
