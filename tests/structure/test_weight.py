"""No room of the product or of the tests has more code than its budget."""

from __future__ import annotations

import pytest

from tests.structure.weight import budgets, weigh, weight

pytestmark = pytest.mark.quick


def test_no_room_is_heavier_than_its_budget() -> None:
    """`tests/structure/weight.csv`: an issue names what it may add."""
    now, given = weigh(), budgets()
    over = {
        room: f"{n} of {given.get(room, 0)}" for room, n in now.items() if n > given.get(room, 0)
    }
    assert over == {}
    assert set(given) == set(now), "a row for each room, and for nothing else"


@pytest.mark.parametrize(
    ("suffix", "text", "n"),
    [
        (".py", '"""Said."""\n\n# why\nif x:\n    y = (\n        1\n    )\n', 2),
        (".py", 'def f():\n    """Said."""\n    return "a"\n', 2),
        (".pyx", '"""Said\nthere."""\ncdef int a\n\n# why\ncdef int b  # which\n', 2),
        (".c", "/* said\n * there */\nint a; // which\n\nint b;\n", 2),
        (".h", "int a; /* said */\n", 1),
    ],
)
def test_what_counts(suffix: str, text: str, n: int) -> None:
    assert weight(suffix, text) == n
