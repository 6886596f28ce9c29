"""docs/durability.md names a test for each rule, and these tests name the rule."""

from __future__ import annotations

import pytest

from tests.docs.link_rules import COUNT, DOCUMENT, holders, relinked, rows

pytestmark = pytest.mark.quick


def test_every_rule_stands_once_and_in_order() -> None:
    assert list(rows()) == [f"D-{number:02}" for number in range(1, COUNT + 1)]


def test_every_rule_is_held_by_a_test_or_says_why_not() -> None:
    bare = [
        rule
        for rule, holder in rows().items()
        if "::" not in holder and not holder.startswith(("later: ", "not built: "))
    ]
    assert bare == []


def test_tests_name_rules_that_exist() -> None:
    assert set(holders()) <= set(rows())


def test_table_is_what_the_docstrings_say() -> None:
    """After a change run `python -m tests.docs.link_rules`."""
    assert DOCUMENT.read_text(encoding="utf-8") == relinked()
