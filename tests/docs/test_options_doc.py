"""docs/options.md says what the code says: both come from one table."""

from __future__ import annotations

import pytest

from tests.docs.option_table import DOCUMENT, document

pytestmark = pytest.mark.quick


def test_the_page_is_made_from_the_options() -> None:
    """After a change of an option run `python -m tests.docs.option_table`."""
    assert DOCUMENT.read_text(encoding="utf-8") == document()
