"""A test of `make test` that fails once and passes three times alone is a flake; any other failure stays one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.flakes import AGAIN, MOST, alone, failures, judged, noted

pytestmark = pytest.mark.quick

OUTPUT = """..F
=== FAILURES ===
___ test_a ___
seed 77
=== short test summary info ===
FAILED tests/test_a.py::test_a - assert 1 == 2
"""


class Alone:
    """Answers of runs alone, in turn."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, test: str) -> bool:
        self.asked.append(test)
        return self.answers.pop(0)


def test_a_flake_is_shown_with_its_failure(capsys: pytest.CaptureFixture[str]) -> None:
    passes = Alone(*[True] * 2 * AGAIN)
    assert judged(2, ["a", "b"], OUTPUT, passes) == 0
    assert passes.asked == ["a"] * AGAIN + ["b"] * AGAIN
    said = capsys.readouterr().out
    assert "=== flakes" in said
    assert "seed 77" in said.split("=== flakes")[1]
    assert "short test summary" not in failures(OUTPUT)


@pytest.mark.parametrize("number", range(AGAIN))
def test_one_failure_alone_fails_the_run(number: int) -> None:
    answers = [True] * AGAIN
    answers[number] = False
    assert judged(2, ["a"], OUTPUT, Alone(*answers)) == 2


@pytest.mark.parametrize(
    ("failed", "output"),
    [
        ([], OUTPUT),
        ([str(number) for number in range(MOST + 1)], OUTPUT),
        (["a"], OUTPUT + "worker 'gw0' crashed while running 'a'"),
    ],
    ids=["none was noted", "many", "a process died"],
)
def test_what_is_not_tried_again(failed: list[str], output: str) -> None:
    never: Callable[[str], bool] = Alone()
    assert judged(2, failed, output, never) == 2


def test_a_run_that_passed_is_no_flake(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(0, ["an older failure"], OUTPUT, Alone()) == 0
    assert not capsys.readouterr().out


def test_what_pytest_notes_is_run_alone(tmp_path: Path) -> None:
    """By pytest itself: one that passes, one that fails, one that is skipped."""
    file = tmp_path / "test_three.py"
    file.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', ['a b', '[c]'])\n"
        "def test_good(n): pass\n"
        "def test_bad(): assert 0\n"
        "def test_skipped(): pytest.skip('')\n"
    )
    assert alone(f"{file}::test_good[a b]")
    assert alone(f"{file}::test_good[[c]]")
    assert not alone(f"{file}::test_bad")
    assert not alone(f"{file}::test_skipped")
    assert noted(tmp_path / "none") == []
