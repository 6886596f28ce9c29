"""What random changes are made to, and what should notice them, is there: a path that is not counts as noticed."""

from __future__ import annotations

import re

import pytest

from tests.mutation.__main__ import RECOVERY, TARGETS, TESTS_OF_RECOVERY
from tests.mutation.mutations import of_python
from tests.support.paths import ROOT, TESTS

pytestmark = pytest.mark.quick


def test_the_modules_of_recovery_have_places_to_change() -> None:
    places = {
        name: of_python(f"rocketstore/{name}", (ROOT / "rocketstore" / name).read_text("utf-8"))
        for name in RECOVERY
    }
    assert sum(map(bool, places.values())) >= len(RECOVERY) - 1
    assert sum(map(len, places.values())) > 100


def test_the_tests_of_recovery_exist() -> None:
    for words in TESTS_OF_RECOVERY:
        for word in words:
            path = word.removeprefix("--ignore=")
            assert not path.startswith("tests/") or (ROOT / path).exists(), word


def test_every_fuzz_target_is_tried() -> None:
    makefile = (TESTS / "fuzz" / "Makefile").read_text(encoding="utf-8")
    [row] = re.findall(r"^TARGETS := (.+)$", makefile, re.MULTILINE)
    assert sorted(TARGETS) == sorted(row.split())
