"""Random expressions of filters, and random properties that they speak of."""

from __future__ import annotations

import random
from typing import Final

__all__ = ["VALUES", "broken", "expression", "message"]

NAMES: Final = ("price", "region", "Weight", "_flag", "$id", "TAGS", "inside")
#: Constants; some hold no number, some only one of the three kinds.
NUMBERS: Final = (
    *("0", "1", "7", "10", "10L", "2147483647", "2147483648", "9223372036854775807"),
    *("1.5", "10.", ".5", "5E1", "1e-3", "2.5E+2", "10.0", "3.14159265358979", "1e300"),
)
TEXTS: Final = ("'eu'", "'us'", "''", "'it''s'", "'10'", "'true'", "'é'", "'\U0001f600'", "' 10 '")
#: What a property may be.
VALUES: Final = (
    *("0", "-0", "1", "7", "10", "+10", "-10", "010", "2147483647", "2147483648", "-2147483648"),
    *("9223372036854775807", "9223372036854775808", "99999999999999999999999", "1_0", "٣", "１０"),
    *("1.5", "10.0", "10.", ".5", "5e1", "5E1", "1e", "e5", "-0.0", "0.001", "250", "1e400"),
    *("1e-400", "0x1p3", "0X1.8P1", "0x10", "10f", "10D", "10L", " 10 ", "\t1.5", "10 x", "NaN"),
    *("Infinity", "-Infinity", "nan", "inf", "+", "-", ".", "--1", "3.141592653589793238462643"),
    *("eu", "us", "it's", "europe", "true", "TRUE", "tRue", "false", "é", "éu", "\U0001f600"),
    *("0000000000000000000000000010", "123456789012345678", "1234567890123456789", "1" * 400),
)
ORDERS: Final = ("<", "<=", ">", ">=")
DEPTH: Final = 4


def message(rng: random.Random) -> dict[str, str]:
    """Properties; each is missing now and then."""
    return {name: rng.choice(VALUES) for name in NAMES if rng.random() < 0.75}


def expression(rng: random.Random) -> str:
    """An expression that RocketMQ takes, but for one that compares with (NULL)."""
    text = _condition(rng, DEPTH)
    return rng.choice(("", " ", "\n", "/* all */ ")) + text


def broken(rng: random.Random) -> str:
    """An expression with a piece left out, doubled or put elsewhere: it may be none."""
    words = expression(rng).split(" ")
    at = rng.randrange(len(words))
    change = rng.randrange(4)
    if change == 0:
        del words[at]
    elif change == 1:
        words.insert(at, words[at])
    elif change == 2:
        words.insert(
            at, rng.choice(("NOT", "AND", "(", ")", "=", ",", "NULL", "'", "5", "IN", "-"))
        )
    else:
        words[at] = rng.choice(("TRUE", "x", "'x'", "9e999", "99999999999999999999", "<>", "!="))
    return " ".join(words)


def _condition(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.3:
        return _test(rng, depth)
    kind = rng.randrange(5)
    if kind <= 1:
        word = _cased(rng, rng.choice(("AND", "OR")))
        parts = [_condition(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        return f" {word} ".join(parts)
    if kind == 2:
        return f"{_cased(rng, 'NOT')} ( {_condition(rng, depth - 1)} )"
    if kind == 3:
        return f"( {_condition(rng, depth - 1)} )"
    return _test(rng, depth)


def _test(rng: random.Random, depth: int) -> str:
    name = rng.choice(NAMES)
    negate = _cased(rng, rng.choice(("", "NOT ")))
    match rng.randrange(12):
        case 0 | 1:
            return f"{name} {rng.choice(ORDERS)} {_number(rng)}"
        case 2:
            return f"{name} {rng.choice(('=', '<>'))} {_number(rng)}"
        case 3:
            return f"{name} {rng.choice(('=', '<>'))} {rng.choice((*TEXTS, 'TRUE', 'FALSE'))}"
        case 4:
            return f"{name} {negate}IN ( {' , '.join(rng.choices(TEXTS, k=rng.randint(1, 6)))} )"
        case 5:
            word = rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return f"{name} {negate}{_cased(rng, word)} {rng.choice(TEXTS)}"
        case 6:
            return f"{name} IS {negate}NULL"
        case 7:
            low, high = sorted(rng.sample(range(-20, 300), 2))
            return f"{name} {negate}BETWEEN {low} AND {high}"
        case 8:
            other = rng.choice(NAMES)
            return f"{name} {rng.choice(('=', '<>', *ORDERS))} {rng.choice(('', '- '))}{other}"
        case 9:
            return f"{_number(rng)} {rng.choice(('=', '<>', *ORDERS))} {name}"
        case 10:
            return rng.choice((name, f"NOT {name}", "TRUE", "FALSE", "NULL", "'a' = 'a'"))
        case _:
            inner = _condition(rng, min(depth, 1))
            right = rng.choice(("TRUE", "FALSE", name, "5", "'true'", "( 1 = 1 )"))
            return f"( {inner} ) {rng.choice(('=', '<>'))} {right}"


def _number(rng: random.Random) -> str:
    return rng.choice(("", "", "-", "+", "- - ")) + rng.choice(NUMBERS)


def _cased(rng: random.Random, word: str) -> str:
    return rng.choice((word, word.lower(), word.title()))
