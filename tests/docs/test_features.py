"""Every behaviour of the feature table is held by a test that exists, or says why not."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.docs.link_features import LATER, all_tests, expected_ids, named_ids, read_table, relinked

pytestmark = pytest.mark.quick


def test_table_has_every_row_once_and_in_order() -> None:
    assert [row.id for row in read_table()] == expected_ids()
    assert all(row.behaviour.strip() for row in read_table())


def test_every_row_has_a_holder() -> None:
    bare = []
    for row in read_table():
        reason = row.holder.removeprefix("not built: ")
        if not (row.tested or row.holder in LATER or (reason != row.holder and len(reason) > 10)):
            bare.append(f"{row.id} {row.behaviour}: {row.holder!r}")
    assert not bare, "\n" + "\n".join(bare)


def test_every_named_test_exists_and_names_the_row() -> None:
    tests = all_tests()
    wrong = []
    for row in read_table():
        if row.tested and row.id not in named_ids(tests.get(row.holder, "")):
            wrong.append(f"{row.id} {row.holder}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_docstrings_name_rows_that_exist() -> None:
    known = set(expected_ids())
    wrong = []
    for node, docstring in all_tests().items():
        wrong += [f"{node}: {name}" for name in named_ids(docstring) if name not in known]
    assert not wrong, "\n" + "\n".join(wrong)


def test_table_is_what_the_docstrings_say() -> None:
    """After a change run `python -m tests.docs.link_features`."""
    rows = read_table()
    changed = [
        f"{old.id}: {old.holder!r} is {new.holder!r} now"
        for old, new in zip(rows, relinked(rows), strict=True)
        if old != new
    ]
    assert not changed, "\n" + "\n".join(changed)


def test_what_is_left_for_later_is_counted() -> None:
    """Rows may leave `later`; none may join it unseen."""
    later = Counter(row.holder for row in read_table() if row.holder in LATER)
    assert later["later:services"] <= 7
    assert later["later:replication"] <= 15
    assert later["later:interop"] == 0
