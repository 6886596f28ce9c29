"""Spark's filters as conditions, those that mean the same to the last row; and how they come to
us."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from rocketstore.spark.source.conditions import (
    CODED,
    NUMBERS,
    OPTIONAL,
    Condition,
    conditions_text,
    testable,
)
from rocketstore.spark.timestamps import EPOCH

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from rocketstore.spark.schema import Field

__all__ = ["FiltersAskedError", "answer_in", "conditions_of"]

TESTS: Final = {
    EqualTo: "in",
    EqualNullSafe: "in",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
NEVER_NULL_TEXTS: Final = ("body", "properties", *CODED)
MICROSECOND: Final = datetime.timedelta(microseconds=1)


class FiltersAskedError(Exception):
    """Conditions on their way through Spark, which keeps nothing but the text of an error."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        text = base64.urlsafe_b64encode(conditions_text(conditions).encode()).decode()
        super().__init__(f"[RS_FILTERS_ASKED {text}]")


def answer_in(text: str) -> str | None:
    """The value of the option `conditions` in an error's text; None when it is another error."""
    found = re.search(r"\[RS_FILTERS_ASKED ([A-Za-z0-9_=-]+)\]", text)
    return None if found is None else base64.urlsafe_b64decode(found[1]).decode()


def conditions_of(found: Filter, fields: Sequence[Field]) -> tuple[Condition, ...] | None:
    """What a row must fulfil, all of it, for the filter to be true; None when only Spark can
    decide."""
    name = getattr(found, "attribute", ())
    field = next((f for f in fields if (f.name,) == tuple(name) and f.column), None)
    if field is None:
        return None
    if isinstance(found, IsNotNull | IsNull):
        return null_conditions(field, isinstance(found, IsNull))
    test = TESTS.get(type(found))
    if test is None:
        return None
    values = tuple(found.value) if isinstance(found, In) else (found.value,)
    if isinstance(found, In):
        # A null among them never makes it true.
        values = tuple(value for value in values if value is not None)
    plain = [plain_value(value, field) for value in values]
    condition = Condition(field, test, tuple(plain))
    return (condition,) if testable(condition) else None


def null_conditions(field: Field, missing: bool) -> tuple[Condition, ...] | None:
    if field.column in OPTIONAL:
        return (Condition(field, "missing" if missing else "given"),)
    if missing:
        return None
    return () if field.kind in NUMBERS or field.column in NEVER_NULL_TEXTS else None


def plain_value(value: Any, field: Field) -> Any:
    """A literal in the values of the column: whole numbers of 64 bits, microseconds or text; None
    when it is of another kind."""
    if field.kind == "timestamp":
        aware = isinstance(value, datetime.datetime) and value.utcoffset() is not None
        return (value - EPOCH) // MICROSECOND if aware else None
    if field.kind in NUMBERS:
        return value if type(value) is int and -(2**63) <= value < 2**63 else None
    return value if field.kind == "string" else None
